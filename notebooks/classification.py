# %% [markdown]
# # Classification: EP, power EP, quantile propagation, leave-one-out
#
# `PEPClassifier` replaces `gpflow.models.SVGP` (or `VGP`) for class labels. There is no q to train, and leave-one-out
# predictions cost as much as one prediction. For readers who have classified with GPflow. Runs in half a minute,
# without a network.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gpflow_pep import PEPClassifier, fit
from gpflow_pep.inducing import k_means
from gpflow_pep.likelihoods import Probit
from gpflow_pep.plotting import CLASSES, PREDICTION, ClassDisplay

plt.rcParams["figure.dpi"] = 150
X, labels = make_moons(160, noise=0.3, random_state=0)  # [N, D]
Y = labels[:, None].astype(float)  # [N, 1] of 0 and 1
Xtest, test_labels = make_moons(500, noise=0.3, random_state=1)
Ytest = test_labels[:, None].astype(float)
Z = k_means(X, 12, seed=0)  # [M, D]

# %% [markdown]
# ## From SVGP to PEPClassifier
#
# No likelihood is given, so `PEPClassifier` chooses `Probit` for labels 0 and 1. `fit` updates the sites until they
# converge and trains the kernel; the k-means points stay (`train_inducing=True` trains them). Later calls update the
# sites again if something has changed.

# %%
model = PEPClassifier(
    (X, Y), gpflow.kernels.SquaredExponential(), inducing_variable=Z, alpha=0.5
)
result = fit(model, max_iterations=50)
print(result)
print(result.sites)
probability, _ = model.predict_y(Xtest)  # [n, 1], of label 1
errors = np.mean((probability.numpy() > 0.5) != Ytest)
print(f"test error {errors:.3f}")
assert result.sites.converged and errors < 0.12

# %% [markdown]
# ## The powers: variational at 0, EP at 1
#
# At `alpha=0` the sites converge to the q that is optimal for SVGP, and the objective is SVGP's bound at that q:
# GPflow's `SVGP` with that q has the same value, and no other q has a better one.

# %%
model.alpha = 0.0
points = model.inducing_variable.Z
mean, covariance = model.predict_f(points, full_cov=True)
svgp = gpflow.models.SVGP(
    model.kernel,
    model.likelihood,
    model.inducing_variable,
    q_mu=mean,
    q_sqrt=np.linalg.cholesky(covariance + 1e-8 * np.eye(len(Z))),
    whiten=False,
)
bound, same = float(model.maximum_log_likelihood_objective()), float(svgp.elbo((X, Y)))
print(f"PEPClassifier at alpha = 0: {bound:.5f}, SVGP with its q: {same:.5f}")
np.testing.assert_allclose(bound, same, rtol=1e-3)
svgp.q_mu.assign(svgp.q_mu + 0.1)
assert float(svgp.elbo((X, Y))) < bound

# %% [markdown]
# Training for each power starts from the parameters of the last one here; nothing is traced again.
#
# **Figure:** near the data the boundary of probability 1/2 (black) is much the same for all powers, and so are the test
# densities. Deeper colors mean more certainty; at `alpha=1` they fade sooner away from the data. Circles are inducing
# points.

# %%
fig, axes = plt.subplots(1, 3, figsize=(9, 2.9), sharex=True, sharey=True)
for ax, alpha in zip(axes, (0.0, 0.5, 1.0), strict=True):
    model.alpha = alpha
    fit(model, max_iterations=40)
    density = float(np.mean(model.predict_log_density((Xtest, Ytest))))
    limits = [(-2.0, 3.0), (-1.6, 2.2)]
    ClassDisplay.from_model(model, (X, Y), ax=ax, limits=limits)
    ax.set_title(f"alpha = {alpha:g}: test NLPD {-density:.3f}", fontsize=10)
    ax.label_outer()
    if ax is not axes[-1]:
        ax.get_legend().remove()
fig.tight_layout()

# %% [markdown]
# ## EP for a full Gaussian process
#
# With `inducing_variable=X` and `alpha=1` `PEP` is EP for the full process (Rasmussen and Williams, chapter 3), whose
# estimate of the log evidence is usually closer than a bound. `reset_sites` starts from the prior; `update_sites`
# returns the status.

# %%
full = PEPClassifier((X, Y), model.kernel, Probit(), X, alpha=1.0)
full.reset_sites()
status = full.update_sites()
ep = float(full.maximum_log_likelihood_objective())
vgp_bound = PEPClassifier((X, Y), model.kernel, Probit(), X, alpha=0.0)
variational = float(vgp_bound.maximum_log_likelihood_objective())
print(
    f"sweeps {status.sweeps}; log evidence: EP {ep:.3f}, "
    f"variational bound {variational:.3f}"
)
assert status.converged and variational < ep

# %% [markdown]
# ## Quantile propagation
#
# `projection="wasserstein"`: each site matches quantiles of the tilted distribution rather than its variance (Zhang et
# al. 2020). Its variances are smaller than EP's.
#
# **Figure:** the ratio of the standard deviations of f, QP's to EP's, at the rows. It is below 1 everywhere, by two
# percent at most.

# %%
qp = PEPClassifier(
    (X, Y), model.kernel, Probit(), X, alpha=1.0, projection="wasserstein"
)
sd_ep, sd_qp = (np.sqrt(each.predict_f(X)[1].numpy()[:, 0]) for each in (full, qp))
print(
    f"sites converged: {qp.sites_status.converged}; "
    f"ratio of s.d., QP to EP: {sd_qp.mean() / sd_ep.mean():.3f}"
)
assert qp.sites_status.converged and np.all(sd_qp < sd_ep)
fig, ax = plt.subplots(figsize=(5, 2.4))
ax.plot(sd_ep, sd_qp / sd_ep, ".", ms=4, color=PREDICTION)
ax.axhline(1.0, color="k", ls=":", lw=1)
ax.set(xlabel="EP: s.d. of f", ylabel="QP / EP")
fig.tight_layout()
assert np.all(sd_qp / sd_ep > 0.975)

# %% [markdown]
# ## Leave-one-out
#
# `loo_log_predictive_density()` [N] is the log density of each label given all others, at fixed hyperparameters, from
# the cavities of one fit. It approximates refits without the row, here for eight rows.

# %%
loo = model.loo_log_predictive_density().numpy()  # [N]
rows = np.argsort(loo)[::20]
refitted = []
for row in rows:
    others = np.delete(np.arange(len(X)), row)
    model.data = X[others], Y[others]  # any number of rows: nothing is compiled again
    refitted.append(
        float(model.predict_log_density((X[row : row + 1], Y[row : row + 1]))[0])
    )
model.data = X, Y
for row, value, truth in zip(rows, loo[rows], refitted, strict=True):
    print(f"row {row:3}: leave-one-out {value:8.4f}, refitted {truth:8.4f}")
np.testing.assert_allclose(loo[rows], refitted, rtol=0.05, atol=0.01)

# %% [markdown]
# **Figure:** the larger a circle, the smaller the probability of its label given the other rows. The largest circles
# lie among the other class: candidates for wrong labels.

# %%
fig, ax = plt.subplots(figsize=(4.5, 3.2))
colors = [CLASSES[label] for label in labels]
ax.scatter(*X.T, c=colors, s=4 + 40 * -loo, alpha=0.7)
worst = np.argsort(loo)[:5]
ax.scatter(*X[worst].T, s=300, facecolors="none", edgecolors="k")
ax.set(xlabel="x1", ylabel="x2")
fig.tight_layout()
predicted = model.predict_y(X[worst])[0].numpy()[:, 0] > 0.5
assert np.all(predicted != labels[worst])

# %% [markdown]
# `select_alpha` chooses `alpha` by these densities (see `from_sgpr_to_pep.ipynb`). `PEP` takes other likelihoods, such
# as Poisson or Student-t, in the same way.
