"""The engine: rows of data -> the sums that evidence, posterior and predictions are made of, in chunks."""

from .block import BlockSites, SharedBlockSites
from .chunks import Blocks, Chunks, SingleRows
from .collect import collect
from .covariances import covariance_with_rows, inducing_covariance, prior_covariance
from .evidence import factorise_B, log_gaussian, mahalanobis
from .independent import IndependentSites
from .penalty import log1p_ratio
from .rows import RegressionRows, Rows, RowSource
from .sites import Powers, Sites, Sums

__all__ = [
    "BlockSites",
    "Blocks",
    "Chunks",
    "IndependentSites",
    "Powers",
    "RegressionRows",
    "RowSource",
    "Rows",
    "SharedBlockSites",
    "SingleRows",
    "Sites",
    "Sums",
    "collect",
    "covariance_with_rows",
    "factorise_B",
    "inducing_covariance",
    "log1p_ratio",
    "log_gaussian",
    "mahalanobis",
    "prior_covariance",
]
