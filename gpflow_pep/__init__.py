"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, likelihoods, metrics, models, posteriors, sites, statistics, training
from .likelihoods import MultiClassRobustMax
from .models import APEP, ARPEP, BTSGPR, PEPR, RPAPEP, TSGPR, PEPClassifier

__all__ = [
    "APEP",
    "ARPEP",
    "BTSGPR",
    "PEPR",
    "RPAPEP",
    "TSGPR",
    "MultiClassRobustMax",
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
