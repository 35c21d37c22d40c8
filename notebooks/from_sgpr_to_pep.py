# %% [markdown]
# # From SGPR to PEP
#
# `PEPR` replaces `gpflow.models.SGPR` and has one more argument, `alpha`, from the variational bound to FITC. For
# readers who know GPflow's `SGPR`. Runs in half a minute, without a network.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from gpflow_pep import PEPR, fit, select_alpha
from gpflow_pep.data import metrics
from gpflow_pep.plotting import PREDICTION, PredictionDisplay

plt.rcParams["figure.dpi"] = 150
rng = np.random.default_rng(1)


def latent(x):
    return np.sin(3.0 * x) + 0.5 * np.cos(5.0 * x)


X = np.sort(rng.uniform(0.0, 6.0, (150, 1)), axis=0)  # [N, D]
Y = latent(X) + 0.15 * rng.standard_normal(X.shape)  # [N, P]
Xnew = np.linspace(-0.5, 6.5, 300)[:, None]
Z = np.linspace(0.3, 5.7, 8)[:, None]  # [M, D]: too few, to show how methods differ


def kernel():
    return gpflow.kernels.SquaredExponential(lengthscales=0.3)


# %% [markdown]
# ## The same constructor
#
# `PEPR` takes the arguments of `SGPR`, and `alpha`. At `alpha=0` it is SGPR: the same objective, the same predictions.
# At `alpha=1` it is FITC, GPflow's `GPRFITC`.

# %%
options = {"noise_variance": 0.02}
sgpr = gpflow.models.SGPR((X, Y), kernel(), Z, **options)
fitc = gpflow.models.GPRFITC((X, Y), kernel(), Z, **options)
pep = PEPR((X, Y), kernel(), Z, alpha=0.0, **options)

for alpha, reference in ((0.0, sgpr), (1.0, fitc)):
    pep.alpha = alpha
    ours, theirs = (
        pep.maximum_log_likelihood_objective(),
        reference.maximum_log_likelihood_objective(),
    )
    print(f"alpha = {alpha:g}: {ours:.6f}, {type(reference).__name__}: {theirs:.6f}")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    for value, expected in zip(
        pep.predict_f(Xnew), reference.predict_f(Xnew), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)

# %% [markdown]
# `alpha` is a variable. A compiled function uses a new value without being traced again:

# %%
objective = tf.function(pep.maximum_log_likelihood_objective)
for alpha in (0.0, 0.2, 0.5, 0.8, 1.0):
    pep.alpha = alpha
    print(f"alpha = {alpha}: {objective():8.2f}")
assert objective.experimental_get_tracing_count() == 1

# %% [markdown]
# ## Training
#
# GPflow's optimizers work as they do for `SGPR`. `fit` is shorter. It trains GPflow's own models too, by L-BFGS if they
# hold their data, and its result says how training ended.

# %%
scipy = gpflow.optimizers.Scipy()
scipy.minimize(
    sgpr.training_loss_closure(), sgpr.trainable_variables, options={"maxiter": 200}
)

half = PEPR((X, Y), kernel(), Z, alpha=0.5, **options)
one = PEPR((X, Y), kernel(), Z, alpha=1.0, **options)
learned = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())
scaled = PEPR((X, Y), kernel(), Z, alpha=0.5, scale=learned, **options)

models = {
    "SGPR": sgpr,
    "PEPR, alpha = 0.5": half,
    "FITC: PEPR, alpha = 1": one,
    "T-PEP, alpha = 0.5": scaled,
}
for name, model in models.items():
    if model is not sgpr:
        print(f"{name:22}", fit(model, max_iterations=200).status)

# %% [markdown]
# T-PEP is `PEPR` with a `scale` m: f given u has the covariance m D instead of D = Kff - Qff. A number stays
# fixed, a `gpflow.Parameter` is learned.
#
# **Figure:** mean and two standard deviations of y (blue), the truth (dotted) and the inducing points (ticks). Eight
# points cannot represent the function, and SGPR explains the rest as noise: too much noise,
# and a band of nearly constant width near the data. With `alpha=1` there is too little noise, and the band is narrow at
# inducing points and wide between them. With `alpha=0.5` the noise is nearest to the truth.

# %%
fig, axes = plt.subplots(2, 2, figsize=(8, 4.8), sharex=True, sharey=True)
noise = {}
for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
    PredictionDisplay.from_model(model, (X, Y), ax=ax, limits=(-0.5, 6.5))
    ax.plot(Xnew, latent(Xnew), "k:", lw=1)
    noise[name] = float(np.sqrt(model.likelihood.variance))
    ax.set_title(f"{name}: noise s.d. {noise[name]:.3f} (true 0.150)", fontsize=9)
    ax.label_outer()
fig.tight_layout()

# %% [markdown]
# ## Which alpha?
#
# Compare predictions of new rows. `metrics` takes arrays [N, P]; NLPD is in nats per row, the smaller the better. The
# two models with `alpha=0.5` have the best densities: SGPR has too much noise, FITC too little.

# %%
Xtest = rng.uniform(0.0, 6.0, (500, 1))
Ytest = latent(Xtest) + 0.15 * rng.standard_normal(Xtest.shape)
nlpd = {}
print(f"{'':22}{'RMSE':>8}{'NLPD':>8}")
for name, model in models.items():
    mean, variance = (np.asarray(values) for values in model.predict_y(Xtest))
    nlpd[name] = metrics.nlpd(Ytest, mean, variance)
    print(f"{name:22}{metrics.rmse(Ytest, mean):8.3f}{nlpd[name]:8.3f}")
assert sorted(nlpd, key=nlpd.get)[:2] == ["PEPR, alpha = 0.5", "T-PEP, alpha = 0.5"]
assert noise["SGPR"] > 0.15 > noise["FITC: PEPR, alpha = 1"]
assert sorted(noise, key=lambda name: abs(noise[name] - 0.15))[:2] == [
    "T-PEP, alpha = 0.5",
    "PEPR, alpha = 0.5",
]

# %% [markdown]
# Without held-out rows, `select_alpha` compares powers by the leave-one-out densities of one fit for each power.
# `within_two_standard_errors` has the powers that are not significantly worse than the best. If inducing points are
# trained, leave-one-out rates `alpha=1` too high, as here; `folds=5` refits without parts of the rows and is more
# cautious.

# %%
found = select_alpha(
    lambda data, alpha: PEPR(data, kernel(), Z, alpha=alpha, **options),
    (X, Y),
    (0.0, 0.5, 1.0),
)
print(found)
assert found.alpha == 1.0 and 0.5 in found.within_two_standard_errors
print(
    "best:", found.alpha, " not significantly worse:", found.within_two_standard_errors
)

# %% [markdown]
# Leave-one-out densities of a regression model are exact: they equal the densities of a fit without the row at the same
# hyperparameters.

# %%
row = 40
others = np.delete(np.arange(len(X)), row)
without = PEPR(
    (X[others], Y[others]),
    half.kernel,
    half.inducing_variable,
    alpha=0.5,
    likelihood=half.likelihood,
)
refitted = without.predict_log_density((X[row : row + 1], Y[row : row + 1]))[0]
left_out = half.loo_log_predictive_density()[row]
print(
    f"log density of row {row}: leave-one-out {left_out:.8f}, refitted {refitted:.8f}"
)
np.testing.assert_allclose(left_out, refitted, rtol=1e-5)

# %% [markdown]
# ## The objective is a bound at alpha = 0 only
#
# **Figure:** at fixed hyperparameters the objective rises with alpha, from SGPR's bound towards the log evidence. For
# alpha > 0 it is an approximation, not a bound. `upper_bound()` bounds the log evidence from above for any alpha.

# %%
exact = gpflow.models.GPR((X, Y), half.kernel, likelihood=half.likelihood)
evidence = float(exact.maximum_log_likelihood_objective())
alphas = np.linspace(0.0, 1.0, 11)
values = []
for alpha in alphas:
    half.alpha = alpha
    values.append(float(half.maximum_log_likelihood_objective()))
assert values[0] < evidence < float(half.upper_bound())
assert np.all(np.diff(values) > 0.0)
fig, ax = plt.subplots(figsize=(5, 2.6))
ax.plot(alphas, values, "o-", ms=3, color=PREDICTION, label="objective of PEPR")
ax.axhline(evidence, color="k", ls=":", label="log evidence")
ax.set(xlabel="alpha", ylabel="nats")
ax.legend(fontsize=8)
fig.tight_layout()

# %% [markdown]
# For bounds tighter than SGPR's see `structured_bounds.ipynb`, for class labels `classification.ipynb`.
