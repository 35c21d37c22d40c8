"""
Intervals, and how to check them
================================

An interval of 90 % should contain 90 % of new values. Count how many it contains, at
every level, on rows that were not used for training.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from gpflow_pep.estimators import SparseGPRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
model = SparseGPRegressor(n_inducing=30, train_inducing=False, random_state=0)
model.fit(X_train, y_train)
mean, std = model.predict(X_test, return_std=True)

# %%
# ``std`` contains the noise: the intervals are for new values of y, not for the
# function behind them.

low, high = norm.interval(0.9, mean, std)
print(f"90 % intervals contain {np.mean((low < y_test) & (y_test < high)):.0%}")

# %%
# The curve of all levels should follow the diagonal. Above it intervals are too wide,
# below it too narrow.

levels = np.linspace(0.05, 0.95, 19)
distances = np.abs(y_test - mean) / std
contained = [np.mean(distances < norm.ppf(0.5 + level / 2.0)) for level in levels]
assert np.max(np.abs(contained - levels)) < 0.1

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot([0, 1], [0, 1], color="gray", ls="--", label="calibrated")
axes.plot(levels, contained, "o-", ms=4, label="diabetes, 221 unseen rows")
axes.set(xlabel="level of the interval", ylabel="fraction of values within")
axes.legend()
plt.show()
