"""
A seasonal forecast
===================

Ten years of months, with a trend and a season that slowly changes its shape, and two
years of forecast.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from gpflow.kernels import Linear, Matern52, Periodic, SquaredExponential

from gpflow_pep import PEPR, fit, metrics

rng = np.random.default_rng(0)
t = np.arange(144)[:, None] / 12.0  # years
season = np.sin(2.0 * np.pi * t) + 0.4 * np.cos(4.0 * np.pi * t)
y = 0.5 * t + (1.0 + 0.05 * t) * season + 0.2 * rng.standard_normal(t.shape)
past, future = slice(0, 120), slice(120, 144)

# %%
# A product of a periodic and a smooth kernel is a season that changes. The trend is
# linear, with deviations that last for years. With all months as inducing points the
# model is exact.

periodic = Periodic(SquaredExponential(), period=1.0)
gpflow.set_trainable(periodic.period, False)
changing = periodic * SquaredExponential(lengthscales=10.0)
gpflow.set_trainable(changing.kernels[1].variance, False)
kernel = changing + Linear() + Matern52(lengthscales=5.0)
center = y[past].mean()
model = PEPR((t[past], y[past] - center), kernel, t[past])
print(fit(model, train_inducing=False))

# %%
# Predictions of new values, with their noise.

mean, variance = model.predict_y(t[future])
mean = mean.numpy() + center
print(f"RMSE of 24 months: {metrics.rmse(y[future], mean):.2f}, noise: 0.20")
std = np.sqrt(variance.numpy())
assert np.mean(np.abs(y[future] - mean) < 2 * std) > 0.85

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
low, high = mean - 2 * std, mean + 2 * std
axes.fill_between(t[future, 0], low[:, 0], high[:, 0], alpha=0.3)
axes.plot(t[future], mean, label="forecast")
axes.plot(t[60:120], y[60:120], "k.", ms=4)
axes.plot(t[future], y[future], ".", color="tab:red", ms=5, label="not seen")
axes.set(xlabel="years")
axes.legend(loc="upper left")
plt.show()
