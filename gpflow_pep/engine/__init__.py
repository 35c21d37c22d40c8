"""The engine: rows of data -> the sums that evidence, posterior and predictions are made of, in chunks."""

from .accumulation import accumulate_sums, collapsed_leave_one_out
from .block_sites import BlockSites, SharedBlockSites, StructuredBlockSites
from .chunks import AllRows, Blocks, Chunk, Chunks, SingleRows, default_chunk_size
from .covariances import Prior, independent_parts
from .dataset_chunks import DatasetRows
from .gaussian import InducingPosterior, OldPosteriorSite, SiteSums, log_gaussian, mahalanobis, precision_B
from .old_posterior import AbsorbedPosterior, OldPosterior
from .penalty import factored_log_det_ratio, log1p_ratio, scale_terms
from .rows import (
    RegressionRows,
    Rows,
    conditional_variance_of_f,
    floating_variables,
    watched,
    with_checked_variance,
)
from .sites import IndependentSites, Powers, RowSums, SiteAlgebra
from .stationary_kernels import kernel_matrix

__all__ = [
    "AbsorbedPosterior",
    "AllRows",
    "BlockSites",
    "Blocks",
    "Chunk",
    "Chunks",
    "DatasetRows",
    "IndependentSites",
    "InducingPosterior",
    "OldPosterior",
    "OldPosteriorSite",
    "Powers",
    "Prior",
    "RegressionRows",
    "RowSums",
    "Rows",
    "SharedBlockSites",
    "SingleRows",
    "SiteAlgebra",
    "SiteSums",
    "StructuredBlockSites",
    "accumulate_sums",
    "collapsed_leave_one_out",
    "conditional_variance_of_f",
    "default_chunk_size",
    "factored_log_det_ratio",
    "floating_variables",
    "independent_parts",
    "kernel_matrix",
    "log1p_ratio",
    "log_gaussian",
    "mahalanobis",
    "precision_B",
    "scale_terms",
    "watched",
    "with_checked_variance",
]
