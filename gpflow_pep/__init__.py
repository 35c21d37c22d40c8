"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, inducing, likelihoods, metrics, models
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
    StreamingPEP,
    StreamingSGPR,
    StreamingSVGP,
)
from .num_inducing_selection import NumInducingSelection, select_num_inducing
from .stream_state import StreamState
from .training import FitResult, fit

__version__ = "0.1.0"

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
    "FitResult",
    "MultiClassRobustMax",
    "NumInducingSelection",
    "PEPClassifier",
    "StreamState",
    "StreamingPEP",
    "StreamingSGPR",
    "StreamingSVGP",
    "__version__",
    "datasets",
    "fit",
    "inducing",
    "likelihoods",
    "metrics",
    "models",
    "select_alpha",
    "select_num_inducing",
]
