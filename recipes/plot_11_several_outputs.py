"""
Several related outputs
=======================

Two sensors measure related quantities, and one of them fails for a while. A
coregionalized kernel learns the relation, so that the other sensor fills the gap.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep.estimators import SparseGPRegressor

rng = np.random.default_rng(0)
t = rng.uniform(0.0, 10.0, 160)
sensor = np.arange(160) % 2
truth = np.where(sensor == 0, np.sin(t), 0.8 * np.sin(t) + 0.5)
y = truth + 0.1 * rng.standard_normal(160)
known = (sensor == 0) | (t < 4.0) | (t > 7.5)

# %%
# A row has the time and the number of the sensor. Two columns of y without missing
# values need none of this: pass y [N, 2].

X = np.column_stack([t, sensor])
time = gpflow.kernels.SquaredExponential(active_dims=[0])
outputs = gpflow.kernels.Coregion(output_dim=2, rank=1, active_dims=[1])
common = gpflow.kernels.Coregion(output_dim=2, rank=1, active_dims=[1])
kernel = time * outputs + gpflow.kernels.Constant() * common
model = SparseGPRegressor(kernel, n_inducing=40, random_state=0)
model.fit(X[known], y[known])

# %%
# The mean of the second sensor follows the first where its own values are missing.

grid = np.linspace(0.0, 10.0, 200)
_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for number, color in enumerate(["tab:blue", "tab:orange"]):
    inputs = np.column_stack([grid, np.full(200, number)])
    mean, std = model.predict(inputs, return_std=True)
    axes.fill_between(grid, mean - 2 * std, mean + 2 * std, color=color, alpha=0.3)
    axes.plot(grid, mean, color=color, label=f"sensor {number}")
    rows = known & (sensor == number)
    axes.plot(t[rows], y[rows], ".", color=color)
axes.axvspan(4.0, 7.5, color="gray", alpha=0.15)
axes.set(xlabel="time")
axes.legend()
plt.show()

mean, std = model.predict(X[~known], return_std=True)
rmse = np.sqrt(np.mean((mean - truth[~known]) ** 2))
print(f"RMSE of the missing values: {rmse:.2f}")
assert rmse < 0.2
