"""
WhitenedPosterior, the GPflow posterior of all models: predictions from q(u) in whitened
coordinates.
"""

from collections.abc import Callable

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from ..engine import (
    Prior,
    checked_indices,
    conditional_variance_of_f,
    flat_rows,
    mean_at,
    split_rows,
    with_checked_variance,
)
from ..maths.linalg import column_products, finite
from ..runtime import Tensors, no_autograph
from ..validation import inputs, real_numbers

# Predicted together: memory beyond the result does not grow with the number of rows.
ROWS_PER_CHUNK = 4096
_ADVICE = (
    "checking Xnew, the kernel's parameters and the mean function for NaN, infinite or overflowing "
    "values"
)


class WhitenedPosterior(AbstractPosterior):
    """
    Predictions from a Gaussian q(v), u = L v, Kuu = L L'.

    The cache is (L, root, b):

    - L: Cholesky factor of Kuu, [M, M], or [C, M, M] if each latent function has its own.
    - root: LB with q(v) = N(b, (LB LB')^-1), or R with q(v) = N(b, R R') if not `by_precision`; [M,
      M] or [C, M, M].
    - b: the mean, [M, P] if outputs share the root, or [C, M, 1].
    """

    mean_function: MeanFunction
    rows_per_chunk: int | None = ROWS_PER_CHUNK  # None: one chunk, without a loop

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        values: Callable[[], Tensors],
        *,
        by_precision: bool = True,
        precompute_cache: PrecomputeCacheType | None,
    ) -> None:
        """
        :param values: computes the cache; called once per cache, or per prediction without one.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._values, self._by_precision = values, by_precision
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        # Of L, root and b: the number of inducing points may change.
        ends = (True, True), (True, True), (True, False)
        return tuple(
            PrecomputedValue(value, (False,) * (value.shape.rank - 2) + end)
            for value, end in zip(self._values(), ends, strict=True)
        )

    @inherit_check_shapes
    @no_autograph
    def _add_mean_function(self, Xnew: TensorType, mean: TensorType) -> tf.Tensor:
        Xnew = real_numbers(Xnew, "Xnew")
        num_outputs = mean.shape[-1] or tf.shape(mean)[-1]
        prior_mean = mean_at(self.mean_function, flat_rows(Xnew), num_outputs)
        mean += tf.reshape(prior_mean, tf.shape(mean))
        return finite(mean, name="the predictive mean", advice=_ADVICE)

    @inherit_check_shapes
    @no_autograph
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        # Checked before the cache is computed.
        Xnew = checked_indices(self.kernel, inputs(Xnew, "Xnew"), "Xnew")
        cache = tuple(part.value for part in self._precompute())
        return self._conditional_with_precompute(cache, Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    @no_autograph
    def _conditional_with_precompute(
        self,
        cache: Tensors,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        Xnew = checked_indices(self.kernel, inputs(Xnew, "Xnew"), "Xnew")
        if full_cov:
            mean, cov = self._joint(cache, Xnew)
        else:
            flat = flat_rows(Xnew)  # [batch N, D]
            mean, cov = split_rows([flat], self.rows_per_chunk).concatenate(
                lambda chunk: self._marginals(cache, *chunk.data), flat.dtype, [[None, None]] * 2
            )
            *_, b = cache
            shape = tf.concat(
                [tf.shape(Xnew)[:-1], [b.shape[-1] if b.shape.rank == 2 else b.shape[0]]], 0
            )
            mean, cov = tf.reshape(mean, shape), tf.reshape(cov, shape)
        mean = finite(mean, name="the predictive mean", advice=_ADVICE)
        cov = finite(cov, name="the predictive (co)variance", advice=_ADVICE)
        if not full_output_cov:
            return mean, cov
        if not full_cov:
            # Outputs are independent: [..., N, P, P], or [..., N, P, N, P].
            return mean, tf.linalg.diag(cov)
        return mean, tf.einsum(
            "...pnm,pq->...npmq", cov, tf.eye(tf.shape(cov)[-3], dtype=cov.dtype)
        )

    def _projected(self, cache: Tensors, prior: Prior, X: tf.Tensor) -> Tensors:
        """
        T1 = L^-1 Ku*, a root T2 with T1' Cov[v] T1 = T2'T2, [M, n] or [C, M, n] each, and T1' E[v],
        [n, P or C].
        """
        L, root, b = cache
        T1 = tf.linalg.triangular_solve(L, prior.Kuf(X))
        T2 = (
            tf.linalg.triangular_solve(root, T1)
            if self._by_precision
            else tf.matmul(root, T1, transpose_a=True)
        )
        mean = tf.matmul(T1, b, transpose_a=True)  # [n, P] or [C, n, 1]
        return T1, T2, mean if mean.shape.rank == 2 else tf.transpose(mean[..., 0])

    def _marginals(self, cache: Tensors, X: tf.Tensor) -> MeanAndVariance:
        """
        Mean and variance k** - T1'T1 + T2'T2 [n, P] at X [n, D]. Negative rounding errors are
        clipped at 0.
        """
        prior = Prior(self.X_data, self.kernel)
        T1, T2, mean = self._projected(cache, prior, X)
        conditional_variance = conditional_variance_of_f(prior.variances(X), T1, cache[0])
        variance = conditional_variance + column_products(T2, T2)  # [n] or [C, n]
        return mean, tf.transpose(
            variance[None] if variance.shape.rank == 1 else variance
        ) * tf.ones_like(mean)

    def _joint(self, cache: Tensors, X: tf.Tensor) -> MeanAndVariance:
        """k** - T1'T1 + T2'T2: mean [..., N, P] and covariance [..., P, N, N] at X [..., N, D]."""
        prior = Prior(self.X_data, self.kernel)
        T1, T2, mean = self._projected(cache, prior, flat_rows(X))
        batch, N = tf.shape(X)[:-2], tf.shape(X)[-2]

        def gram(T: tf.Tensor) -> tf.Tensor:
            """T'T for each batch element, [..., 1 or C, N, N]."""
            M = tf.shape(T)[-2]
            T = tf.reshape(T, [-1, M, tf.shape(T)[-1]])  # [1 or C, M, batch N]
            R = tf.reshape(
                tf.transpose(T, [2, 0, 1]), tf.concat([batch, [N, tf.shape(T)[0], M]], 0)
            )
            R = tf.experimental.numpy.swapaxes(R, -2, -3)  # [..., 1 or C, N, M]
            return tf.matmul(R, R, transpose_b=True)

        Kff = prior.Kff(X)
        Kff = Kff[..., None, :, :] if T1.shape.rank == 2 else Kff
        D, variances = Kff - gram(T1), tf.linalg.diag_part(Kff)
        D = with_checked_variance(D, tf.linalg.diag_part(D), variances, cache[0])
        covariance = (D + gram(T2)) * tf.ones([mean.shape[-1], 1, 1], X.dtype)
        return tf.reshape(mean, tf.concat([batch, [N, mean.shape[-1]]], 0)), covariance
