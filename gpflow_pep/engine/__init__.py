"""Sums over rows, in chunks, from which evidence, posterior and predictions follow."""

from .accumulation import accumulate_sums, collapsed_leave_one_out
from .block_sites import BlockSites, SharedBlockSites, SphericalBlockSites, StructuredBlockSites
from .chunks import (
    BlockChunks,
    Chunk,
    ChunkedData,
    Chunks,
    OneChunk,
    RowChunks,
    default_chunk_size,
    flat_rows,
    split_rows,
)
from .coregion import checked_indices, index_columns
from .covariances import (
    Prior,
    conditional_covariance_of_f,
    conditional_variance_of_f,
    floating_variables,
    independent_parts,
    paired,
    with_checked_variance,
)
from .dataset_chunks import DatasetChunks
from .gaussian import (
    InducingPosterior,
    OldPosteriorSite,
    RowSums,
    SiteSums,
    factored_log_det_ratio,
    log1p_ratio,
    log_gaussian,
    mahalanobis,
    scale_terms,
)
from .kernel_matrices import check_columns, kernel_matrix, leaves
from .old_posterior import AbsorbedPosterior, OldPosterior
from .rows import RegressionRows, Rows, SummedRows, mean_at, noise_at, watched
from .sites import IndependentSites, Powers, SiteRule
