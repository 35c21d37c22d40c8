"""Likelihoods as users write them."""

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood


class Own(ScalarLikelihood):
    """A likelihood with any log density."""

    def __init__(self, log_prob):
        super().__init__()
        self._log_prob = log_prob

    def _scalar_log_prob(self, X, F, Y):
        return self._log_prob(F, Y)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return tf.ones_like(F)
