"""The energy from a minibatch, for hyperparameters that are updated before the sites have converged.

Where sites match their tilted distributions the energy is stationary in the marginals of q as well (JMLR 18(104),
app. G), so that its derivatives are a sum over rows: those of

    N/n Σ_rows { h μ - τ (s + μ²)/2 + log Z(m, v)/α },      s = V'B^-1 V,  μ = V'b,

with B, b, sites and cavities of w held fixed; log Z depends on d, m(x) and the likelihood. At alpha = 0 they are the
derivatives of SVGP's bound at q.
"""

import tensorflow as tf

from ..linalg import inverse_of_product
from ..statistics import OldSite
from .gaussian import Posterior, cavity_of_f, cavity_of_w, marginals
from .latent import LatentRows
from .sweep import Sites
from .tilted import TiltedRule, log_normaliser


def minibatch_objective(
    rows: LatentRows, rule: TiltedRule, sites: Sites, q: Posterior, alpha: tf.Tensor, num_data: tf.Tensor
) -> tf.Tensor:
    """
    A function of the hyperparameters whose derivatives estimate those of the energy, []; its value means nothing.
    A row without a proper cavity has its marginal in that one's place.

    :param rows: the minibatch, in one chunk.
    :param q: under the present hyperparameters, with a differentiable L.
    """
    chunk = tf.constant(0)
    latent, observed, site = rows(chunk, *rows.inputs), rows.observed(chunk), sites.take(rows, chunk)
    held = Posterior(q.L, tf.stop_gradient(q.LB), tf.stop_gradient(q.b))
    marginal = marginals(held, latent)  # differentiable in L and the rows
    w = cavity_of_w(marginal, site, alpha)
    w = w._replace(mean=tf.stop_gradient(w.mean), variance=tf.stop_gradient(w.variance))
    log_Z = log_normaliser(rule, cavity_of_f(w, marginal, latent), observed, alpha)
    bilinear = site.linear * marginal.mean - 0.5 * site.precision * (marginal.variance + tf.square(marginal.mean))
    scale = tf.cast(num_data, alpha.dtype) / tf.cast(tf.shape(latent.Kff)[0], alpha.dtype)
    return scale * (tf.reduce_sum(bilinear) + tf.reduce_sum(log_Z))


def old_objective(old: OldSite, q: Posterior) -> tf.Tensor:
    """The same of an old posterior's part of the energy, []: E_q[c'v - v'Av/2] + terms, with q held fixed."""
    second = inverse_of_product(q.LB) + q.b[..., None] * q.b[:, None, :]  # E[v v']
    linear = tf.reduce_sum(old.c[..., 0] * tf.stop_gradient(q.b))
    return linear - 0.5 * tf.reduce_sum(old.A * tf.stop_gradient(second)) + old.terms
