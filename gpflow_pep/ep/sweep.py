"""One sweep over all rows under a fixed q: updates of the sites, and both parts of the energy.

Cost O(n M²) a chunk of n rows. See :mod:`.cavity` for the algebra of one row.
"""

from typing import NamedTuple

import tensorflow as tf

from ..engine import InducingPosterior, log1p_ratio
from ..maths.linalg import symmetric_product
from ..tilted import Tilted, TiltedRule
from .cavity import CavityOfW, Marginals, Site, accumulate_linear, cavity_of_f, cavity_of_w, marginals, matching_site
from .rows import LatentRows, ProjectedRows


class Sweep(NamedTuple):
    """The result of a sweep over N rows of C latent functions."""

    sites: tf.Tensor
    """The sites of the sweep, [N, 2, C]: those given, after the shift."""
    update: tf.Tensor
    """The undamped change of the sites' natural parameters τ and h, [N, 2, C]."""
    tilted_derivatives: tf.Tensor
    """d1 and d2 of the tilted distributions, [N, 2, C]."""
    mean: tf.Tensor
    """μ of the marginals of w, [N, C]."""
    variance: tf.Tensor
    """s of the marginals of w, [N, C]."""
    terms: tf.Tensor
    """The rows' part of the energy (:func:`row_terms`), []."""
    cavity_ratio: tf.Tensor
    """The smallest r = 1 - α τ s of a cavity, []; where it is not positive a site is left as it is."""


def normalized(change: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    Express changes of the sites [..., N, 2, C] as those of their own marginals N(w; μ, s), without unit.

    They are Δτ s and (Δh - μ Δτ) sqrt(s): of the variance, as a fraction, and of the mean, in standard deviations.
    """
    precision, linear = tf.unstack(change, axis=-2)
    return tf.stack([precision * variance, (linear - mean * precision) * tf.sqrt(variance)], axis=-2)


def sum_sites(
    rows: LatentRows, projected: ProjectedRows, sites: tf.Tensor, L: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute A = V diag(τ) V' [C, M, M] and c = V h [C, M, 1] of all sites [N, 2, C]."""

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        V, (precision, linear) = projected(chunk).V, rows.take_pair(sites, chunk)
        Vt = V * tf.expand_dims(precision, 1)  # [C, M, n]
        C = rows.num_latent_gps
        each = V if V.shape.rank == 3 else tf.expand_dims(V, 0) if C == 1 else tf.broadcast_to(V, tf.shape(Vt))
        return symmetric_product(Vt, each), tf.expand_dims(accumulate_linear(V, linear), -1)

    zero = tf.zeros_like(L) + tf.zeros([rows.num_latent_gps, 1, 1], L.dtype)
    A, c = rows.sum_over_chunks(part, (zero, zero[..., :1]))
    return A, c


def sweep(
    rows: LatentRows,
    projected: ProjectedRows,
    rule: TiltedRule,
    sites: tf.Tensor,
    q: InducingPosterior,
    negligible: tf.Tensor | float = 0.0,
    shift: tf.Tensor | None = None,
) -> Sweep:
    """
    Sweep over all rows, all under the same q.

    :param sites: [N, 2, C].
    :param shift: e [M]: the means of all sites of a row, h/τ, are first shifted by V'e.
    :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`.
    """

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        here, site, alpha = projected(chunk), Site(*rows.take_pair(sites, chunk)), rows.alpha(chunk)
        if shift is not None:
            shifted = site.linear + site.precision * tf.linalg.matvec(here.V, shift, transpose_a=True)
            site = site._replace(linear=shifted)
        marginal = marginals(q, here.V)
        w = cavity_of_w(marginal, site, alpha)
        tilted = rule.moments(cavity_of_f(w, here), rows.observations(chunk), alpha, negligible)
        target = matching_site(w, here.conditional_variance, tilted)
        # Where a cavity is not proper there is nothing to match.
        proper = w.ratio > 0.0
        update = (tf.where(proper, new - old, tf.zeros_like(old)) for new, old in zip(target, site, strict=True))
        by_row = tf.stack([*update, tilted.d1, tilted.d2, *marginal, w.ratio, site.linear])  # [8, C, n]
        terms = row_terms(marginal, site, w, tilted, alpha)
        return tf.transpose(by_row, [2, 0, 1]), tf.expand_dims(terms, 0)

    shapes = ([None, 8, rows.num_latent_gps], [None])
    by_row, terms = rows.concatenate(part, q.L.dtype, shapes)
    mean, variance, ratio, linear = tf.unstack(by_row[:, 4:], axis=1)
    sites = sites if shift is None else tf.stack([sites[:, 0], linear], axis=1)
    over = rows.all_workers
    row_terms_of_all, least = over.sum(tf.reduce_sum(terms)), -over.largest(-tf.reduce_min(ratio))
    return Sweep(sites, by_row[:, :2], by_row[:, 2:4], mean, variance, row_terms_of_all, least)


def row_terms(marginal: Marginals, site: Site, w: CavityOfW, tilted: Tilted, alpha: tf.Tensor) -> tf.Tensor:
    """
    Compute the rows' part of the energy (JMLR 18(104), eq. 38), summed over rows and latent functions, [].

        log Z / α - log(r)/2α + (τ μ² - 2 h μ + α h² s)/2r
    """
    (t, h), (mu, s) = site, marginal
    quadratic = (t * mu - 2.0 * h) * mu + alpha * tf.square(h) * s
    of_sites = 0.5 * (quadratic / w.ratio - log1p_ratio(alpha, -t * s))
    return tf.reduce_sum(tilted.log_partition) + tf.reduce_sum(of_sites)


def log_integral(q: InducingPosterior, c: tf.Tensor) -> tf.Tensor:
    """Compute the other part, the integral over v: c'B^-1 c/2 - log|B|/2, summed over latent functions, []."""
    return 0.5 * tf.reduce_sum(c * q.b) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(q.LB)))
