"""Training: one function for all models, with early stopping, checkpoints, exact resumption and TensorBoard."""

from .fitting import OPTIMIZERS, fit
from .history import Callback
from .result import FitResult, uninterrupted

__all__ = ["OPTIMIZERS", "Callback", "FitResult", "fit", "uninterrupted"]
