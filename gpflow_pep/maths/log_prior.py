"""The density of a weak prior, of the logarithm of a positive parameter."""

import math
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True, eq=False)
class LogPrior:
    r"""
    Prior of a positive parameter θ, [D] or []: a density of the mean of log θ and of the deviations
    from this mean.

    With t = log θ - location, its mean c, and a density q that is normal or Student's t:

    .. math:: \log p = \log q\left(\frac{c}{\mathrm{common}}\right)
              - \sum_d \frac{(t_d - c)^2}{2\,\mathrm{single}^2} + \mathrm{const}

    This is a density of log θ. Its mode, and the maximum a posteriori (MAP), are the same in any
    unit of θ and for any transform of the parameter. Samplers need a density of θ: `for_sampling`
    subtracts the sum of log θ.
    """

    location: tf.Variable  #: mean of log θ, [D] or []
    common: float  #: scale of c
    single: float  #: scale of the deviations
    df: float = math.inf  #: degrees of freedom of q; infinite: normal
    for_sampling: bool = False  #: whether `log_prob` is a density of θ
    name: str = "LogPrior"  #: shown by GPflow's `print_summary`

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Return the log density [] of the entries [D] or [], without its constant."""
        logs = tf.math.log(value)
        t = logs - self.location
        center = tf.reduce_mean(t)
        square = tf.square(center)
        density = (-0.5 / self.common**2) * square
        if math.isfinite(self.df):
            ratio = square * (1.0 / (self.df * self.common**2))
            density = -0.5 * (self.df + 1.0) * tf.math.log1p(ratio)
        if t.shape.rank != 0:
            density -= (0.5 / self.single**2) * tf.reduce_sum(tf.square(t - center))
        if self.for_sampling:
            density -= tf.reduce_sum(logs)
        return density
