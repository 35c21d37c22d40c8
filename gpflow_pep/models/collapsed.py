"""What the collapsed regression family shares: data, blocks, sums, evidence, posterior and predictions."""

from abc import abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, RegressionData, TensorData
from gpflow.config import default_float, default_jitter
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.models.util import InducingPointsLike
from gpflow.posteriors import PrecomputeCacheType

from .. import validation
from ..linalg import cholesky, cholesky_with_growing_jitter, finite
from ..posteriors import SitesPosterior
from ..statistics import (
    Blocks,
    BlockSites,
    Chunks,
    IndependentSites,
    Powers,
    RegressionRows,
    SingleRows,
    Sites,
    Sums,
    collect,
    inducing_covariance,
    log_gaussian,
    mahalanobis,
)

_ADVICE_KUU = (
    "a larger jitter (gpflow.config.set_default_jitter, or max_jitter= to raise it on demand), "
    "removing duplicate inducing points, shorter lengthscales"
)
_ADVICE_OBJECTIVE = "checking parameters, mean function and noise variance for NaN, infinite or overflowing values"


class CollapsedRegression(GPModel, InternalDataTrainingLossMixin):
    """
    GP regression with M inducing variables u whose posterior is available in closed form, given Gaussian sites.

        q(u) ∝ p(u) ∏_b N(y_b; m(X_b) + K_bu Kuu⁻¹ u, v_b).

    A model says which sites (`_powers`, `_scale`) and adds its terms to the evidence (`_penalty`).
    """

    # Data, blocks and alpha are variables, so that compiled functions see them change, but they are no parameters:
    # GPflow's and TensorFlow's listings leave them out.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"_data", "_chunks", "_alpha", *GPModel._TF_MODULE_IGNORED_PROPERTIES})

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        blocks: Any = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        X, Y = validation.regression_data(data)
        if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
            raise ValueError(f"kernel must be a gpflow Kernel shared by all outputs, got {type(kernel).__name__}.")
        if likelihood is None:
            likelihood = Gaussian(1.0 if noise_variance is None else validation.noise_variance(noise_variance))
        elif noise_variance is not None:
            raise ValueError("noise_variance and likelihood cannot both be given.")
        if not isinstance(likelihood, Gaussian):
            raise ValueError(f"likelihood must be a gpflow.likelihoods.Gaussian, got {type(likelihood).__name__}.")
        if num_latent_gps not in (None, Y.shape[1]):
            raise ValueError(f"num_latent_gps must be the number of columns of Y, {Y.shape[1]}, got {num_latent_gps}.")
        if not (mean_function is None or callable(mean_function)):
            raise ValueError(f"mean_function must be a gpflow function, got {mean_function!r}.")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=Y.shape[1])
        self.inducing_variable = validation.single_output_inducing_variable(inducing_variable, X.shape[1])
        self.max_jitter = None if max_jitter is None else validation.positive_number(max_jitter, "max_jitter")
        if self.max_jitter is not None and self.max_jitter <= default_jitter():
            raise ValueError(f"max_jitter must be above the default jitter, {default_jitter():g}, got {max_jitter!r}.")
        self._chunk_size = None if chunk_size is None else validation.positive_integer(chunk_size, "chunk_size")
        self._block_size = blocks if isinstance(blocks, int | np.integer) else None
        if blocks is None:
            self._chunks: SingleRows | Blocks = SingleRows(self._chunk_size)
        else:
            self._chunks = Blocks(*validation.partition(blocks, len(X)), self._chunk_size)
        self._data = tuple(
            tf.Variable(values, trainable=False, shape=[None, values.shape[1]], dtype=default_float())
            for values in (X, Y)
        )
        self._sites = self._make_sites()

    @property
    def data(self) -> RegressionData:
        """
        (X [N, D], Y [N, P]), two variables. Set the pair, ``model.data = (X, Y)``: it is checked and assigned to them,
        so that compiled functions see it. It may have another number of rows unless blocks were given row by row.
        """
        return self._data

    @data.setter
    def data(self, data: RegressionData) -> None:
        X, Y = validation.regression_data(data)
        for name, values, variable in zip(("X", "Y"), (X, Y), self._data, strict=True):
            if values.shape[1] != variable.shape[1]:
                raise ValueError(f"data ({name}) must keep {variable.shape[1]} columns, got {values.shape[1]}.")
        self._repartition(len(X))
        for values, variable in zip((X, Y), self._data, strict=True):
            variable.assign(values)

    @property
    def num_data(self) -> tf.Tensor:
        """N, []."""
        return tf.shape(self._data[0])[0]

    @property
    def num_blocks(self) -> int:
        """B."""
        return int(self._chunks.num_blocks(self.num_data))

    def _repartition(self, num_data: int) -> None:
        if isinstance(self._chunks, SingleRows):
            self._check_block_sizes(np.ones(num_data, dtype=int))
            return
        num_rows = int(self._chunks.num_rows)
        if num_data == num_rows:
            return
        if self._block_size is None:
            raise ValueError(f"data must keep {num_rows} rows, since blocks were given row by row, got {num_data}.")
        partition = validation.partition(self._block_size, num_data)
        self._check_block_sizes(partition.sizes)
        self._chunks.replan(*partition)

    def _check_block_sizes(self, sizes: AnyNDArray) -> None:
        """Refuses blocks, of these sizes [B], that the model's other settings do not go with."""

    @abstractmethod
    def _powers(self) -> Powers:
        """Which sites and which penalty."""

    def _scale(self) -> tf.Tensor:
        """m of the structured conditional M = m I, []."""
        return tf.ones([], default_float())

    @abstractmethod
    def _penalty(self, sums: Sums) -> tf.Tensor:
        """What is added to log N(y; m, Qff + v), per output, []."""

    def _make_sites(self) -> Sites:
        return BlockSites() if isinstance(self._chunks, Blocks) else IndependentSites()

    def _sums(self) -> Sums:
        return self._collect(self._chunks, self._sites, self._powers(), self._scale())

    def _collect(
        self, chunks: Chunks, sites: Sites, powers: Powers, scale: tf.Tensor, noise_factor: tf.Tensor | None = None
    ) -> Sums:
        rows = RegressionRows(
            self._checked_data(chunks),
            chunks,
            self.kernel,
            self.inducing_variable,
            self.likelihood,
            self.mean_function,
            noise_factor,
        )
        covariance = inducing_covariance(self.inducing_variable, self.kernel, default_jitter())
        covariance = _differentiable_in_parameters(covariance, self.kernel)
        return collect(rows, chunks, sites, powers, Kuu=covariance, scale=scale, factorise=self._factorise)

    def _checked_data(self, chunks: Chunks) -> RegressionData:
        """The data, unless one variable was assigned to without the other or the blocks."""
        num_rows = [tf.shape(values)[0] for values in self._data]
        if isinstance(chunks, Blocks):
            num_rows.append(chunks.num_rows)
        message = "X, Y and blocks have different numbers of rows: set model.data = (X, Y) instead"
        checks = [tf.debugging.assert_equal(count, num_rows[0], message) for count in num_rows[1:]]
        with tf.control_dependencies([check for check in checks if check is not None]):
            return tuple(tf.identity(values) for values in self._data)

    def _factorise(self, covariance: tf.Tensor) -> tf.Tensor:
        if self.max_jitter is None:
            return cholesky(covariance, name="Kuu", advice=_ADVICE_KUU)
        return cholesky_with_growing_jitter(
            covariance, jitter=default_jitter(), max_jitter=self.max_jitter, name="Kuu", advice=_ADVICE_KUU
        )

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        sums = self._sums()
        objective = log_gaussian(sums, self.num_data) + self.num_latent_gps * self._penalty(sums)
        return finite(objective, name="the objective", advice=_ADVICE_OBJECTIVE)

    @check_shapes("return: []")
    def upper_bound(self) -> tf.Tensor:
        """
        An upper bound of the exact log evidence, whatever the model's own sites (Titsias 2014).

            -P/2 log|2 pi (Qff + S)| - 1/2 r' (Qff + (1 + t) S)^-1 r,     t = tr(S^-1 (Kff - Qff))

        With constant noise this is that of `gpflow.models.SGPR` (there right for one output).

        :return: nats, summed over outputs.
        """
        half = tf.constant(0.5, default_float())
        zero = tf.zeros_like(half)
        vfe = Powers(noise=zero, penalty=zero, weight=half)
        rows = SingleRows(self._chunk_size)
        sums = self._collect(rows, IndependentSites(), vfe, 2.0 * half)
        slack = self._collect(rows, IndependentSites(), vfe, 2.0 * half, 1.0 + 2.0 * sums.penalty)
        bound = log_gaussian(sums, self.num_data) + 0.5 * (mahalanobis(sums) - mahalanobis(slack))
        return finite(bound, name="the upper bound", advice=_ADVICE_OBJECTIVE)

    @check_shapes(
        "return[0]: [M, P]",
        "return[1]: [M, M]",
    )
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and covariance of q(u), shared by the outputs, without the mean function: L B^-1 c and L B^-1 L'.

        An SVGP with this q(u) predicts the same.
        """
        L, LB, c = (part.value for part in self.posterior(PrecomputeCacheType.NOCACHE)._precompute())
        root = tf.linalg.triangular_solve(LB, tf.linalg.matrix_transpose(L))  # chol(B)^-1 L'
        return tf.matmul(root, c, transpose_a=True), tf.matmul(root, root, transpose_a=True)

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SitesPosterior:
        """
        The posterior with what predictions need computed once; it does not follow later changes of the model.

        :param precompute_cache: GPflow's "tensor" (default), "variable" (``update_cache()`` assigns new values without
            changing a compiled graph) or "nocache" (None), for ``fused_predict_f`` alone.
        :raises ValueError: for any other cache type.
        """
        cache = validation.cache_type(precompute_cache)
        return SitesPosterior(
            self.kernel, self.inducing_variable, self.mean_function, self._sums, precompute_cache=cache
        )

    @inherit_check_shapes
    def predict_f(self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False) -> MeanAndVariance:
        """
        Mean and (co)variance of the latent function at Xnew, computed from the data each time; hold on to
        :meth:`posterior` to predict more often.
        """
        Xnew = tf.cast(Xnew, default_float())
        return self.posterior(PrecomputeCacheType.NOCACHE).fused_predict_f(Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        samples = super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)
        return finite(samples, name="the posterior samples", advice="a larger jitter, or fewer or distinct Xnew")

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Checkpoints hold what was learned and chosen, not the data; an exported prediction needs the data too."""
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "checkpoint":
            children = {name: child for name, child in children.items() if name not in ("_data", "_chunks")}
        return children


def _differentiable_in_parameters(covariance: tf.Tensor, kernel: Kernel) -> tf.Tensor:
    """
    Kuu itself, whose derivative stops with an error where the kernel has a tensor in a parameter's place (as a frozen
    model has): such a tensor would get the derivative through Kuu, but not the one through the rows.
    """
    kernels = [part for part in (kernel, *kernel.submodules) if isinstance(part, Kernel)]
    tensors = [
        f"{name} of {type(part).__name__}"
        for part in kernels
        for name, value in vars(part).items()
        if isinstance(value, tf.Tensor) and value.dtype.is_floating
    ]
    if not tensors:
        return covariance
    message = (
        f"kernel: the derivative would be incomplete, since {', '.join(tensors)} is a tensor; "
        "make it a gpflow.Parameter (trainable or not)."
    )

    @tf.custom_gradient
    def guarded(covariance: tf.Tensor) -> Any:
        def gradient(bar: tf.Tensor) -> tf.Tensor:
            failure = tf.debugging.Assert(False, [message])  # when run: an export traces it without running it
            with tf.control_dependencies([failure]):
                return tf.identity(bar)

        return tf.identity(covariance), gradient

    return guarded(covariance)
