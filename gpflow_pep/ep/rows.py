"""Rows of data as EP sees them: their prior, the part that u determines, cavities, and matching sites.

Whitened, u = L v and w = V'v, V = L^-1 Kuf, is the part of f that u determines: f = w + m(x) + N(0, d), with d the
variance of f given u (times the scale of T-PEP). A site is exp(h w - τ w²/2) (JMLR 18(104), sec. 3.8 and app. F). Its
precision τ may be negative, as long as all cavities and B = I + V diag(τ) V' are proper. C latent functions lead:
[C, ...].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.mean_functions import MeanFunction

from ..engine import InducingPosterior, Prior, conditional_variance_of_f, watched
from ..engine.chunks import ChunkedData
from ..maths.linalg import column_products
from ..runtime.distribution import ONE_PROCESS, Workers
from ..tilted import Cavity, Tilted

_SMALLEST_VARIANCE = 1e-30  # of a cavity, also if the prior's is 0: the likelihood is nearly constant over it


class PriorRows(NamedTuple):
    """The prior of n rows, whose C latent functions share one covariance or have one each."""

    Kuf: tf.Tensor  # Covariance of u with f, [M, n] or [C, M, n]
    Kff_diag: tf.Tensor  # Prior variances of f, [n] or [C, n]
    mean: tf.Tensor  # Mean function m(x), [C, n]


class Projected(NamedTuple):
    """n rows given u = L v: f = w + m(x) + N(0, d), w = V'v."""

    V: tf.Tensor  # L^-1 Kuf, [M, n] or [C, M, n]
    conditional_variance: tf.Tensor  # d, the variance of f given u times the scale of T-PEP, [n] or [C, n]
    mean: tf.Tensor  # m(x), [C, n]


class WatchedRows(NamedTuple):
    """The rows of a chunk given u, and how to differentiate them."""

    projected: Projected
    # From derivatives in the rows' prior to derivatives in the inputs of all rows and in variables.
    pull_back: Callable[[PriorRows], tuple[tf.Tensor, ...]]


@dataclass(frozen=True)
class LatentRows:
    """The rows of a model, chunk by chunk."""

    chunked: ChunkedData
    powers: tf.Tensor  # α of all rows [], or one for each row [N]
    prior: Prior
    mean_function: MeanFunction
    num_latent_gps: int
    all_workers: Workers = ONE_PROCESS  # that have the other rows

    def __call__(self, chunk: Any, *inputs: tf.Tensor) -> PriorRows:
        """Compute the prior of one chunk from `inputs`."""
        X, _ = chunk.data  # [n, D]
        return PriorRows(self.prior.Kuf(X, *inputs), self.prior.variances(X, *inputs), tf.transpose(self.mean(chunk)))

    def mean(self, chunk: Any) -> tf.Tensor:
        """Compute m(x) of one chunk's rows, [n, C]."""
        X, _ = chunk.data
        return tf.broadcast_to(self.mean_function(X), [tf.shape(X)[0], self.num_latent_gps])

    def alpha(self, chunk: Any) -> tf.Tensor:
        """Return the power of one chunk's rows, [] or [n]."""
        return self.powers if self.powers.shape.rank == 0 else chunk.take(self.powers)

    def sum_over_chunks(self, part: Callable[[Any], Any], zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Sum what `part` returns for each chunk of all workers, tensors of the shapes of `zero`."""
        return self.all_workers.sums(self.chunked.sum(part, zero))


def take_pair(values: tf.Tensor, chunk: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a chunk of `values` [N, 2, C] as two tensors [C, n]."""
    first, second = tf.unstack(tf.transpose(chunk.take(values), [1, 2, 0]))
    return first, second


def project(L: tf.Tensor, prior: PriorRows, scale: tf.Tensor) -> Projected:
    """Condition the rows on u, Kuu = L L'; the conditional variance is multiplied by `scale`."""
    V = tf.linalg.triangular_solve(L, prior.Kuf)
    return Projected(V, scale * conditional_variance_of_f(prior.Kff_diag, V, L), prior.mean)


class ProjectedRows:
    """The rows given u, chunk by chunk: kept in memory, or computed anew at each call."""

    def __init__(
        self,
        rows: LatentRows,
        L: tf.Tensor,
        scale: tf.Tensor,
        *,
        keep: bool,
        variables: Sequence[tf.Variable] | None = None,
    ):
        """
        :param keep: compute all chunks now and keep them, in memory that grows with N M.
        :param variables: :meth:`watched` rows will be differentiated in these; a single chunk is then computed
            once for both.
        """
        self._rows, self._L, self._scale, self._variables = rows, L, scale, variables or ()
        self._only: WatchedRows | None = None
        self._kept: Callable[[Any], tuple[tf.Tensor, ...]] | None = None
        only_chunk = rows.chunked.only_chunk
        if only_chunk is not None and variables is not None:
            self._only = self.watched(only_chunk)
        elif keep:
            self._kept = rows.chunked.keep(self._compute, L.dtype, len(Projected._fields))

    def __call__(self, chunk: Any) -> Projected:
        """Return the rows of one chunk."""
        if self._only is not None:
            return self._only.projected
        return self._compute(chunk) if self._kept is None else Projected(*self._kept(chunk))

    def watched(self, chunk: Any) -> WatchedRows:
        """Return the rows of one chunk, to be differentiated once, also in the variables."""
        if self._only is not None:
            return self._only
        inputs = self._rows.prior.inputs
        prior, pull_back = watched(self._rows, chunk, inputs, [*inputs, *self._variables])
        projected = project(self._L, prior, self._scale) if self._kept is None else self(chunk)
        return WatchedRows(projected, pull_back)

    def _compute(self, chunk: Any) -> Projected:
        return project(self._L, self._rows(chunk, *self._rows.prior.inputs), self._scale)


class Site(NamedTuple):
    """Natural parameters of the sites of n rows, [C, n] each."""

    precision: tf.Tensor  # τ
    linear: tf.Tensor  # h, precision times mean


class Marginals(NamedTuple):
    """Moments of w under q, [C, n] each."""

    mean: tf.Tensor  # μ
    variance: tf.Tensor  # s


class CavityOfW(NamedTuple):
    """Moments of w under q without the fraction α of a site, [C, n] each."""

    ratio: tf.Tensor  # r = 1 - α τ s, the marginal's variance over the cavity's; the cavity is proper if r > 0
    mean: tf.Tensor
    variance: tf.Tensor


def marginals(q: InducingPosterior, V: tf.Tensor) -> Marginals:
    """Compute mean and variance of w = V'v under q(v)."""
    T = tf.linalg.triangular_solve(q.LB, V)  # [C, M, n]
    return Marginals(project_mean(V, tf.squeeze(q.b, -1)), column_products(T, T))


def project_mean(V: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Compute V'b of every latent function, [C, n]; V is [M, n] if they share it or [C, M, n], b is [C, M]."""
    return tf.matmul(b, V) if V.shape.rank == 2 else tf.linalg.matvec(V, b, transpose_a=True)


def accumulate_linear(V: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Compute V values of every latent function, [C, M]; the values are [C, n]."""
    return tf.matmul(values, V, transpose_b=True) if V.shape.rank == 2 else tf.linalg.matvec(V, values)


def cavity_of_w(marginal: Marginals, site: Site, alpha: tf.Tensor) -> CavityOfW:
    """Compute N(w; (μ - α h s)/r, s/r); if r is not positive, return the marginal itself."""
    ratio = 1.0 - alpha * site.precision * marginal.variance
    improper = ratio <= 0.0
    safe = tf.where(improper, tf.ones_like(ratio), ratio)
    linear = tf.where(improper, tf.zeros_like(ratio), alpha * site.linear)
    return CavityOfW(ratio, (marginal.mean - linear * marginal.variance) / safe, marginal.variance / safe)


def cavity_of_f(w: CavityOfW, rows: Projected) -> Cavity:
    """Add the variance given u: N(f; m(x) + mean, d + variance), [C, n]."""
    variance = w.variance + rows.conditional_variance
    return Cavity(w.mean + rows.mean, tf.maximum(variance, _SMALLEST_VARIANCE))


def matching_site(w: CavityOfW, conditional_variance: tf.Tensor, tilted: Tilted) -> Site:
    """
    Return the site whose α-th power, times the cavity of w, has the moments that the tilted distribution gives w.

        τ = -d2 / (1 + α s d2),    h = (d1 - m d2) / (1 + α s d2),    s, m of the cavity of w.

    The denominator, the tilted variance of w over s, is (d + s ratio)/(d + s), without cancellation.
    """
    _, d1, d2, ratio = tilted
    total = tf.maximum(conditional_variance + w.variance, _SMALLEST_VARIANCE)
    factor = total / tf.maximum(conditional_variance + w.variance * ratio, _SMALLEST_VARIANCE * ratio)
    return Site(-d2 * factor, (d1 - w.mean * d2) * factor)
