"""Every class of models, and a model of each with the same small rows."""

import numpy as np
from gpflow.kernels import Matern32
from gpflow.likelihoods import Gaussian

from gpflow_pep import (
    APEP,
    ARPEP,
    BTSGPR,
    BTSVGP,
    PEP,
    PEPR,
    PEPSVGP,
    RPAPEP,
    TSGPR,
    TSVGP,
    PEPClassifier,
    StreamingPEP,
    StreamingSGPR,
    StreamingSVGP,
)
from gpflow_pep.likelihoods import Probit

RNG = np.random.default_rng(0)
N = 12
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=(N, 1))
Z = RNG.normal(size=(4, 2))
LABELS = (Y > 0.0).astype(float)
COLLAPSED = (PEPR, TSGPR, BTSGPR, StreamingSGPR)
SITES = (PEP, PEPClassifier, StreamingPEP)
TIED = (APEP, ARPEP, RPAPEP)
STRUCTURED = (TSVGP, BTSVGP, PEPSVGP)
WITH_DATA = (*COLLAPSED, *SITES)
WITHOUT_DATA = (*TIED, *STRUCTURED, StreamingSVGP)
EVERY = (*WITH_DATA, *WITHOUT_DATA)
STREAMS = (StreamingSGPR, StreamingPEP, StreamingSVGP)
WITH_ALPHA = (PEPR, StreamingSGPR, *SITES, *TIED, PEPSVGP)


def made(kind, **given):
    """A model, with some arguments in place of those of the tests."""
    arguments = {"kernel": Matern32(), "inducing_variable": Z}
    if kind in COLLAPSED:
        arguments |= {"data": (X, Y)}
    else:
        arguments |= {"likelihood": Gaussian() if kind in STRUCTURED else Probit()}
        arguments |= {"data": (X, LABELS)} if kind in SITES else {"num_data": N}
    if kind is BTSGPR:
        arguments |= {"blocks": 6}
    return kind(**arguments | given)
