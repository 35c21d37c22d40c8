"""The Gaussian algebra of sites: q(v), its marginals, cavities, and the site that matches a tilted distribution.

Whitened, u = L v and w = V' v is what u says of f: f = w + m(x) + (a Gaussian of variance d). A site is
exp(h w - τ w²/2); it may have a negative precision τ as long as every cavity and B = I + V diag(τ) V' are proper.
C latent functions lead, [C, ...]; MATH: JMLR 18(104), sec. 3.8 and app. F.
"""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import AnyNDArray

from ..linalg import column_products
from ..statistics import OldSite, factorise_B, precision_B
from .latent import Latent
from .tilted import Cavity, Tilted

_SMALLEST_VARIANCE = 1e-30  # of a cavity; where the prior's is 0 the likelihood is all but constant over it


class Site(NamedTuple):
    """Natural parameters of the sites of n rows, [C, n] each."""

    precision: tf.Tensor
    """τ"""
    linear: tf.Tensor
    """h, precision times mean."""


class Move(NamedTuple):
    """A change of all sites, and of the sums they make."""

    site: Site
    """[N, C] each"""
    A: tf.Tensor
    """[C, M, M]"""
    c: tf.Tensor
    """[C, M]"""

    def combined(self, weight: float, others: "list[Move]", weights: AnyNDArray) -> "Move":
        """weight self + Σ_i weights_i others_i."""
        scales = tf.constant([weight, *weights], self.A.dtype)

        def of(*parts: tf.Tensor) -> tf.Tensor:
            return tf.tensordot(scales, tf.stack(parts), 1)

        move: Move = tf.nest.map_structure(of, self, *others)
        return move

    def scaled(self, factor: float) -> "Move":
        """factor self."""
        move: Move = tf.nest.map_structure(lambda value: factor * value, self)
        return move

    def minus(self, other: "Move") -> "Move":
        """self - other."""
        move: Move = tf.nest.map_structure(tf.subtract, self, other)
        return move


class SiteSums(NamedTuple):
    """What q(v) is made of: Kuu = L L', what the sites of the rows add up to, and what there is beside them."""

    L: tf.Tensor
    """[M, M] or [C, M, M]"""
    A: tf.Tensor
    """V diag(τ) V', [C, M, M]"""
    c: tf.Tensor
    """V h, [C, M]"""
    old: OldSite
    """Of an old posterior, in streams: [C, M, M] and [C, M, 1]."""

    def posterior(self) -> "Posterior":
        """q(v)."""
        return Posterior.of(self.L, *self.total())

    def total(self) -> tuple[tf.Tensor, tf.Tensor]:
        """A and c of everything."""
        return self.A + self.old.A, self.c + self.old.c[..., 0]

    def moved(self, step: float | tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> "SiteSums":
        """The sums after a step along changes of A and c."""
        return self._replace(A=self.A + step * A, c=self.c + step * c)

    def extrapolated(self, factor: tf.Tensor) -> "SiteSums":
        """The sums if there were `factor` times as many sites like these; as they are where B would not be proper."""
        more = self.moved(factor - 1.0, self.A, self.c)
        proper = more.is_proper()
        return self._replace(A=tf.where(proper, more.A, self.A), c=tf.where(proper, more.c, self.c))

    def is_proper(self) -> tf.Tensor:
        """Whether B = I + A is positive definite, []."""
        return tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(precision_B(self.total()[0]))))


class Posterior(NamedTuple):
    """q(v) = N(b, B^-1)."""

    L: tf.Tensor
    """Cholesky factor of Kuu, [M, M] or [C, M, M]."""
    LB: tf.Tensor
    """Cholesky factor of B, [C, M, M]."""
    b: tf.Tensor
    """B^-1 c, [C, M]."""

    @classmethod
    def of(cls, L: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> "Posterior":
        """From the sums A = V diag(τ) V' [C, M, M] and c = V h [C, M]."""
        LB = factorise_B(A)
        return cls(L, LB, tf.linalg.cholesky_solve(LB, c[..., None])[..., 0])


class Marginals(NamedTuple):
    """Of n rows, under q."""

    V: tf.Tensor
    """L^-1 Kuf, [M, n] or [C, M, n]."""
    mean: tf.Tensor
    """of w, [C, n]"""
    variance: tf.Tensor
    """s of w, [C, n]"""
    rest: tf.Tensor
    """d, the variance of f given u, [n] or [C, n]."""


def marginals(q: Posterior, latent: Latent) -> Marginals:
    """Means and variances of w under q(v)."""
    V = tf.linalg.triangular_solve(q.L, latent.Kuf)
    T = tf.linalg.triangular_solve(q.LB, V)  # [C, M, n]
    d = tf.nn.relu(latent.Kff - column_products(V, V))
    return Marginals(V, along(V, q.b), column_products(T, T), d)


def along(V: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """V' weights of every latent function, [C, n]; V is [M, n] where they share it or [C, M, n], weights [C, M]."""
    return tf.matmul(weights, V) if V.shape.rank == 2 else tf.linalg.matvec(V, weights, transpose_a=True)


def across(V: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """V values of every latent function, [C, M]; the values are [C, n]."""
    return tf.matmul(values, V, transpose_b=True) if V.shape.rank == 2 else tf.linalg.matvec(V, values)


class CavityOfW(NamedTuple):
    """q(w) without the fraction α of a site, [C, n] each."""

    remaining: tf.Tensor
    """r = 1 - α τ s; the cavity is proper where it is positive."""
    mean: tf.Tensor
    variance: tf.Tensor


def cavity_of_w(marginal: Marginals, site: Site, alpha: tf.Tensor) -> CavityOfW:
    """N(w; (μ - α h s)/r, s/r); where r is not positive, the marginal itself in its place."""
    remaining = 1.0 - alpha * site.precision * marginal.variance
    improper = remaining <= 0.0
    safe = tf.where(improper, tf.ones_like(remaining), remaining)
    linear = tf.where(improper, tf.zeros_like(remaining), alpha * site.linear)
    return CavityOfW(remaining, (marginal.mean - linear * marginal.variance) / safe, marginal.variance / safe)


def proper(w: CavityOfW) -> CavityOfW:
    """
    The cavities themselves.

    :raises tf.errors.InvalidArgumentError: where one of them is not proper.
    """
    message = [
        "A cavity is not proper, so that the sites do not go with the hyperparameters; the smallest 1 - α τ s is",
        tf.reduce_min(w.remaining),
        "Try: update_sites(), a smaller alpha",
    ]
    checked = tf.debugging.Assert(tf.reduce_all(w.remaining > 0.0), message)
    with tf.control_dependencies([] if checked is None else [checked]):
        return CavityOfW(*(tf.identity(value) for value in w))


def cavity_of_f(w: CavityOfW, marginal: Marginals, latent: Latent) -> Cavity:
    """N(f; m(x) + mean, d + variance), [C, n]."""
    return Cavity(w.mean + latent.mean, tf.maximum(w.variance + marginal.rest, _SMALLEST_VARIANCE))


def matching_site(w: CavityOfW, rest: tf.Tensor, tilted: Tilted) -> Site:
    """
    The site that gives w the moments of the tilted distribution: the 1/α-th power of what its fraction becomes.

        τ = -d2 / (1 + α s d2),    h = (d1 - m d2) / (1 + α s d2),    s, m of the cavity of w.

    The denominator, the tilted variance of w over s, is (d + s ratio)/(d + s), without cancellation.
    """
    _, d1, d2, ratio = tilted
    total = tf.maximum(rest + w.variance, _SMALLEST_VARIANCE)
    scale = total / tf.maximum(rest + w.variance * ratio, _SMALLEST_VARIANCE * ratio)
    return Site(-d2 * scale, (d1 - w.mean * d2) * scale)
