"""
A likelihood of your own
========================

``PEP`` takes any likelihood of one latent function that has a smooth log density. Here
counts vary more than Poisson's: a negative binomial likelihood, which GPflow does not
have.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from gpflow_pep import PEP, fit

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0.0, 10.0, (200, 1)), axis=0)
true = np.exp(2.0 + np.sin(X))
counts = rng.poisson(rng.gamma(3.0, true / 3.0)).astype(float)


# %%
# Three functions define it. Tilted distributions are integrated by quadrature.


class NegativeBinomial(gpflow.likelihoods.ScalarLikelihood):
    """Counts of mean m = exp(f) and variance m + m²/r."""

    def __init__(self):
        super().__init__()
        self.r = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())

    def _scalar_log_prob(self, X, F, Y):
        total = tf.reduce_logsumexp(
            tf.stack([F, tf.fill(tf.shape(F), tf.math.log(self.r))]), axis=0
        )  # log(m + r)
        binomial = (
            tf.math.lgamma(Y + self.r)
            - tf.math.lgamma(self.r)
            - tf.math.lgamma(Y + 1.0)
        )
        return binomial + self.r * (tf.math.log(self.r) - total) + Y * (F - total)

    def _conditional_mean(self, X, F):
        return tf.exp(F)

    def _conditional_variance(self, X, F):
        return tf.exp(F) + tf.exp(2.0 * F) / self.r


# %%
# Train it as any model. ``r`` is trained as well.

Z = np.linspace(0.0, 10.0, 12)[:, None]
kernel = gpflow.kernels.SquaredExponential() + gpflow.kernels.Constant()
model = PEP((X, counts), kernel, NegativeBinomial(), Z)
print(fit(model))
r = model.likelihood.r.numpy()
print(f"r = {r:.1f}, truth 3.0")
assert 2.0 < r < 4.5

# %%
# The predicted mean, and two standard deviations of new counts.

mean, variance = model.predict_y(X)
mean, std = mean.numpy()[:, 0], np.sqrt(variance.numpy()[:, 0])
_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.fill_between(X[:, 0], 0.0 * mean, mean + 2 * std, alpha=0.3)
axes.plot(X[:, 0], mean)
axes.plot(X, true, "k--", lw=1)
axes.plot(X, counts, "k.", ms=3)
axes.set(xlabel="x", ylabel="counts")
plt.show()
