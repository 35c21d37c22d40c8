"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import (
    datasets,
    ep,
    inducing,
    likelihoods,
    metrics,
    minibatches,
    models,
    posteriors,
    statistics,
    tilted,
    training,
)
from .alpha_selection import AlphaSelection, select_alpha
from .likelihoods import MultiClassRobustMax
from .models import (
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
    StreamingSGPR,
    StreamingSVGP,
)
from .stream_state import StreamState

__all__ = [
    "APEP",
    "ARPEP",
    "BTSGPR",
    "BTSVGP",
    "PEP",
    "PEPR",
    "PEPSVGP",
    "RPAPEP",
    "TSGPR",
    "TSVGP",
    "AlphaSelection",
    "MultiClassRobustMax",
    "PEPClassifier",
    "StreamState",
    "StreamingSGPR",
    "StreamingSVGP",
    "datasets",
    "ep",
    "inducing",
    "likelihoods",
    "metrics",
    "minibatches",
    "models",
    "posteriors",
    "select_alpha",
    "statistics",
    "tilted",
    "training",
]
