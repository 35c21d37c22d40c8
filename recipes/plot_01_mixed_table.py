"""
A table with text that grows every day
======================================

A preprocessor is fitted to the first day and stays. Each day's rows then go to
``partial_fit``, which keeps the posterior of all earlier rows, but not the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gpflow_pep.estimators import SparseGPRegressor


def rows_of_day(day):
    """Return 60 rows with a column of text, and the electric load."""
    rng = np.random.default_rng(day)
    table = pd.DataFrame(
        {"city": rng.choice(["Oslo", "Rome"], 60), "hour": rng.uniform(0.0, 24.0, 60)}
    )
    load = 10.0 * np.sin(table["hour"] / 3.0) + 5.0 * (table["city"] == "Oslo")
    return table, load + rng.normal(size=60)


# %%
# Fit the preprocessor once. ``handle_unknown="ignore"`` accepts cities that appear
# later.

table, load = rows_of_day(0)
columns = make_column_transformer(
    (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["city"]),
    (StandardScaler(), ["hour"]),
).fit(table)

# %%
# Predict each day before its rows are learned.

model = SparseGPRegressor(n_inducing=20, random_state=0)
model.partial_fit(columns.transform(table), load)
for day in range(1, 8):
    table, load = rows_of_day(day)
    mean, std = model.predict(columns.transform(table), return_std=True)
    rmse = np.sqrt(np.mean((mean - load) ** 2))
    print(f"day {day}: RMSE {rmse:.2f}, predicted {std.mean():.2f}, noise 1.00")
    model.partial_fit(columns.transform(table), load)
assert rmse < 1.4
assert std.mean() < 1.3

# %%
# The prediction for both cities, and the rows of the last day.

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for city, color in [("Oslo", "tab:blue"), ("Rome", "tab:orange")]:
    grid = pd.DataFrame({"city": city, "hour": np.linspace(0.0, 24.0, 100)})
    mean, std = model.predict(columns.transform(grid), return_std=True)
    low, high = mean - 2 * std, mean + 2 * std
    axes.fill_between(grid["hour"], low, high, color=color, alpha=0.25)
    axes.plot(grid["hour"], mean, color=color, label=city)
    rows = table["city"] == city
    axes.plot(table["hour"][rows], load[rows], ".", color=color)
axes.set(xlabel="hour", ylabel="load")
axes.legend()
plt.show()
