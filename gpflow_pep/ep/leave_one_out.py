"""Leave-one-out predictive densities from the cavities: q without the whole site, for any alpha."""

import tensorflow as tf

from ..checks import asserted
from ..engine import InducingPosterior
from ..tilted import TiltedRule
from .cavity import Site, cavity_of_f, cavity_of_w, marginals
from .rows import LatentRows, ProjectedRows


def leave_one_out(
    rows: LatentRows, projected: ProjectedRows, rule: TiltedRule, sites: tf.Tensor, q: InducingPosterior
) -> tf.Tensor:
    """
    Compute log ∫ q_-n(f_n) p(y_n|f_n) df_n of every row, summed over latent functions, [N].

    :param sites: [N, 2, C].
    :raises tf.errors.InvalidArgumentError: if q without a site is not proper.
    """
    one = tf.ones([], q.L.dtype)

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        here = projected(chunk)
        w = cavity_of_w(marginals(q, here.V), Site(*rows.take_pair(sites, chunk)), one)
        message = "q without the site of an observation is not proper. Try: a smaller alpha. The smallest 1 - τ s is"
        ratio = asserted(w.ratio, w.ratio > 0.0, message, tf.reduce_min(w.ratio))
        density = rule.moments(cavity_of_f(w._replace(ratio=ratio), here), rows.observations(chunk), one).log_partition
        return (tf.reduce_sum(density, axis=0),)

    return rows.concatenate(part, q.L.dtype, [[None]])[0]
