"""
Counts with exposure
====================

Accidents per road depend on the traffic, claims on the insured time. The rate is the
exponential of a Gaussian process, and the logarithm of the exposure is its mean
function.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep import PEP, fit

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 10.0, 200))
exposure = rng.uniform(0.5, 20.0, 200)
rate = np.exp(0.5 + np.sin(x))
counts = rng.poisson(exposure * rate).astype(float)

# %%
# The inputs have two columns, x and the logarithm of the exposure. The kernel sees the
# first, the mean function returns the second, with a coefficient that stays 1.

X = np.column_stack([x, np.log(exposure)])
offset = gpflow.functions.Linear(A=[[0.0], [1.0]], b=0.0)
gpflow.set_trainable(offset, False)
Z = np.column_stack([np.linspace(0.0, 10.0, 15), np.zeros(15)])
kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
model = PEP(
    (X, counts[:, None]),
    kernel + gpflow.kernels.Constant(),
    gpflow.likelihoods.Poisson(),
    Z,
    mean_function=offset,
)
print(fit(model))

# %%
# Predict for an exposure of 1, whose logarithm is 0: this is the rate.

grid = np.linspace(0.0, 10.0, 200)
mean, variance = model.predict_f(np.column_stack([grid, np.zeros(200)]))
mean, std = mean.numpy()[:, 0], np.sqrt(variance.numpy()[:, 0])
true = np.exp(0.5 + np.sin(grid))
assert np.mean(np.abs(np.log(true) - mean) < 2 * std) > 0.9

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.scatter(x, counts / exposure, s=exposure, c="gray", label="counts / exposure")
axes.fill_between(grid, np.exp(mean - 2 * std), np.exp(mean + 2 * std), alpha=0.4)
axes.plot(grid, np.exp(mean), label="rate")
axes.plot(grid, true, "k--", lw=1, label="true rate")
axes.set(xlabel="x", ylim=(0.0, 8.0))
axes.legend()
plt.show()
