"""
Bayesian optimization
=====================

Find the minimum of an expensive function in few evaluations: evaluate where the
expected improvement over the best value so far is largest.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from gpflow_pep import PEPR, fit


def expensive(x):
    """Return a function with two minima; the smaller is -0.5004, at -0.3592."""
    return np.sin(3.0 * x) + x**2 - 0.7 * x


grid = np.linspace(-1.0, 2.0, 400)[:, None]
X = np.array([[-0.9], [1.1]])
Y = expensive(X)

# %%
# All evaluations are inducing points, so the model is exact. The function has no noise:
# its variance stays small.

kernel = gpflow.kernels.Matern52(lengthscales=0.5)
for step in range(8):
    scaled = (Y - Y.mean()) / Y.std()
    model = PEPR((X, scaled), kernel, X.copy(), noise_variance=1e-4)
    gpflow.set_trainable(model.likelihood, False)
    if step == 4:
        fit(model, train_inducing=False, max_iterations=50)
    mean, variance = model.predict_f(grid)
    std = np.sqrt(variance.numpy())
    z = (scaled.min() - mean.numpy()) / std
    improvement = std * (z * norm.cdf(z) + norm.pdf(z))
    best = grid[[np.argmax(improvement)]]
    X, Y = np.vstack([X, best]), np.vstack([Y, expensive(best)])

print(f"minimum {Y.min():.3f} at {X[np.argmin(Y), 0]:.3f} after {len(X)} evaluations")
assert Y.min() < -0.49

# %%
# Evaluations gather at the minimum.

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(grid, expensive(grid), "k--", lw=1, label="function")
axes.scatter(X, Y, c=range(len(X)), cmap="viridis_r", zorder=3, label="evaluations")
axes.set(xlabel="x")
axes.legend()
plt.show()
