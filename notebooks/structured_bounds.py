# %% [markdown]
# # Structured bounds
#
# `TSGPR` and `BTSGPR` bound the log evidence as SGPR does, but more tightly; `TSVGP` and `BTSVGP` do so with
# minibatches. For readers who trust SGPR's bound and want a tighter one. Runs in half a minute, without a network.

# %%
from itertools import pairwise

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep import BTSGPR, BTSVGP, PEPR, TSGPR, TSVGP, fit
from gpflow_pep.data.minibatches import Minibatches

plt.rcParams["figure.dpi"] = 150
SHADES = plt.get_cmap("Blues")(np.linspace(0.35, 1.0, 5))  # the darker, the tighter
rng = np.random.default_rng(2)
N = 200
X = np.sort(rng.uniform(0.0, 8.0, (N, 1)), axis=0)  # [N, D]
kernel = gpflow.kernels.Matern52(lengthscales=0.7)
L = np.linalg.cholesky(kernel(X).numpy() + 1e-8 * np.eye(N))
# [N, P], of the model itself
Y = L @ rng.standard_normal((N, 1)) + 0.2 * rng.standard_normal((N, 1))
likelihood = gpflow.likelihoods.Gaussian(variance=0.04)
exact = gpflow.models.GPR((X, Y), kernel, likelihood=likelihood)
evidence = float(exact.maximum_log_likelihood_objective())


def points(M):
    return np.linspace(0.0, 8.0, M)[:, None]


# %% [markdown]
# ## Five bounds at the same parameters
#
# With D = Kff - Qff, d its diagonal and L0 = log N(y; 0, Qff + σ²I), the bounds subtract from L0
#
# | | |
# |---|---|
# | SGPR: `PEPR(..., alpha=0)` | Σ d/(2σ²) |
# | spherical: `PEPR(..., alpha=0, scale="optimal")` | N/2 log(1 + Σ d/(Nσ²)) |
# | `TSGPR` | 1/2 Σ log(1 + d/σ²) |
# | `BTSGPR(..., blocks=...)` | 1/2 Σ log det(I + D_bb/σ²), a sum over blocks b of rows |
#
# Each is at least as tight as the one above it. `blocks=10` makes blocks of ten consecutive rows; labels [N] or a list
# of index arrays are accepted, too. One block of all rows is the tightest, but costs as much as the exact GP.

# %%
shared = {"kernel": kernel, "likelihood": likelihood}


def bounds(M):
    Z = points(M)
    models = {
        "SGPR": PEPR((X, Y), **shared, inducing_variable=Z, alpha=0.0),
        "spherical": PEPR(
            (X, Y), **shared, inducing_variable=Z, alpha=0.0, scale="optimal"
        ),
        "TSGPR": TSGPR((X, Y), **shared, inducing_variable=Z),
        "BTSGPR, blocks of 10": BTSGPR(
            (X, Y), **shared, inducing_variable=Z, blocks=10
        ),
        "BTSGPR, one block": BTSGPR((X, Y), **shared, inducing_variable=Z, blocks=N),
    }
    return {
        name: float(model.maximum_log_likelihood_objective())
        for name, model in models.items()
    }


found = bounds(12)
for name, value in found.items():
    print(f"{name:22}{value:10.2f}")
print(f"{'log evidence':22}{evidence:10.2f}")
upper = float(TSGPR((X, Y), **shared, inducing_variable=points(12)).upper_bound())
print(f"{'upper bound':22}{upper:10.2f}")
ordered = [*found.values(), evidence, upper]
assert all(one < other for one, other in pairwise(ordered))

# %% [markdown]
# **Figure:** the gap between each bound and the log evidence, on a logarithmic scale. It closes as inducing points are
# added. With 9 to 12 points blocks of ten leave a fraction of SGPR's gap, nearly as little as one block. With 40 points
# all bounds agree, since D vanishes.

# %%
sizes = (6, 9, 12, 16, 20, 30, 40)
curves = [bounds(M) for M in sizes]
fig, ax = plt.subplots(figsize=(6.5, 3.2))
for name, color, marker in zip(curves[0], SHADES, "os^Dv", strict=True):
    gaps = [evidence - values[name] for values in curves]
    ax.semilogy(sizes, gaps, f"{marker}-", ms=4, color=color, label=name)
ax.set(xlabel="inducing points", ylabel="log evidence - bound, nats")
ax.legend(fontsize=8)
fig.tight_layout()
for values in curves:
    in_order = [*values.values(), evidence]
    assert all(one <= other + 1e-6 for one, other in pairwise(in_order))

# %% [markdown]
# ## Training with a tighter bound
#
# Training a loose bound favors hyperparameters at which the bound is tight: too much noise, too long lengthscales. Here
# each bound is trained from the same start, with eight inducing points.
#
# **Figure:** the tighter the bound, the closer its learned noise (points) is to the exact GP's (dotted).

# %%
trained = {
    "SGPR": PEPR((X, Y), gpflow.kernels.Matern52(), points(8), alpha=0.0),
    "TSGPR": TSGPR((X, Y), gpflow.kernels.Matern52(), points(8)),
    "BTSGPR, blocks of 10": BTSGPR(
        (X, Y), gpflow.kernels.Matern52(), points(8), blocks=10
    ),
    "exact": gpflow.models.GPR((X, Y), gpflow.kernels.Matern52()),
}
noise = {}
for name, model in trained.items():
    result = fit(model, max_iterations=150)
    noise[name] = float(np.sqrt(model.likelihood.variance))
    print(
        f"{name:22}{result.objective[-1]:10.2f} nats   noise s.d. {noise[name]:.3f}   "
        f"{result.status}"
    )
assert noise["SGPR"] > noise["TSGPR"] > noise["BTSGPR, blocks of 10"] > noise["exact"]

fig, ax = plt.subplots(figsize=(5, 2.2))
ax.plot(list(noise.values())[:3][::-1], list(noise)[:3][::-1], "o", color=SHADES[3])
ax.axvline(noise["exact"], color="k", ls=":", label="exact process")
ax.set_xlabel("noise s.d. found")
ax.legend(fontsize=8, loc="lower right")
ax.set_ylim(-0.5, 2.5)
fig.tight_layout()

# %% [markdown]
# ## The same with minibatches
#
# `TSVGP` and `BTSVGP` are the minibatch forms of `TSGPR` and `BTSGPR`. At equal parameters SVGP ≤ TSVGP ≤ BTSVGP ≤ log
# evidence. To compare them without training noise, all get the q(u) that is optimal for SVGP.

# %%
mean, covariance = trained["SGPR"].predict_f(
    trained["SGPR"].inducing_variable.Z, full_cov=True
)
q_mu, q_sqrt = mean.numpy(), np.linalg.cholesky(covariance.numpy() + 1e-9 * np.eye(8))
common = {
    "inducing_variable": trained["SGPR"].inducing_variable,
    "num_data": N,
    "whiten": False,
}
common |= {
    "kernel": trained["SGPR"].kernel,
    "likelihood": trained["SGPR"].likelihood,
    "q_mu": q_mu,
    "q_sqrt": q_sqrt,
}
svgp, tsvgp, btsvgp = gpflow.models.SVGP(**common), TSVGP(**common), BTSVGP(**common)

# A minibatch of BTSVGP is a block. Objectives are scaled to N rows: the bound is their mean over the blocks.
blocks = Minibatches(N, 20, fixed=True, seed=0)
epoch = [blocks.rows(step) for step in range(N // 20)]
values = [
    np.mean([float(model.elbo((X[rows], Y[rows]))) for rows in epoch])
    for model in (svgp, tsvgp, btsvgp)
]
collapsed = float(trained["SGPR"].maximum_log_likelihood_objective())
print(
    f"SVGP {values[0]:.2f} (SGPR {collapsed:.2f})   TSVGP {values[1]:.2f}   "
    f"BTSVGP {values[2]:.2f}"
)
np.testing.assert_allclose(values[0], collapsed, rtol=1e-4)
assert values[0] < values[1] < values[2]

# %% [markdown]
# `fit` draws the minibatches (fixed blocks for `BTSVGP`) and takes natural gradients of q(u), Adam for the rest.
#
# **Figure:** the structured bounds end above SVGP's, blocks highest. The curves are means over minibatches since the
# last record.

# %%
fig, ax = plt.subplots(figsize=(5.5, 2.8))
ended = {}
for kind, color in zip((gpflow.models.SVGP, TSVGP, BTSVGP), SHADES[::2], strict=True):
    model = kind(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), points(8), num_data=N
    )
    result = fit(
        model,
        (X, Y),
        batch_size=20,
        max_iterations=1500,
        learning_rate=0.02,
        interval=50,
    )
    ended[kind.__name__] = np.mean(result.objective[-5:])
    ax.plot(result.recorded, result.objective, color=color, label=kind.__name__)
ax.set(xlabel="steps", ylabel="objective, nats", xlim=(200, None), ylim=(-90.0, -50.0))
ax.legend(fontsize=8)
fig.tight_layout()
print({name: round(float(value), 1) for name, value in ended.items()})
assert ended["SVGP"] < ended["TSVGP"] < ended["BTSVGP"]
