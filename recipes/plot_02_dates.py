"""
Dates as inputs
===============

A Gaussian process needs numbers: count days from a fixed date, the same in fit and
predict. Lengthscales and periods are then in days.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gpflow_pep.estimators import SparseGPRegressor

rng = np.random.default_rng(0)
dates = pd.date_range("2025-01-01", periods=2400, freq="h")
dates = dates[np.sort(rng.choice(2400, 300, replace=False))]  # irregular
first = pd.Timestamp("2025-01-01")


def days(dates):
    """Return days since the first of January, [n, 1]."""
    return ((dates - first) / pd.Timedelta(days=1)).to_numpy()[:, None]


# %%
# Values with a weekly pattern and a slow change. Eleven days in March are missing.

t = days(dates)[:, 0]
values = 3.0 * np.sin(2.0 * np.pi * t / 7.0) + 0.05 * t + rng.normal(0.0, 0.7, len(t))
known = (dates < "2025-03-05") | (dates >= "2025-03-16")

weekly = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=7.0)
gpflow.set_trainable(weekly.period, False)
slow = gpflow.kernels.SquaredExponential(lengthscales=30.0)
model = SparseGPRegressor(weekly + slow, n_inducing=40, train_inducing=False)
model.fit(days(dates[known]), values[known])

# %%
# The weekly pattern fills the gap.

grid = pd.date_range("2025-02-15", "2025-04-05", freq="6h")
mean, std = model.predict(days(grid), return_std=True)

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.fill_between(grid, mean - 2 * std, mean + 2 * std, alpha=0.3)
axes.plot(grid, mean)
shown = known & (dates >= grid[0]) & (dates <= grid[-1])
axes.plot(dates[shown], values[shown], "k.")
axes.plot(dates[~known], values[~known], ".", color="tab:red", label="not seen")
axes.legend(loc="upper left")
axes.tick_params("x", rotation=30)
plt.show()

mean, std = model.predict(days(dates[~known]), return_std=True)
covered = np.mean(np.abs(values[~known] - mean) < 2 * std)
print(f"within two standard deviations: {covered:.0%} of {sum(~known)} values")
assert covered > 0.8
