"""
Outliers
========

Gaussian noise lets single wrong values bend the mean. Under a Student-t likelihood they
have little influence, and no value has to be removed.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep import PEP, PEPR, fit

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0.0, 10.0, (150, 1)), axis=0)
Y = np.sin(X) + 0.1 * rng.standard_normal(X.shape)
wrong = rng.choice(150, 15, replace=False)
Y[wrong] += rng.uniform(1.0, 4.0, (15, 1))  # a tenth of the values
Z = np.linspace(0.0, 10.0, 15)[:, None]

# %%
# The same kernel and inducing points, with two likelihoods.

gaussian = PEPR((X, Y), gpflow.kernels.SquaredExponential(), Z)
fit(gaussian, train_inducing=False)
student = PEP(
    (X, Y),
    gpflow.kernels.SquaredExponential(),
    gpflow.likelihoods.StudentT(scale=0.1, df=3.0),
    Z,
)
result = fit(student, train_inducing=False)
print(result)

# %%
# The largest error of the mean, with both.

grid = np.linspace(0.0, 10.0, 300)[:, None]
means = {
    "Gaussian": gaussian.predict_f(grid)[0].numpy(),
    "Student-t": student.predict_f(grid)[0].numpy(),
}
errors = {name: np.abs(mean - np.sin(grid)).max() for name, mean in means.items()}
print(errors)
assert errors["Student-t"] < 0.5 * errors["Gaussian"]

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(X, Y, "k.", ms=4)
for name, mean in means.items():
    axes.plot(grid, mean, label=name)
axes.plot(grid, np.sin(grid), "k--", lw=1, label="truth")
axes.set(xlabel="x", ylabel="y")
axes.legend()
plt.show()
