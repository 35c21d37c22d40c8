"""
A map from scattered measurements
=================================

Heights of a mountain range at 400 places, in two columns of a pandas table. The
elevation model comes with Matplotlib.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.cbook import get_sample_data

from gpflow_pep.estimators import SparseGPRegressor
from gpflow_pep.plotting import PredictionDisplay

with get_sample_data("jacksboro_fault_dem.npz") as file:
    heights = file["elevation"]
rng = np.random.default_rng(0)
north, east = rng.integers(0, heights.shape, (600, 2)).T
table = pd.DataFrame({"east": east * 0.075, "north": -north * 0.093})  # km
height = heights[north, east].astype(float)

# %%
# Train on 400 places, and predict the others.

model = SparseGPRegressor(n_inducing=60, max_iterations=100, random_state=0)
model.fit(table[:400], height[:400])
mean, std = model.predict(table[400:], return_std=True)
covered = np.mean(np.abs(height[400:] - mean) < 2 * std)
print(f"R² {model.score(table[400:], height[400:]):.2f}")
print(f"within two standard deviations: {covered:.0%}")
assert covered > 0.9

# %%
# Colors are means, dashed lines standard deviations, dots the places, circles inducing
# points.

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
PredictionDisplay.from_estimator(model, table[:400], height[:400], ax=axes)
plt.show()
