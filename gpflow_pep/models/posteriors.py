"""GPflow posterior objects: predictions from the sums over sites, or from an explicit q(v)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from ..engine import Prior, SingleRows, SiteSums, with_checked_variance
from ..maths.linalg import finite
from ..runtime.tracing import no_autograph
from ..validation import inputs

ROWS_PER_CHUNK = 4096
_ADVICE = "checking Xnew, the kernel's parameters and the mean function for NaN, infinite or overflowing values"


class Whitened(NamedTuple):
    """Terms of the marginals at n inputs, for outputs that share the covariance of q(u) or C with one each."""

    T1: tf.Tensor  # L^-1 Ku*, [M, n] or [C, M, n]
    T2: tf.Tensor  # R' T1 with R R' the covariance of q(v), [M, n] or [C, M, n]
    mean: tf.Tensor  # T1' times the mean of q(v), [n, P] or [n, C]


class WhitenedPosterior(AbstractPosterior):
    """Predictions from a Gaussian q(v), u = L v; subclasses define what is cached and what is computed for each X."""

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        values: Callable[[], tuple[tf.Tensor, ...]],
        *,
        precompute_cache: PrecomputeCacheType | None,
    ) -> None:
        """
        :param values: computes what is cached, L first; called once per cache, or per prediction without one.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._values = values
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @abstractmethod
    def _whitened(self, T1: tf.Tensor, *values: tf.Tensor) -> Whitened:
        """At the inputs of T1, from what is cached besides L."""

    @abstractmethod
    def _num_outputs(self, *values: tf.Tensor) -> int:
        """P or C, from what is cached besides L."""

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(PrecomputedValue(value, (False,) * len(value.shape)) for value in self._values())

    @inherit_check_shapes
    @no_autograph
    def _add_mean_function(self, Xnew: TensorType, mean: TensorType) -> tf.Tensor:
        Xnew = tf.convert_to_tensor(Xnew, dtype=default_float())
        return finite(super()._add_mean_function(Xnew, mean), name="the predictive mean", advice=_ADVICE)

    @inherit_check_shapes
    @no_autograph
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        Xnew = inputs(Xnew, "Xnew")  # before the cache is computed
        cache = tuple(part.value for part in self._precompute())
        return self._conditional(cache, Xnew, full_cov, full_output_cov)

    @inherit_check_shapes
    @no_autograph
    def _conditional_with_precompute(
        self, cache: tuple[tf.Tensor, ...], Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self._conditional(cache, inputs(Xnew, "Xnew"), full_cov, full_output_cov)

    def _conditional(
        self, cache: tuple[tf.Tensor, ...], Xnew: tf.Tensor, full_cov: bool, full_output_cov: bool
    ) -> MeanAndVariance:
        if full_cov:
            mean, cov = self._joint(cache, Xnew)
        else:
            flat = tf.reshape(Xnew, [-1, tf.shape(Xnew)[-1]])  # [batch N, D]
            mean, cov = _in_chunks(lambda X: self._marginals(cache, X), flat)
            shape = tf.concat([tf.shape(Xnew)[:-1], [self._num_outputs(*cache[1:])]], 0)
            mean, cov = tf.reshape(mean, shape), tf.reshape(cov, shape)
        mean = finite(mean, name="the predictive mean", advice=_ADVICE)
        cov = finite(cov, name="the predictive (co)variance", advice=_ADVICE)
        return mean, _across_outputs(cov, full_cov) if full_output_cov else cov

    def _at(self, cache: tuple[tf.Tensor, ...], prior: Prior, X: tf.Tensor) -> Whitened:
        L, *values = cache
        return self._whitened(tf.linalg.triangular_solve(L, prior.Kuf(X, *prior.inputs)), *values)

    def _marginals(self, cache: tuple[tf.Tensor, ...], X: tf.Tensor) -> MeanAndVariance:
        """k** - T1'T1 + T2'T2 on the diagonal: mean and variance [n, P] at X [n, D]. Negative rounding becomes 0."""
        prior = Prior(self.X_data, self.kernel)
        T1, T2, mean = self._at(cache, prior, X)
        Kff = prior.variances(X, *prior.inputs)  # [n] or [C, n]
        conditional_variance = Kff - tf.reduce_sum(tf.square(T1), axis=-2)
        variance = tf.nn.relu(
            with_checked_variance(conditional_variance, conditional_variance, Kff, cache[0])
            + tf.reduce_sum(tf.square(T2), axis=-2)
        )
        if variance.shape.rank == 1:
            variance = variance[None]
        return mean, tf.transpose(variance) * tf.ones_like(mean)

    def _joint(self, cache: tuple[tf.Tensor, ...], X: tf.Tensor) -> MeanAndVariance:
        """k** - T1'T1 + T2'T2: mean [..., N, P] and covariance [..., P, N, N] at X [..., N, D]."""
        prior = Prior(self.X_data, self.kernel)
        T1, T2, mean = self._at(cache, prior, tf.reshape(X, [-1, tf.shape(X)[-1]]))
        batch, N = tf.shape(X)[:-2], tf.shape(X)[-2]

        def gram(T: tf.Tensor) -> tf.Tensor:
            """T'T for each of the batch, [..., 1 or C, N, N]."""
            T = tf.reshape(T, [-1, *T.shape[-2:-1], tf.shape(T)[-1]])  # [1 or C, M, batch N]
            R = tf.reshape(tf.transpose(T, [2, 0, 1]), tf.concat([batch, [N, tf.shape(T)[0], T.shape[1]]], 0))
            R = tf.experimental.numpy.swapaxes(R, -2, -3)  # [..., 1 or C, N, M]
            return tf.matmul(R, R, transpose_b=True)

        Kff = prior.Kff(X, *prior.inputs)
        Kff = Kff[..., None, :, :] if T1.shape.rank == 2 else Kff
        num_outputs = self._num_outputs(*cache[1:])
        conditional_variance = Kff - gram(T1)
        conditional_variance = with_checked_variance(
            conditional_variance, tf.linalg.diag_part(conditional_variance), tf.linalg.diag_part(Kff), cache[0]
        )
        covariance = (conditional_variance + gram(T2)) * tf.ones([num_outputs, 1, 1], X.dtype)
        return tf.reshape(mean, tf.concat([batch, [N, num_outputs]], 0)), covariance


class SitesPosterior(WhitenedPosterior):
    """
    The posterior given by Gaussian sites: q(v) = N(B^-1 c, B^-1), B = I + A.

    Works for every model with sums over sites. The cache is `gpflow_pep.engine.InducingPosterior`: outputs share
    B [M, M] and have a column of c [M, P] each, or each of C latent functions has its own B [C, M, M] and c [C, M, 1],
    and may have a Kuu of its own, L [C, M, M].
    """

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        sums: Callable[[], SiteSums],
        *,
        precompute_cache: PrecomputeCacheType | None,
    ) -> "SitesPosterior":
        """
        :param sums: computes the sums; called once per cache, or per prediction without one.
        """
        return cls(
            kernel, inducing_variable, mean_function, lambda: sums().posterior(), precompute_cache=precompute_cache
        )

    def _num_outputs(self, *values: tf.Tensor) -> int:
        LB, b = values
        return int(b.shape[-1] if LB.shape.rank == 2 else b.shape[0])

    def _whitened(self, T1: tf.Tensor, *values: tf.Tensor) -> Whitened:
        LB, b = values
        mean = tf.matmul(T1, b, transpose_a=True)
        T2 = tf.linalg.triangular_solve(LB, T1)
        return Whitened(T1, T2, mean if LB.shape.rank == 2 else tf.transpose(mean[..., 0]))


class GaussianPosterior(WhitenedPosterior):
    """q(v) = N(m, R R') with a mean [M, C] and a root [C, M, M] that are given; the cache is (L, m, R)."""

    def _num_outputs(self, *values: tf.Tensor) -> int:
        m, _ = values
        return int(m.shape[1])

    def _whitened(self, T1: tf.Tensor, *values: tf.Tensor) -> Whitened:
        m, R = values
        T2 = tf.matmul(R, T1, transpose_a=True)  # [C, M, n]
        if T1.shape.rank == 2:
            return Whitened(T1, T2, tf.matmul(T1, m, transpose_a=True))
        return Whitened(T1, T2, tf.transpose(tf.linalg.matvec(T1, tf.transpose(m), transpose_a=True)))


def _in_chunks(predict: Callable[[tf.Tensor], MeanAndVariance], X: tf.Tensor) -> MeanAndVariance:
    """Predictions at X [n, D], some rows at a time: memory beyond the result does not grow with n."""
    chunks = SingleRows(ROWS_PER_CHUNK).split([X])
    mean, variance = chunks.concatenate(lambda chunk: predict(chunk.data[0]), X.dtype, [None, None])
    return mean, variance


def _across_outputs(cov: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Outputs are independent: [..., P, N, N] -> [..., N, P, N, P], [..., N, P] -> [..., N, P, P]."""
    if not full_cov:
        return tf.linalg.diag(cov)
    return tf.einsum("...pnm,pq->...npmq", cov, tf.eye(tf.shape(cov)[-3], dtype=cov.dtype))
