"""Training: one function for every model, with early stopping, checkpoints, exact resumption and TensorBoard."""

from .fitting import OPTIMIZERS, fit
from .history import Report
from .result import FitResult

__all__ = ["OPTIMIZERS", "FitResult", "Report", "fit"]
