"""Updates of some rows' sites at a time, and derivatives of the energy estimated from a minibatch.

Hyperparameters may change before the sites have converged (JMLR 18(104), sec. 3.9). Where the sites match their tilted
distributions the derivatives are a sum over rows (see :mod:`.energy`), which a minibatch estimates without bias.
"""

import tensorflow as tf

from ..engine import InducingPosterior, OldPosteriorSite, SiteSums
from ..maths.linalg import inverse_of_product
from ..tilted import TiltedRule, log_partition
from .cavity import Site, cavity_of_f, cavity_of_w, marginals
from .rows import LatentRows, Projected, ProjectedRows
from .sites import Sites
from .sweep import sum_sites, sweep

_SMALLEST_FRACTION = 1e-4


def update_rows(
    rows: LatentRows,
    indices: tf.Tensor,
    rule: TiltedRule,
    sites: Sites,
    sums: SiteSums,
    old: OldPosteriorSite | None,
    scale: tf.Tensor,
    damping: tf.Tensor,
) -> SiteSums:
    """
    Update the sites of some rows by the fraction `damping`, and the sums with them.

    Sites with an improper cavity, and rows whose update is not finite, are not updated. The fraction is halved until B
    is positive definite, or set to 0.

    :param rows: the rows.
    :param indices: their numbers, [n].
    :param sums: of the sites of all rows.
    :param old: the site of an old posterior, which stays.
    """
    projected, total = ProjectedRows(rows, sums.L, scale, keep=False), sums.with_old(old)
    values = tf.stack([tf.gather(variable, indices) for variable in (sites.precision, sites.linear)], axis=1)
    swept = sweep(rows, projected, rule, values, total.posterior())
    finite = tf.reduce_all(tf.math.is_finite(swept.update), axis=[1, 2], keepdims=True)  # of each row
    update = tf.where(finite, swept.update, tf.zeros_like(swept.update))
    A, c = sum_sites(rows, projected, update, sums.L)

    def is_improper(fraction: tf.Tensor) -> tf.Tensor:
        return ~total.plus(fraction * A, fraction * c).is_proper() & (fraction > 0.0)

    def halve(fraction: tf.Tensor) -> tf.Tensor:
        return tf.where(fraction < _SMALLEST_FRACTION, tf.zeros_like(fraction), 0.5 * fraction)

    fraction = tf.while_loop(is_improper, lambda fraction: [halve(fraction)], [damping])[0]
    moved = [
        variable.scatter_add(tf.IndexedSlices(fraction * change, indices))
        for variable, change in zip((sites.precision, sites.linear), tf.unstack(update, axis=1), strict=True)
    ]
    with tf.control_dependencies([change for change in moved if isinstance(change, tf.Tensor)]):
        return sums.plus(fraction * A, fraction * c)


def minibatch_objective(
    rows: LatentRows, projected: Projected, rule: TiltedRule, site: Site, q: InducingPosterior, num_data: tf.Tensor
) -> tf.Tensor:
    """
    Return a value whose derivatives in the hyperparameters estimate those of the energy, []. The value has no meaning.

    Where a cavity is improper the marginal replaces it.

    :param rows: the minibatch, in one chunk.
    :param projected: the minibatch's rows given u, differentiable.
    :param q: held fixed.
    """
    chunk = rows.only_chunk
    alpha = rows.alpha(chunk)
    marginal = marginals(q, projected.V)
    w = cavity_of_w(marginal, site, alpha)
    w = w._replace(mean=tf.stop_gradient(w.mean), variance=tf.stop_gradient(w.variance))
    log_Z = log_partition(rule, cavity_of_f(w, projected), rows.observations(chunk), alpha)
    bilinear = site.linear * marginal.mean - 0.5 * site.precision * (marginal.variance + tf.square(marginal.mean))
    weight = tf.cast(num_data, bilinear.dtype) / tf.cast(tf.shape(bilinear)[1], bilinear.dtype)
    return weight * (tf.reduce_sum(bilinear) + tf.reduce_sum(log_Z))


def old_objective(old: OldPosteriorSite, q: InducingPosterior) -> tf.Tensor:
    """Return the old posterior's part of :func:`minibatch_objective`, []: E_q[c'v - v'Av/2] + terms, q held fixed."""
    second = inverse_of_product(q.LB) + tf.matmul(q.b, q.b, transpose_b=True)  # E[v v']
    linear = tf.reduce_sum(old.c * tf.stop_gradient(q.b))
    return linear - 0.5 * tf.reduce_sum(old.A * tf.stop_gradient(second)) + old.terms
