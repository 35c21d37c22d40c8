"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, metrics, models, posteriors, statistics
from .models import BTSGPR, PEPR, TSGPR

__all__ = ["BTSGPR", "PEPR", "TSGPR", "datasets", "metrics", "models", "posteriors", "statistics"]
