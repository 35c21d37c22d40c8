"""Leave-one-out predictive densities from the cavities: q without a whole site, whatever alpha it was made with."""

import tensorflow as tf

from ..statistics import concatenate
from .gaussian import SiteSums, cavity_of_f, cavity_of_w, marginals, proper
from .latent import LatentRows
from .sweep import Sites
from .tilted import TiltedRule


def leave_one_out(rows: LatentRows, rule: TiltedRule, sites: Sites, sums: SiteSums) -> tf.Tensor:
    """
    log ∫ q_-n(f_n) p(y_n|f_n) df_n of every row, summed over latent functions, [N].

    :raises tf.errors.InvalidArgumentError: where q without a site is not proper.
    """
    q = sums.posterior()
    one = tf.ones([], q.L.dtype)

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        latent = rows(chunk, *rows.inputs)
        marginal = marginals(q, latent)
        w = proper(cavity_of_w(marginal, sites.take(rows, chunk), one))
        density = rule.moments(cavity_of_f(w, marginal, latent), rows.observed(chunk), one).log_normaliser
        return (tf.reduce_sum(density, axis=0),)

    return concatenate(rows.num_chunks(), part, q.L.dtype, [[None]])[0]
