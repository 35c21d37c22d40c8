"""Sums -> predictions, as GPflow posterior objects."""

from collections.abc import Callable

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from .linalg import finite
from .statistics import Sums, covariance_with_rows, factorise_B, prior_covariance

ROWS_PER_CHUNK = 4096
_ADVICE = "checking Xnew, the kernel's parameters and the mean function for NaN, infinite or overflowing values"


class SitesPosterior(AbstractPosterior):
    """
    The posterior that Gaussian sites give: with u = L v, q(v) = N(B^-1 c, B^-1), B = I + A.

    Works for every model whose sums are at hand. The cache is (L, chol B, chol(B)^-1 c): outputs share B [M, M] and
    have a column of c [M, P] each, or each of C latent functions has its own B [C, M, M] and c [C, M, 1].
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        sums: Callable[[], Sums],
        *,
        precompute_cache: PrecomputeCacheType | None,
    ) -> None:
        """
        :param sums: computes the sums; called once per cache, or per prediction without one.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._sums = sums
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        sums = self._sums()
        LB = factorise_B(sums.A)
        values = (sums.L, LB, tf.linalg.triangular_solve(LB, sums.c))
        return tuple(PrecomputedValue(value, (False,) * len(value.shape)) for value in values)

    @inherit_check_shapes
    def _add_mean_function(self, Xnew: TensorType, mean: TensorType) -> tf.Tensor:
        return finite(super()._add_mean_function(Xnew, mean), name="the predictive mean", advice=_ADVICE)

    @inherit_check_shapes
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        cache = tuple(part.value for part in self._precompute())
        return self._conditional_with_precompute(cache, Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        Xnew = tf.convert_to_tensor(Xnew, dtype=default_float())
        if full_cov:
            mean, cov = _joint(self.X_data, self.kernel, cache, Xnew)
        else:
            flat = tf.reshape(Xnew, [-1, tf.shape(Xnew)[-1]])  # [batch N, D]
            mean, cov = _in_chunks(lambda X: _marginals(self.X_data, self.kernel, cache, X), flat)
            shape = tf.concat([tf.shape(Xnew)[:-1], [_num_outputs(cache)]], 0)
            mean, cov = tf.reshape(mean, shape), tf.reshape(cov, shape)
        mean = finite(mean, name="the predictive mean", advice=_ADVICE)
        cov = finite(cov, name="the predictive (co)variance", advice=_ADVICE)
        return mean, _across_outputs(cov, full_cov) if full_output_cov else cov


Cache = tuple[tf.Tensor, ...]


def _num_outputs(cache: Cache) -> int:
    """P or C."""
    _, LB, c = cache
    return int(c.shape[-1] if LB.shape.rank == 2 else c.shape[0])


def _whitened(
    inducing_variable: InducingVariables, kernel: Kernel, cache: Cache, X: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """T1 = L^-1 Ku* [M, n], T2 = chol(B)^-1 T1 [M, n] or [C, M, n], and the means T2' chol(B)^-1 c [n, P] or [n, C]."""
    L, LB, c = cache
    Kuf, inputs = covariance_with_rows(inducing_variable, kernel)
    T1 = tf.linalg.triangular_solve(L, Kuf(X, *inputs))
    T2 = tf.linalg.triangular_solve(LB, T1)
    mean = tf.matmul(T2, c, transpose_a=True)
    return T1, T2, mean if LB.shape.rank == 2 else tf.transpose(mean[..., 0])


def _marginals(inducing_variable: InducingVariables, kernel: Kernel, cache: Cache, X: tf.Tensor) -> MeanAndVariance:
    """k** - T1'T1 + T2'T2 on the diagonal: mean and variance [n, P] at X [n, D]. Rounding below 0 is cut off."""
    T1, T2, mean = _whitened(inducing_variable, kernel, cache, X)
    squares = tf.reduce_sum(tf.square(T2), axis=-2) - tf.reduce_sum(tf.square(T1), axis=-2)  # [n] or [C, n]
    variance = tf.nn.relu(kernel(X, full_cov=False) + squares)
    return mean, tf.reshape(tf.transpose(variance), [-1, 1 if T2.shape.rank == 2 else T2.shape[0]]) * tf.ones_like(mean)


def _joint(inducing_variable: InducingVariables, kernel: Kernel, cache: Cache, X: tf.Tensor) -> MeanAndVariance:
    """k** - T1'T1 + T2'T2: mean [..., N, P] and covariance [..., P, N, N] at X [..., N, D]."""
    T1, T2, mean = _whitened(inducing_variable, kernel, cache, tf.reshape(X, [-1, tf.shape(X)[-1]]))
    batch, N = tf.shape(X)[:-2], tf.shape(X)[-2]
    R1 = tf.reshape(tf.transpose(T1), tf.concat([batch, [1, N, T1.shape[0]]], 0))  # [..., 1, N, M]
    T2 = tf.reshape(T2, [-1, T1.shape[0], tf.shape(T1)[1]])  # [1 or C, M, batch N]
    R2 = tf.reshape(tf.transpose(T2, [2, 0, 1]), tf.concat([batch, [N, tf.shape(T2)[0], T1.shape[0]]], 0))
    covariance = prior_covariance(inducing_variable, kernel, X)[..., None, :, :] - tf.matmul(R1, R1, transpose_b=True)
    R2 = tf.experimental.numpy.swapaxes(R2, -2, -3)  # [..., 1 or C, N, M]
    covariance += tf.matmul(R2, R2, transpose_b=True)
    outputs = tf.ones([_num_outputs(cache), 1, 1], X.dtype)
    return tf.reshape(mean, tf.concat([batch, [N, _num_outputs(cache)]], 0)), covariance * outputs


def _in_chunks(predict: Callable[[tf.Tensor], MeanAndVariance], X: tf.Tensor) -> MeanAndVariance:
    """Predictions at X [n, D], some rows at a time: memory beyond the result does not grow with n."""
    rows = tf.shape(X)[0]
    count = tf.maximum(1, -(-rows // ROWS_PER_CHUNK))
    means, variances = (tf.TensorArray(X.dtype, size=count, infer_shape=False) for _ in range(2))

    def step(chunk: tf.Tensor, means: tf.TensorArray, variances: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        mean, variance = predict(X[chunk * ROWS_PER_CHUNK : (chunk + 1) * ROWS_PER_CHUNK])
        return chunk + 1, means.write(chunk, mean), variances.write(chunk, variance)

    _, means, variances = tf.while_loop(
        lambda chunk, *_: chunk < count, step, (tf.constant(0), means, variances), parallel_iterations=2
    )
    return means.concat(), variances.concat()


def _across_outputs(cov: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Outputs are independent: [..., P, N, N] -> [..., N, P, N, P], [..., N, P] -> [..., N, P, P]."""
    if not full_cov:
        return tf.linalg.diag(cov)
    return tf.einsum("...pnm,pq->...npmq", cov, tf.eye(tf.shape(cov)[-3], dtype=cov.dtype))
