"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import inducing, likelihoods, models
from . import softmax as softmax  # registers its rule
from .data import metrics
from .kernels import CenteredLinear
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
    BlockPEP,
    PEPClassifier,
    StreamingPEP,
    StreamingSGPR,
    StreamingSVGP,
)
from .saving.stream_state import StreamState
from .selection.alpha import AlphaSelection, select_alpha
from .selection.num_inducing import NumInducingSelection, select_num_inducing
from .training import FitResult, fit, weak_priors

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
    "BlockPEP",
    "CenteredLinear",
    "FitResult",
    "MultiClassRobustMax",
    "NumInducingSelection",
    "PEPClassifier",
    "StreamState",
    "StreamingPEP",
    "StreamingSGPR",
    "StreamingSVGP",
    "__version__",
    "fit",
    "inducing",
    "likelihoods",
    "metrics",
    "models",
    "select_alpha",
    "select_num_inducing",
    "weak_priors",
]
