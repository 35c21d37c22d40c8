"""
TSGPR and BTSGPR: the tighter bounds of a structured conditional, with a scale per row or a matrix
per block.
"""

import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import to_default_float
from typing_extensions import override

from .. import validation
from ..engine import Powers, RowSums, SharedBlockSites, SiteRule, StructuredBlockSites
from ..maths.linalg import cholesky, log_det, plus_identity
from .collapsed import BoundsMixin


class TSGPR(BoundsMixin):
    r"""
    The collapsed bound that is tighter than SGPR's; q(u) and predictions as `gpflow.models.SGPR`.

    Source: Bui and Titsias (2025), eq. 6.

    .. math::

        \log N(y; \mu, Q_{ff} + \sigma^2 I) - \frac{1}{2} \sum_n \log(1 + d_n/\sigma^2),
        \qquad d = \mathrm{diag}(K_{ff} - Q_{ff})

    It lies between SGPR's bound and the log evidence.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = TSGPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], noise_variance=0.1)
    >>> sgpr = gpflow.models.SGPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], noise_variance=0.1)
    >>> bool(sgpr.elbo() < model.elbo() < model.upper_bound())
    True
    """

    @override
    def site_powers(self) -> Powers:
        return _powers()


class BTSGPR(BoundsMixin):
    r"""
    The tighter collapsed bound with blocks, tighter still; q(u) and predictions as SGPR.

    Source: Bui and Titsias (2025), eq. 8.

    .. math::

        \log N(y; \mu, Q_{ff} + \sigma^2 I) - \frac{1}{2} \sum_b \log|I + D_{bb}/\sigma^2|,
        \qquad D = K_{ff} - Q_{ff}

    or, with ``shared=True``, one matrix for all B blocks (eq. 11), which is looser but a single
    determinant:

    .. math::

        \log N(y; \mu, Q_{ff} + \sigma^2 I) - \frac{B}{2} \log\left|I + \frac{1}{B} \sum_b
        D_{bb}/\sigma^2\right|

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = BTSGPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], blocks=10, noise_variance=0.1)
    >>> rows = TSGPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], noise_variance=0.1)
    >>> model.num_blocks, bool(rows.elbo() < model.elbo())
    (5, True)
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        blocks: object,
        shared: bool = False,
        mean_function: MeanFunction | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        See :class:`PEPR` for the other arguments; alpha and scale do not apply.

        :param blocks: as for :class:`PEPR`, but required. Blocks of b rows cost O(N b^2) besides
            O(N M^2).
        :param shared: use one matrix for all blocks, which must then have the same size.
        """
        if blocks is None:
            raise ValueError(
                "blocks must be a block size, integer labels [N] or a list of arrays of row "
                "indices."
            )
        super().__init__(
            data,
            kernel,
            inducing_variable,
            mean_function=mean_function,
            noise_variance=noise_variance,
            likelihood=likelihood,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        self._use_blocks(blocks)
        sizes = self._chunks.sizes.numpy()
        self._shared_size = None
        if validation.boolean(shared, "shared"):
            self._shared_size = int(sizes[0])
        self.check_block_sizes(sizes)

    @override
    def site_powers(self) -> Powers:
        return _powers()

    @override
    def site_rule(self) -> SiteRule:
        if self._shared_size is None:
            return StructuredBlockSites()
        return SharedBlockSites(self._shared_size)

    @override
    def run_identity(self) -> dict[str, object]:
        return super().run_identity() | {"shared": self._shared_size is not None}

    @override
    def check_block_sizes(self, sizes: AnyNDArray) -> None:
        if self._shared_size is not None and (sizes != self._shared_size).any():
            raise ValueError(
                f"blocks must be of one size with shared=True, {self._shared_size}, got sizes "
                f"{sizes.min()} to {sizes.max()}."
            )

    @override
    def evidence_penalty(self, row_sums: RowSums) -> tf.Tensor:
        if self._shared_size is None:
            return row_sums.penalty
        B = to_default_float(self._workers.sum(self._local_num_blocks()))
        factor = cholesky(
            plus_identity(row_sums.shared / B),
            name="the shared block",
            advice="a larger noise variance",
        )
        return 0.5 * B * log_det(factor)


def _powers() -> Powers:
    """Return the powers of the tighter bounds: noise as in SGPR, half of the log det penalty."""
    zero = to_default_float(0.0)
    return Powers(noise_power=zero, penalty_power=zero + 1.0, weight=zero + 0.5)
