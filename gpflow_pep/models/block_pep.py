"""BlockPEP: power expectation propagation with one site for each block of rows."""

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..engine import Prior, RowChunks
from ..ep import Iterate, Problem, Sites
from ..ep.blocks import BlockProblem, BlockRows, SitesOfBlocks, block_energy_derivatives
from ..likelihoods.observations import check_assigned
from ..runtime import Workers, assign_all, local_variable
from ..tilted.blocks import block_rule
from .parts import ParameterPart
from .pep import PEP, Surrogate
from .sparse import checked_power

# Points of the product rule that are computed together: an array of them has 8 MB.
_POINTS = 2**20


class BlockPEP(PEP):
    r"""
    Sparse power EP for any likelihood of one latent function, with a site for each block of rows.

    Source: Bui, Yan and Turner (2017), sec. 3.7 and 3.8; Bui and Titsias (2025), eqs. 29 to 41.

    .. math::

        q(u) \propto p(u) \prod_b t_b(u), \qquad
        t_b(u) = \exp(h_b^\top w_b - w_b^\top T_b w_b/2), \qquad w_b = K_{bu} K_{uu}^{-1} u

    The cavity of a block includes the covariance of its rows given u. The tilted distribution is
    the cavity times the product of p(y_i|f_i)^α over the rows i of the block; its moments are
    integrals over the block, without Monte Carlo.

    =====================================  ==========================================================
    blocks of one row                      :class:`PEP`, if the moments are resolved
    alpha = 0                              :class:`PEP` with alpha = 0, for any blocks
    a Gaussian likelihood                  :class:`PEPR` with these blocks
    alpha = 1, inducing_variable = X       EP for a full GP with joint updates of the rows of a block
    =====================================  ==========================================================

    Blocks have at most 4 rows. With a Gaussian likelihood they may have any size. A sweep evaluates
    22ᵈ points or more for a block of d rows; all blocks are padded to the size of the largest.
    Moments have errors of about 1e-8 for d up to 3, and 1e-6 for d = 4; errors grow as 1/α for small
    alpha. Cavities may be much wider than the likelihood. Sites whose moments the points do not
    resolve, as with precise contradictory observations of Student's t, are rejected. If that is so
    even under the prior, an error says so: use smaller blocks or :class:`PEP`. A likelihood that is
    not registered with `gpflow_pep.tilted.log_density` must be log-concave in f: of several modes
    the rule may miss some.

    Everything else is as in :class:`PEP`, except that there is no Wasserstein projection, no
    dataset, no minibatches, no :meth:`surrogate` and no leave-one-out densities.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, probit = (np.sin(X) > 0.0).astype(float), likelihoods.Probit()
    >>> model = BlockPEP((X, Y), gpflow.kernels.Matern52(), probit, X[::10], blocks=2)
    >>> probability, _ = model.predict_y(np.array([[1.5], [4.5]]))
    >>> (probability.numpy() > 0.5).ravel().tolist()
    [True, False]
    """

    _problem_type = BlockProblem

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        blocks: object,
        alpha: object = 0.5,
        scale: TensorData | Parameter = 1.0,
        tol: float | None = None,
        max_sweeps: int = 1000,
        damping: float = 1.0,
        mean_function: MeanFunction | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        See :class:`PEP` for the other arguments.

        :param data: inputs X [N, D] and observations Y [N, 1].
        :param likelihood: any `ScalarLikelihood` that is twice differentiable in f.
        :param blocks: consecutive blocks of that many rows | integer labels [N], blocks in
            ascending order of the labels | list of arrays of row indices.
        :param alpha: the power in [0, 1]: a number, or one for each block [B].
        :param scale: m of T-PEP, a positive number or one for each block [B], fixed or as a
            `gpflow.Parameter` to learn it.
        :raises ValueError: if blocks are not a partition of the rows, or too large, or if there are
            several latent functions.
        """
        if isinstance(data, tf.data.Dataset) or Workers.of_strategy().count > 1:
            raise ValueError(
                "data must be arrays: BlockPEP supports neither tf.data.Dataset nor several processes."
            )
        X, Y = validation.regression_data(data)
        rows, sizes = validation.partition(blocks, len(X))
        self._block_size = int(blocks) if isinstance(blocks, int | np.integer) else 0
        self._sizes = sizes
        super().__init__(
            (X, Y),
            kernel,
            likelihood,
            inducing_variable,
            alpha=alpha,
            scale=scale,
            tol=tol,
            max_sweeps=max_sweeps,
            damping=damping,
            mean_function=mean_function,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        size = max(sizes)
        self._blocks = tuple(
            local_variable(values, values.dtype, [None, size])
            for values in _padded(rows, sizes, size)
        )
        self._eager_sweeps = 0  # tracing takes as long as about 15 of them

    @override
    def _check(self) -> None:
        super()._check()
        block_rule(self.likelihood, max(self._sizes))
        if self.num_latent_gps != 1:
            raise ValueError(
                "data[1] (Y) must have one column for one latent function with blocks, got "
                f"{self.num_latent_gps} latent functions; use gpflow_pep.PEP."
            )

    @property
    @override
    def _num_sites(self) -> int:
        return len(self._sizes)

    @ParameterPart
    def scale(self, scale: object) -> Parameter:
        """m of the structured conditional m D, a parameter; numbers become a fixed one."""
        return validation.scale(scale, len(self._sizes))

    @override
    def _checked_alpha(self, alpha: object) -> AnyNDArray:
        return validation.power(alpha, len(self._sizes))

    @property
    @override
    def _num_padded_rows(self) -> int:
        return self._num_sites * self._sites.linear.shape[1]

    @override
    def _new_sites(self) -> Sites:
        B = self._num_sites
        d = max(self._sizes)
        return SitesOfBlocks([B, d, d], [B, d], default_float())

    @override
    def _rows_per_site(self) -> tf.Tensor:
        return tf.reduce_sum(self._blocks[1], axis=1)  # [B]

    @override
    def _keeps_projections(self) -> bool:
        return False

    @override
    def _rows(self, prior: Prior, indices: tf.Tensor | None = None) -> BlockRows:
        if self.projection != "kl":
            raise ValueError(f"projection must be 'kl' for BlockPEP, got {self.projection!r}.")
        numbers, mask = map(tf.convert_to_tensor, self._blocks)
        data = self._equally_many("blocks", tf.cast(tf.reduce_sum(mask), tf.int32))
        size = mask.shape[1]
        rule = block_rule(self.likelihood, size)
        per_chunk = min(self._chunk_size // size, _POINTS // rule.most_points)
        return BlockRows(
            RowChunks(max(1, per_chunk)).split((numbers, mask)),
            checked_power(self._alpha),
            prior,
            self.mean_function,
            num_latent_gps=1,
            data=check_assigned(self.likelihood, *data),
            rule=rule,
        )

    @override
    def _energy_derivatives(
        self, problem: Problem, tape: tf.GradientTape, iterate: Iterate
    ) -> list[tf.Tensor]:
        assert isinstance(problem, BlockProblem)
        return block_energy_derivatives(problem, tape, iterate)

    @override
    def _check_in_memory(self) -> None:
        raise ValueError("batch_size must be None: BlockPEP updates all sites at once.")

    @override
    def surrogate(self) -> Surrogate:
        """Raise an error: the noise of a block's rows is correlated."""
        raise NotImplementedError("BlockPEP has no surrogate(); use inducing_surrogate().")

    @inherit_check_shapes
    def loo_log_predictive_density(self) -> tf.Tensor:
        """Raise NotImplementedError: a site belongs to a whole block."""
        raise NotImplementedError("BlockPEP has no leave-one-out densities.")

    @override
    def run_identity(self) -> dict[str, object]:
        return super().run_identity() | {"blocks": self._block_size or self._blocks}

    @override
    def checked_new_data(self, data: object) -> tuple[AnyNDArray, AnyNDArray]:
        X, Y = super().checked_new_data(data)
        if len(X) != self._num_rows and (not self._block_size or self.scale.shape.rank):
            raise ValueError(
                f"data must keep {self._num_rows} rows, because blocks or scale were given for "
                f"them, got {len(X)}."
            )
        width = self._blocks[0].shape[1]
        if min(self._block_size, len(X)) > width:
            raise ValueError(
                f"data must have at most {width} rows, as the largest block of the first data, got "
                f"{len(X)}: construct a new model for blocks of {self._block_size}."
            )
        return X, Y

    @override
    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        if len(X) != self._num_rows:
            rows, self._sizes = validation.partition(self._block_size, len(X))
            size = self._blocks[0].shape[1]
            assign_all(self._blocks, _padded(rows, self._sizes, size))
        super().assign_data(X, Y)


def _padded(rows: AnyNDArray, sizes: AnyNDArray, width: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the row numbers of blocks [B, width], 0 for padding, and a mask, 1 for rows."""
    mask = np.arange(width) < sizes[:, None]
    numbers = np.zeros(mask.shape, np.int32)
    numbers[mask] = rows
    return numbers, mask.astype(default_float())
