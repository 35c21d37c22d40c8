"""Updates of some sites at a time, and of q after each batch, in one compiled loop."""

import tensorflow as tf

from .gaussian import SiteSums
from .latent import LatentRows
from .sweep import Sites, sweep
from .tilted import TiltedRule

SMALLEST_STEP = 1e-4


def update_rows(
    rows: LatentRows,
    indices: tf.Tensor,
    rule: TiltedRule,
    sites: Sites,
    state: SiteSums,
    under: SiteSums,
    alpha: tf.Tensor,
    damping: tf.Tensor,
) -> SiteSums:
    """
    The sites of some rows become, by the fraction `damping`, what q makes them, and q's sums follow.

    Sites without a proper cavity stay; the fraction is halved until B is positive definite, or nothing changes.

    :param rows: those rows.
    :param indices: which ones they are, [n].
    :param state: the sums of all sites.
    :param under: those of the q that the rows are looked at under; in general the same.
    """
    found = sweep(rows, rule, sites, under.posterior(), alpha)

    def is_improper(step: tf.Tensor) -> tf.Tensor:
        return ~state.moved(step, found.A, found.c).is_proper() & (step > 0.0)

    def halve(step: tf.Tensor) -> tf.Tensor:
        return tf.where(step < SMALLEST_STEP, tf.zeros_like(step), 0.5 * step)

    start = tf.where(tf.math.is_finite(found.change), damping, tf.zeros_like(damping))
    step = tf.while_loop(is_improper, lambda step: [halve(step)], [start])[0]
    moves = [
        variable.scatter_add(tf.IndexedSlices(_times(step, change), indices))
        for variable, change in zip((sites.precision, sites.linear), found.site, strict=True)
    ]
    with tf.control_dependencies([move for move in moves if isinstance(move, tf.Tensor)]):
        return state.moved(1.0, _times(step, found.A), _times(step, found.c))


def _times(step: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
    """step change, 0 where step is, whatever the change."""
    return tf.where(step > 0.0, step * change, tf.zeros_like(change))
