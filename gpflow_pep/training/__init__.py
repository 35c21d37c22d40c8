"""Training: one function for all models, with checkpoints and exact resumption."""

from .coordinates import Scipy
from .fitting import fit
from .options import Callback, check_optimizer
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
