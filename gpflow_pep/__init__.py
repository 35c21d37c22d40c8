"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, inducing, likelihoods, metrics, models, posteriors, sites, statistics, training
from .likelihoods import MultiClassRobustMax
from .models import APEP, ARPEP, BTSGPR, PEPR, RPAPEP, TSGPR, PEPClassifier, StreamingSGPR, StreamingSVGP
from .stream_state import StreamState

__all__ = [
    "APEP",
    "ARPEP",
    "BTSGPR",
    "PEPR",
    "RPAPEP",
    "TSGPR",
    "MultiClassRobustMax",
    "PEPClassifier",
    "StreamState",
    "StreamingSGPR",
    "StreamingSVGP",
    "datasets",
    "inducing",
    "likelihoods",
    "metrics",
    "models",
    "posteriors",
    "sites",
    "statistics",
    "training",
]
