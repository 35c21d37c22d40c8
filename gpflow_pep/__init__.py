"""Power expectation propagation for sparse Gaussian processes, on GPflow."""

from . import datasets, inducing, likelihoods, metrics, minibatches, models, posteriors, sites, statistics, training
from .likelihoods import MultiClassRobustMax
from .models import (
    APEP,
    ARPEP,
    BTSGPR,
    BTSVGP,
    PEPR,
    PEPSVGP,
    RPAPEP,
    TSGPR,
    TSVGP,
    PEPClassifier,
    StreamingSGPR,
    StreamingSVGP,
)
from .stream_state import StreamState

__all__ = [
    "APEP",
    "ARPEP",
    "BTSGPR",
    "BTSVGP",
    "PEPR",
    "PEPSVGP",
    "RPAPEP",
    "TSGPR",
    "TSVGP",
    "MultiClassRobustMax",
    "PEPClassifier",
    "StreamState",
    "StreamingSGPR",
    "StreamingSVGP",
    "datasets",
    "inducing",
    "likelihoods",
    "metrics",
    "minibatches",
    "models",
    "posteriors",
    "sites",
    "statistics",
    "training",
]
