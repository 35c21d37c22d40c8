"""The engine: rows of data -> the sums that evidence, posterior and predictions are made of, in chunks."""

from .accumulation import accumulate_sums
from .block import BlockSites
from .chunk_loops import CHUNKS_IN_FLIGHT, concatenate, sum_over_chunks
from .chunks import AllRows, Chunks, NumberedChunks, default_chunk_size
from .collapsed_leave_one_out import collapsed_leave_one_out
from .conditional_variance import conditional_variance_of_f, with_checked_variance
from .covariances import Prior, independent_parts
from .dataset_rows import DatasetRows
from .devices import Devices
from .divided_chunks import Blocks, SingleRows
from .evidence import log_gaussian, mahalanobis
from .independent import IndependentSites
from .kernel_matrices import kernel_matrix
from .old_posterior import AbsorbedPosterior, OldPosterior
from .penalty import factored_log_det_ratio, log1p_ratio, scale_terms
from .reductions import Reductions
from .replicas import heed_set_trainable, in_every_replica, in_replica, scope_of
from .rows import RegressionRows, Rows, RowSource, floating_variables, watched
from .shards import check_shards
from .site_algebra import EvidenceTerms, Powers, SiteAlgebra
from .structured import SharedBlockSites, StructuredBlockSites
from .sums import InducingPosterior, OldPosteriorSite, SiteSums, factorize_B, precision_B
from .workers import Workers, component, local_variable

__all__ = [
    "CHUNKS_IN_FLIGHT",
    "AbsorbedPosterior",
    "AllRows",
    "BlockSites",
    "Blocks",
    "Chunks",
    "DatasetRows",
    "Devices",
    "EvidenceTerms",
    "IndependentSites",
    "InducingPosterior",
    "NumberedChunks",
    "OldPosterior",
    "OldPosteriorSite",
    "Powers",
    "Prior",
    "Reductions",
    "RegressionRows",
    "RowSource",
    "Rows",
    "SharedBlockSites",
    "SingleRows",
    "SiteAlgebra",
    "SiteSums",
    "StructuredBlockSites",
    "Workers",
    "accumulate_sums",
    "check_shards",
    "collapsed_leave_one_out",
    "component",
    "concatenate",
    "conditional_variance_of_f",
    "default_chunk_size",
    "factored_log_det_ratio",
    "factorize_B",
    "floating_variables",
    "heed_set_trainable",
    "in_every_replica",
    "in_replica",
    "independent_parts",
    "kernel_matrix",
    "local_variable",
    "log1p_ratio",
    "log_gaussian",
    "mahalanobis",
    "precision_B",
    "scale_terms",
    "scope_of",
    "sum_over_chunks",
    "watched",
    "with_checked_variance",
]
