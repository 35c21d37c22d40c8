"""Marginals of q, cavities, and the site that matches a tilted distribution (JMLR 18(104), sec. 3.8 and app. F).

Whitened, u = L v and w = V'v is the part of f that u determines: f = w + m(x) + N(0, d), with d the variance of f
given u (times the scale of T-PEP). A site is exp(h w - τ w²/2). Its precision τ may be negative, as long as
all cavities and B = I + V diag(τ) V' are proper. C latent functions lead: [C, ...].
"""

from typing import NamedTuple

import tensorflow as tf

from ..engine import InducingPosterior
from ..maths.linalg import column_products
from ..tilted import Cavity, Tilted
from .rows import Projected

_SMALLEST_VARIANCE = 1e-30  # of a cavity, also if the prior's is 0: the likelihood is nearly constant over it


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
