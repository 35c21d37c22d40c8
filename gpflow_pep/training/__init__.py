"""Training: one function for all models, with early stopping, checkpoints, exact resumption and TensorBoard."""

from .coordinates import Scipy
from .fitting import OPTIMIZERS, fit
from .history import Callback
from .result import FitResult, uninterrupted

__all__ = ["OPTIMIZERS", "Callback", "FitResult", "Scipy", "fit", "uninterrupted"]
