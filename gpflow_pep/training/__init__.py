"""Training: one function for all models, with early stopping, checkpoints, exact resumption and TensorBoard."""

from .coordinates import Scipy
from .fitting import check_optimizer, fit
from .history import Callback
from .priors import weak_priors
from .result import FitResult, uninterrupted

__all__ = [
    "Callback",
    "FitResult",
    "Scipy",
    "check_optimizer",
    "fit",
    "uninterrupted",
    "weak_priors",
]
