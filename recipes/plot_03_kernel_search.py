"""
Choose a kernel by a search
===========================

The estimators work in scikit-learn's searches, and a kernel is a parameter like any
other. The score here is the log density of held-out values, which also judges the
standard deviations.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.model_selection import GridSearchCV, KFold

from gpflow_pep.estimators import SparseGPRegressor

rng = np.random.default_rng(1)
X = rng.uniform(0.0, 10.0, (200, 1))
y = np.sin(3.0 * X[:, 0]) + 0.3 * X[:, 0] + 0.2 * rng.standard_normal(200)

# %%
# Starting values are those of the kernels given; training changes them.

kernels = {
    "squared exponential": gpflow.kernels.SquaredExponential(),
    "linear": gpflow.kernels.Linear() + gpflow.kernels.Constant(),
    "periodic + linear": gpflow.kernels.Periodic(
        gpflow.kernels.SquaredExponential(), period=2.0
    )
    + gpflow.kernels.Linear(),
}


def log_density(estimator, X, y):
    """Return the mean log density of y."""
    mean, std = estimator.predict(X, return_std=True)
    return norm.logpdf(y, mean, std).mean()


search = GridSearchCV(
    SparseGPRegressor(n_inducing=20, train_inducing=False, random_state=0),
    {"kernel": list(kernels.values())},
    scoring=log_density,
    cv=KFold(2, shuffle=True, random_state=0),
).fit(X, y)

# %%
# The periodic kernel with a trend is the true structure.

scores = search.cv_results_["mean_test_score"]
for name, score in zip(kernels, scores, strict=True):
    print(f"{name:20} {score:6.3f}")
assert np.argmax(scores) == 2

grid = np.linspace(-2.0, 14.0, 300)[:, None]
mean, std = search.best_estimator_.predict(grid, return_std=True)
_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3)
axes.plot(grid[:, 0], mean)
axes.plot(X[:, 0], y, "k.", ms=3)
axes.set(xlabel="x", ylabel="y", title="periodic + linear")
plt.show()
