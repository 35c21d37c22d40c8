"""Training: one function for every model, with early stopping, checkpoints, exact resumption and TensorBoard."""

from .course import Report
from .fitting import OPTIMIZERS, fit
from .result import FitResult

__all__ = ["OPTIMIZERS", "FitResult", "Report", "fit"]
