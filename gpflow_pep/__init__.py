"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, likelihoods, metrics, models, posteriors, sites, statistics, training
from .models import BTSGPR, PEPR, TSGPR, PEPClassifier

__all__ = [
    "BTSGPR",
    "PEPR",
    "TSGPR",
    "PEPClassifier",
    "datasets",
    "likelihoods",
    "metrics",
    "models",
    "posteriors",
    "sites",
    "statistics",
    "training",
]
