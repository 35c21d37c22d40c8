"""PEPR: power expectation propagation for regression, from VFE over FITC and PITC to T-PEP."""

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import to_default_float
from typing_extensions import override

from .. import validation
from ..engine import BlockChunks, Powers, RowSums, SiteRule, SphericalBlockSites, scale_terms
from ..runtime import local_variable, no_autograph
from .collapsed import BoundsMixin
from .parts import ParameterPart, Power
from .sparse import checked_bound, checked_power

_OPTIMAL = "optimal"
_PER_BLOCK = "optimal per block"


class PEPR(BoundsMixin):
    r"""
    Collapsed power EP for GP regression: SGPR, FITC, PITC and the powers between them.

    Source: Bui, Yan and Turner (2017); blocks: sec. 3.7 with its sign corrected.

    .. math::

        & \log N(y; \mu, Q_{ff} + \alpha m \, \mathrm{blkdiag}(D) + \sigma^2 I)
        - \sum_b \frac{1-\alpha}{2\alpha} \log|I + \alpha m D_{bb}/\sigma^2| \\
        & + \frac{N}{2} \log m - \frac{N}{2\alpha} \log(1 + \alpha(m-1)), \qquad D = K_{ff} - Q_{ff}

    with the mean function μ and blocks b, whose α and `scale` m may differ; by default m = 1 and
    each row is a block.

    ======================================  =====================================================
    alpha = 0, scale = 1                    VFE (`gpflow.models.SGPR`), exactly, for any blocks
    alpha = 1                               FITC (`GPRFITC`); with blocks PITC; one block: exact
    scale = m, learned or not               T-PEP: p(f|u) with covariance m D (Bui and Titsias 2025, eq. 14)
    alpha = 0, scale = "optimal"            the spherical bound - N/2 log(1 + Σ d_n/(N σ²))
    alpha = 0, scale = "optimal per block"  the same in each block; without blocks :class:`TSGPR`
    ======================================  =====================================================

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], alpha=0.5, noise_variance=0.1)
    >>> mean, variance = model.predict_y(np.array([[1.0], [2.0]]))
    >>> bool(model.log_posterior_density() < model.upper_bound())
    True
    >>> model.alpha = 0.0
    >>> sgpr = gpflow.models.SGPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], noise_variance=0.1)
    >>> np.allclose(model.training_loss(), sgpr.training_loss())
    True
    """

    def __init__(
        self,
        data: RegressionData | tf.data.Dataset,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        alpha: object = 0.5,
        scale: TensorData | Parameter | str = 1.0,
        blocks: object = None,
        mean_function: MeanFunction | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
        mixed_precision: bool = False,
    ):
        """
        :param data: inputs X [N, D] and outputs Y [N, P]; outputs are independent and share kernel
            and noise. Or a finite ``tf.data.Dataset`` of batches (X, Y) in a fixed order, read once
            here and twice for each gradient.
        :param kernel: any single-output kernel, which all outputs share, or `SharedIndependent` of
            one.
        :param inducing_variable: Z [M, D], or any inducing variable with ``Kuu`` and ``Kuf`` for
            the kernel.
        :param alpha: the power, a number in [0, 1], or one per block [B].
        :param scale: m > 0 of the structured conditional, a number or one per block [B], fixed or
            as a :class:`gpflow.Parameter` (learned if trainable); one number if there are several
            workers. Or "optimal" or "optimal per block", the maximizer of the bound at alpha = 0.
        :param blocks: None: each row is a block | int: consecutive blocks of that many rows |
            integer labels [N], blocks in ascending order of the labels | list of arrays of row
            indices.
        :param mean_function: m(x), zero by default.
        :param noise_variance: initial variance of a Gaussian likelihood; 1 by default. Excludes
            `likelihood`.
        :param likelihood: a :class:`gpflow.likelihoods.Gaussian`, whose noise may depend on x.
        :param chunk_size: rows processed at a time; changes results by rounding only. None: 1024,
            more on a GPU. Must be None for a dataset, whose batches are the chunks.
        :param max_jitter: if Kuu cannot be factorized, raise its jitter tenfold, up to this value,
            and report it.
        :param mixed_precision: compute chunks of rows in single precision and add them up in double
            precision. A step takes about half the time. In tests, relative errors were at most 2e-6
            in the objective and 2e-3 in the gradient. If noise is small compared with the prior
            variance, Kuu is ill-conditioned or there are at most `chunk_size` rows, everything is
            computed in double precision. Must be False with blocks.
        """
        super().__init__(
            data,
            kernel,
            inducing_variable,
            mean_function=mean_function,
            noise_variance=noise_variance,
            likelihood=likelihood,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
            mixed_precision=mixed_precision,
        )
        self._use_blocks(blocks)
        self._optimal_scale = scale if isinstance(scale, str) else ""
        if self._optimal_scale not in ("", _OPTIMAL, _PER_BLOCK):
            raise ValueError(
                f"scale must be positive, {_OPTIMAL!r} or {_PER_BLOCK!r}, got {scale!r}."
            )
        self._alpha = local_variable(self._checked_alpha(alpha), default_float())
        self.scale = None if self._optimal_scale else scale

    alpha = Power()

    @ParameterPart
    def scale(self, scale: object) -> Parameter | None:
        """m of the structured conditional, a parameter; None if it is optimal."""
        if self._optimal_scale and scale is not None:
            raise ValueError(
                f"scale must stay {self._optimal_scale!r}, got {scale!r}: construct a new model."
            )
        if self._optimal_scale:
            return None
        count = int(self._local_num_blocks()) if self._workers.count == 1 else None
        return validation.scale(scale, count, self._unit())

    @override
    @inherit_check_shapes
    @no_autograph
    def elbo(self) -> tf.Tensor:
        """
        Return the objective at alpha = 0, a lower bound on the log evidence, in nats.

        :raises tf.errors.InvalidArgumentError: at other powers, at which the objective approximates
            the log evidence.
        """
        return checked_bound(self.maximum_log_likelihood_objective(), self._alpha)

    @override
    def _checked_alpha(self, alpha: object) -> AnyNDArray:
        powers = validation.power(alpha, int(self._local_num_blocks()), self._unit())
        if self._optimal_scale and powers.any():
            raise ValueError(f"alpha must be 0 with scale={self._optimal_scale!r}, got {alpha!r}.")
        return powers

    def _unit(self) -> str:
        return "block" if isinstance(self._chunks, BlockChunks) else "row"

    @override
    def check_block_sizes(self, sizes: AnyNDArray) -> None:
        for name, shape in {
            "alpha": self._alpha.shape,
            "scale": self.conditional_scale().shape,
        }.items():
            if shape.rank and len(sizes) != shape[0]:
                raise ValueError(
                    f"data must keep {shape[0]} blocks, because {name} was given per block, got "
                    f"{len(sizes)}."
                )

    @override
    def site_powers(self) -> Powers:
        if not self._optimal_scale:
            return Powers.of_pep(checked_power(self._alpha))
        alpha = checked_power(self._alpha, 0.0, f" with scale={self._optimal_scale!r}")
        powers = Powers.of_pep(alpha)
        if self._optimal_scale == _PER_BLOCK:
            return powers._replace(penalty_power=alpha + 1.0)
        return powers

    @override
    def conditional_scale(self) -> tf.Tensor:
        return (
            super().conditional_scale() if self._optimal_scale else tf.convert_to_tensor(self.scale)
        )

    @override
    def site_rule(self) -> SiteRule:
        of_blocks = isinstance(self._chunks, BlockChunks) and self._optimal_scale == _PER_BLOCK
        return SphericalBlockSites() if of_blocks else super().site_rule()

    @override
    def run_identity(self) -> dict[str, object]:
        return super().run_identity() | {"optimal_scale": self._optimal_scale}

    @override
    def evidence_penalty(self, row_sums: RowSums) -> tf.Tensor:
        if self._optimal_scale != _OPTIMAL:
            return row_sums.penalty
        N = to_default_float(self.num_data)
        return 0.5 * N * tf.math.log1p(2.0 * row_sums.penalty / N)

    @override
    def evidence_terms(self, powers: Powers) -> tf.Tensor:
        if self._optimal_scale:
            return super().evidence_terms(powers)
        scale = self.conditional_scale()
        sizes = 1.0
        if isinstance(self._chunks, BlockChunks):
            sizes = to_default_float(self._chunks.sizes)
        return scale_terms(powers.noise_power, scale, self.num_data, sizes, self._workers)
