# %% [markdown]
# # Robust-max and softmax for several classes
#
# `PEPClassifier` with labels 0, 1, ..., C - 1 has a latent function for each class. They share one kernel or have their
# own. `ARPEP` does the same with minibatches. For readers who know `gpflow.likelihoods.MultiClass`. Runs in 40 seconds,
# without a network.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, SquaredExponential

from gpflow_pep import APEP, MultiClassRobustMax, PEPClassifier, fit
from gpflow_pep.inducing import k_means
from gpflow_pep.plotting import POWERS, ClassDisplay

plt.rcParams["figure.dpi"] = 150
rng = np.random.default_rng(3)


def sample(n):
    """Three arms of a spiral, and their labels."""
    labels = rng.integers(0, 3, n)
    radius = rng.uniform(0.3, 2.5, n)
    angle = 2.1 * labels + 0.9 * radius + 0.4 * rng.standard_normal(n)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return X, labels[:, None].astype(float)


X, Y = sample(120)  # [N, D], [N, 1]
Xtest, Ytest = sample(400)
Z = k_means(X, 12, seed=0)  # [M, D]


def scores(model):
    """Error and NLPD (nats a row) of the test rows."""
    probabilities = model.predict_y(Xtest)[0].numpy()  # [n, C]
    error = np.mean(np.argmax(probabilities, axis=1)[:, None] != Ytest)
    return error, -float(np.mean(model.predict_log_density((Xtest, Ytest))))


# %% [markdown]
# ## Robust-max, chosen by itself
#
# With labels 0, 1, 2 and no likelihood `PEPClassifier` uses `MultiClassRobustMax(3)`: the label is the index of the
# largest of three latent functions, except for a fraction ε of labels drawn at random. (GPflow's own `MultiClass` is
# accepted too; its probabilities have errors of up to 1e-4.) The latent functions share kernel and inducing points
# here.

# %%
model = PEPClassifier((X, Y), SquaredExponential(), inducing_variable=Z)
assert type(model.likelihood) is MultiClassRobustMax
densities = {}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.1), sharex=True, sharey=True)
for ax, alpha in zip(axes, (0.0, 0.5, 1.0), strict=True):
    model.alpha = alpha  # training goes on from the parameters of the last power
    result = fit(model, max_iterations=15)
    assert result.sites.converged
    error, densities[alpha] = scores(model)
    display = ClassDisplay.from_model(model, (X, Y), ax=ax, limits=[(-2.8, 2.8)] * 2)
    np.testing.assert_allclose(display.probabilities.sum(axis=1), 1.0, atol=1e-8)
    ax.set_title(f"alpha = {alpha:g}: NLPD {densities[alpha]:.3f}", fontsize=10)
    ax.label_outer()
    if ax is not axes[-1]:
        ax.get_legend().remove()
    print(f"alpha = {alpha:g}: error {error:.3f}, NLPD {densities[alpha]:.3f}")
    assert error < 0.08
fig.tight_layout()

# %% [markdown]
# **Figure:** the color of the most probable class, white if all are equally probable, as away from the data. Circles
# are inducing points. The three arms are separated, by much the same boundaries for each power.

# %% [markdown]
# ## A kernel and inducing points for each class, and minibatches
#
# `SeparateIndependent` kernels and `SeparateIndependentInducingVariables` work as in GPflow. They go into
# `PEPClassifier`, and into the minibatch models, `ARPEP`, `APEP` and `RPAPEP`. These have an explicit q(u) and the
# constructor arguments of `SVGP`, plus `alpha`. At `alpha=0` all three are SVGP. (ε is the share of labels drawn at
# random here; in GPflow's `RobustMax` it is the share of wrong labels, smaller by the factor (C - 1)/C.)

# %%
kernel = SeparateIndependent([SquaredExponential() for _ in range(3)])
each = [InducingPoints(k_means(X[Y[:, 0] == label], 8, seed=0)) for label in range(3)]
points = SeparateIndependentInducingVariables(each)
tied = APEP(
    kernel, MultiClassRobustMax(3, epsilon=1e-3), points, alpha=0.0, num_data=len(X)
)
same = gpflow.likelihoods.MultiClass(
    3, gpflow.likelihoods.RobustMax(3, epsilon=1e-3 * 2.0 / 3.0)
)
svgp = gpflow.models.SVGP(kernel, same, points, num_latent_gps=3, num_data=len(X))
ours, theirs = (
    float(each.maximum_log_likelihood_objective((X, Y))) for each in (tied, svgp)
)
print(f"objective at alpha = 0: APEP {ours:.3f}, SVGP {theirs:.3f}")
np.testing.assert_allclose(ours, theirs, rtol=1e-3)

tied.alpha = 0.5
result = fit(
    tied,
    (X, Y),
    batch_size=40,
    max_iterations=600,
    learning_rate=0.03,
    held_out=(Xtest, Ytest),
    interval=50,
)
error, nlpd = scores(tied)
print(
    f"APEP, alpha = 0.5, minibatches of 40: error {error:.3f}, NLPD {nlpd:.3f}, "
    f"{result.seconds:.0f} s"
)

# %% [markdown]
# **Figure:** the NLPD of held-out rows falls during training and levels off somewhat above `PEPClassifier`'s (dotted),
# whose sites are not tied to each other. No step reads all rows.

# %%
steps = 50 * np.arange(1, len(result.objective) + 1)
fig, ax = plt.subplots(figsize=(5, 2.5))
nlpds = result.held_out["nlpd"]
ax.plot(steps, nlpds, "o-", ms=3, color=POWERS[1], label="APEP, alpha = 0.5")
ax.axhline(densities[0.5], color="k", ls=":", label="PEPClassifier, alpha = 0.5")
ax.set(xlabel="steps", ylabel="held-out NLPD, nats per row")
ax.legend(fontsize=8)
fig.tight_layout()
assert nlpds[-1] < nlpds[0]

# %% [markdown]
# ## Softmax
#
# GPflow's `Softmax` works in `PEP` and `PEPClassifier` too, with quadrature in place of sampling.

# %%
softmax = PEPClassifier(
    (X, Y), SquaredExponential(), gpflow.likelihoods.Softmax(3), Z, alpha=0.5
)
result = fit(softmax, max_iterations=10)
error, nlpd = scores(softmax)
print(f"softmax, alpha = 0.5: error {error:.3f}, NLPD {nlpd:.3f}, {result.status}")
loo = float(np.mean(softmax.loo_log_predictive_density()))
print(f"leave-one-out log density {loo:.3f}, of test rows {-nlpd:.3f}")
assert error < 0.15
