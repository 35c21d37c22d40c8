"""
Noise that depends on x
=======================

A measuring device may be precise for small inputs and noisy for large ones. The
standard deviation of GPflow's Gaussian likelihood can be a function of x with
parameters of its own, which are trained with the kernel.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from gpflow_pep import PEPR, fit

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0.0, 10.0, (300, 1)), axis=0)
Y = np.sin(X) + 0.05 * np.exp(0.3 * X) * rng.standard_normal(X.shape)


# %%
# The exponential of a linear function is positive everywhere.


class LogLinear(gpflow.functions.Function):
    """exp(a + b x)."""

    def __init__(self):
        super().__init__()
        self.a = gpflow.Parameter(0.0)
        self.b = gpflow.Parameter(0.0)

    def __call__(self, X):
        return tf.exp(self.a + self.b * X)


likelihood = gpflow.likelihoods.Gaussian(scale=LogLinear())
Z = np.linspace(0.0, 10.0, 15)[:, None]
model = PEPR((X, Y), gpflow.kernels.SquaredExponential(), Z, likelihood=likelihood)
print(fit(model))
slope = likelihood.scale.b.numpy()
print(f"log standard deviation per unit of x: {slope:.2f}, truth 0.30")
assert abs(slope - 0.3) < 0.05

# %%
# The band of two standard deviations widens with the noise.

mean, variance = model.predict_y(X)
mean, std = mean.numpy()[:, 0], np.sqrt(variance.numpy()[:, 0])
_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3)
axes.plot(X[:, 0], mean)
axes.plot(X, Y, "k.", ms=3)
axes.set(xlabel="x", ylabel="y")
plt.show()
