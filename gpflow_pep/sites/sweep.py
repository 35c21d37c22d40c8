"""One look at all rows (or some) under a fixed q: what their sites should become, and what the energy is.

Cost O(n M²) a chunk of n rows; memory O(M² + chunk M) and the sites. See :mod:`.gaussian` for the algebra.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..linalg import symmetric_product
from ..statistics import CHUNKS_IN_FLIGHT, add_up, log1p_ratio
from .gaussian import (
    CavityOfW,
    Marginals,
    Move,
    Posterior,
    Site,
    across,
    cavity_of_f,
    cavity_of_w,
    marginals,
    matching_site,
)
from .latent import Latent, LatentRows
from .tilted import Tilted, TiltedRule


class Sweep(NamedTuple):
    """What a sweep found. Changes are those of an undamped update."""

    site: Site
    """Change of the sites, [C, n] each."""
    A: tf.Tensor
    """Change of V diag(τ) V', [C, M, M]."""
    c: tf.Tensor
    """Change of V h, [C, M]."""
    terms: tf.Tensor
    """The rows' part of the energy (:func:`row_terms`), []."""
    change: tf.Tensor
    """The largest change of a marginal that a site makes: |Δτ| s or |Δh - μ Δτ| sqrt(s), without unit, []."""
    remaining: tf.Tensor
    """The smallest r = 1 - α τ s of a cavity, []; where it is not positive a site is left as it is."""

    @property
    def move(self) -> Move:
        """The undamped update."""
        return Move(self.site, self.A, self.c)


class Sites(tf.Module):
    """The sites of all rows, [N, C] each: variables, which compiled functions see change."""

    def __init__(self, num_data: int, num_latent_gps: int, dtype: tf.DType):
        super().__init__()
        zeros = tf.zeros([num_data, num_latent_gps], dtype)
        self.precision, self.linear = (
            tf.Variable(zeros, trainable=False, shape=[None, num_latent_gps], dtype=dtype) for _ in range(2)
        )

    @property
    def num_data(self) -> int:
        """N."""
        return int(tf.shape(self.precision)[0])

    def reset(self, num_data: int) -> None:
        """Sites of `num_data` rows that say nothing: q is the prior."""
        for variable in (self.precision, self.linear):
            variable.assign(tf.zeros([num_data, variable.shape[1]], variable.dtype))

    def values(self) -> Site:
        """As they are now, [N, C] each."""
        return Site(tf.identity(self.precision), tf.identity(self.linear))

    def assign(self, values: Site) -> None:
        """Make them these, [N, C] each."""
        self.precision.assign(values.precision)
        self.linear.assign(values.linear)

    def take(self, rows: LatentRows, chunk: tf.Tensor) -> Site:
        """A chunk's sites."""
        return Site(*(tf.transpose(rows.chunks.take(value, chunk)) for value in (self.precision, self.linear)))

    def sums(self, rows: LatentRows, L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """A = V diag(τ) V' [C, M, M] and c = V h [C, M]."""

        def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            V = tf.linalg.triangular_solve(L, rows(chunk, *rows.inputs).Kuf)
            return sums_of(V, self.take(rows, chunk))

        return add_up(rows.num_chunks(), part, no_sums(L, rows.num_latent_gps))


def no_sums(L: tf.Tensor, num_latent_gps: int) -> tuple[tf.Tensor, tf.Tensor]:
    """A and c over no rows."""
    zero = tf.zeros_like(L) + tf.zeros([num_latent_gps, 1, 1], L.dtype)
    return zero, zero[..., 0]


def sums_of(V: tf.Tensor, site: Site) -> tuple[tf.Tensor, tf.Tensor]:
    """A and c of a chunk's sites, or of a change of them."""
    Vt = V * site.precision[:, None, :]  # [C, M, n]
    return symmetric_product(Vt, tf.broadcast_to(V, tf.shape(Vt))), across(V, site.linear)


def sweep(rows: LatentRows, rule: TiltedRule, sites: Sites, q: Posterior, alpha: tf.Tensor) -> Sweep:
    """One sweep over `rows`, all under the same q."""
    C, dtype = rows.num_latent_gps, q.L.dtype
    A, c = no_sums(q.L, C)
    scalar = tf.zeros([], dtype)
    found = tuple(tf.TensorArray(dtype, rows.num_chunks(), infer_shape=False) for _ in range(2))
    start = (tf.constant(0), A, c, scalar, scalar, tf.constant(np.inf, dtype), *found)

    def step(
        chunk: tf.Tensor, A: tf.Tensor, c: tf.Tensor, terms: tf.Tensor, change: tf.Tensor, remaining: tf.Tensor,
        *found: tf.TensorArray,
    ) -> tuple[Any, ...]:  # fmt: skip
        site = sites.take(rows, chunk)
        marginal, w, tilted = look(rows, rule, q, site, alpha, chunk, rows(chunk, *rows.inputs))
        target = matching_site(w, marginal.rest, tilted)
        # Where a cavity is not proper there is nothing to match.
        update = Site(*(tf.where(w.remaining > 0.0, a - b, 0.0 * b) for a, b in zip(target, site, strict=True)))
        added = sums_of(marginal.V, update)
        shift = tf.abs(update.linear - marginal.mean * update.precision) * tf.sqrt(marginal.variance)
        largest = tf.reduce_max(tf.maximum(tf.abs(update.precision) * marginal.variance, shift))
        return (
            chunk + 1,
            A + added[0],
            c + added[1],
            terms + row_terms(marginal, site, w, tilted, alpha),
            tf.maximum(change, largest),
            tf.minimum(remaining, tf.reduce_min(w.remaining)),
            *(array.write(chunk, tf.transpose(value)) for array, value in zip(found, update, strict=True)),
        )

    _, A, c, terms, change, remaining, *found = tf.while_loop(
        lambda chunk, *_: chunk < rows.num_chunks(), step, start, parallel_iterations=CHUNKS_IN_FLIGHT
    )
    update = Site(*(tf.ensure_shape(array.concat(), [None, C]) for array in found))
    return Sweep(update, A, c, terms, change, remaining)


def look(
    rows: LatentRows, rule: TiltedRule, q: Posterior, site: Site, alpha: tf.Tensor, chunk: tf.Tensor, latent: Latent
) -> tuple[Marginals, CavityOfW, Tilted]:
    """A chunk's marginals under q, cavities and tilted distributions."""
    marginal = marginals(q, latent)
    w = cavity_of_w(marginal, site, alpha)
    return marginal, w, rule.moments(cavity_of_f(w, marginal, latent), rows.observed(chunk), alpha)


def row_terms(marginal: Marginals, site: Site, w: CavityOfW, tilted: Tilted, alpha: tf.Tensor) -> tf.Tensor:
    """
    What the rows add to the energy (JMLR 18(104), eq. 38), summed over rows and latent functions, [].

        log Z / α - log(r)/2α + (τ μ² - 2 h μ + α h² s)/2r
    """
    (t, h), mu, s = site, marginal.mean, marginal.variance
    quadratic = (t * mu - 2.0 * h) * mu + alpha * tf.square(h) * s
    each = 0.5 * (quadratic / w.remaining - log1p_ratio(alpha, -t * s))
    return tf.reduce_sum(tilted.log_normaliser) + tf.reduce_sum(each)
