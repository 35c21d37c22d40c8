# %% [markdown]
# # Streams: learn from a batch, and discard it
#
# `StreamingSGPR` and `StreamingPEP` learn from a batch, keep their posterior as one site on the old inducing points,
# and discard the batch. For readers who would otherwise refit `SGPR` on all rows so far. Runs in half a minute, without
# a network.

# %%
import tempfile
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep import PEPR, StreamingPEP, StreamingSGPR, StreamState, fit
from gpflow_pep.likelihoods import Probit
from gpflow_pep.plotting import CLASSES, OLD_ROWS, ROWS, PredictionDisplay

plt.rcParams["figure.dpi"] = 150
rng = np.random.default_rng(4)


def latent(x):
    return np.sin(x) + 0.5 * np.sin(2.7 * x)


X = np.sort(rng.uniform(0.0, 20.0, (400, 1)), axis=0)  # in the order of arrival
Y = latent(X) + 0.2 * rng.standard_normal(X.shape)
batches = [
    (X[start : start + 80], Y[start : start + 80]) for start in range(0, 400, 80)
]
Xnew = np.linspace(0.0, 20.0, 300)[:, None]

# %% [markdown]
# ## Exact with fixed hyperparameters and inducing points
#
# With fixed hyperparameters and inducing points a stream has the posterior of all rows at once, and its objectives add
# up to the objective of all rows.

# %%
Z = np.linspace(0.0, 20.0, 25)[:, None]
fixed = {
    "kernel": gpflow.kernels.SquaredExponential(),
    "noise_variance": 0.04,
    "alpha": 0.5,
}
together = PEPR((X, Y), inducing_variable=Z, **fixed)

stream = StreamingSGPR(batches[0], inducing_variable=Z, **fixed)
total = float(stream.maximum_log_likelihood_objective())
for batch in batches[1:]:
    stream.update(batch)
    total += float(stream.maximum_log_likelihood_objective())

print(
    f"objectives of {len(batches)} batches: {total:.6f}, "
    f"of all rows: {together.maximum_log_likelihood_objective():.6f}"
)
np.testing.assert_allclose(
    total, together.maximum_log_likelihood_objective(), rtol=0.0, atol=1e-5
)
for value, expected in zip(
    stream.predict_f(Xnew), together.predict_f(Xnew), strict=True
):
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)

# %% [markdown]
# ## Learning on the way
#
# Usually the first batch determines neither the hyperparameters nor the inducing points. `update` takes the next batch.
# `fraction_to_move=0.4` moves up to two fifths of the inducing points to the inputs of the batch with the largest
# variance given the other points. `fit` trains between updates. Small powers are best for streams: `alpha=0` here.
#
# **Figure:** the model after batches 1, 3 and 5. Only the dark rows are in memory. The light rows were discarded, but
# the posterior still follows the truth (dotted) there. Inducing points (ticks) have spread over the inputs so far,
# and beyond the last batch the band is wide.

# %%
model = StreamingSGPR(
    batches[0],
    gpflow.kernels.SquaredExponential(),
    np.linspace(0.0, 4.0, 20)[:, None],
    alpha=0.0,
)
fig, axes = plt.subplots(3, 1, figsize=(8, 5.2), sharex=True, sharey=True)
for number, batch in enumerate(batches):
    if number:
        model.update(batch, fraction_to_move=0.4)
    result = fit(model, max_iterations=30)
    if number % 2:
        continue
    ax = axes[number // 2]
    PredictionDisplay.from_model(model, batch, ax=ax, limits=(0.0, 20.0))
    ax.plot(X[: 80 * number], Y[: 80 * number], ".", ms=3, color=OLD_ROWS)
    ax.plot(Xnew, latent(Xnew), "k:", lw=1)
    noise = float(np.sqrt(model.likelihood.variance))
    ax.set_title(f"after batch {number + 1}: noise s.d. {noise:.3f}", fontsize=9)
    ax.set_ylim(-3.4, 3.4)
    ax.label_outer()
fig.tight_layout()
error = np.sqrt(np.mean((model.predict_f(Xnew)[0] - latent(Xnew)) ** 2))
print(f"RMSE to the truth, over the whole stream: {error:.3f}")
assert error < 0.15

# %% [markdown]
# ## Saving the state
#
# `state` has everything the next batch needs. A model made from it continues bit for bit. Its size does not depend on
# the number of earlier batches.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "stream.npz"
    model.state.save(path)
    print(f"{path.stat().st_size / 1000:.0f} kB")
    again = StreamingSGPR.from_state(
        StreamState.load(path), gpflow.kernels.SquaredExponential()
    )
for one, other in zip(model.predict_f(Xnew), again.predict_f(Xnew), strict=True):
    np.testing.assert_array_equal(one, other)

# %% [markdown]
# ## Labels that arrive in batches
#
# `StreamingPEP` does the same with any likelihood. Only the rows of the batch have sites; `fit` trains each batch.
#
# **Figure:** the probability of label 1 after each of two batches; the second begins at the vertical line. After the
# first batch the probability is 1/2 beyond the data. The second batch adds its part and leaves the earlier part nearly
# unchanged.

# %%
labels = (Y > 0.0).astype(float)
Z = np.linspace(0.0, 20.0, 25)[:, None]
classifier = StreamingPEP(
    (X[:200], labels[:200]), gpflow.kernels.SquaredExponential(), Probit(), Z, alpha=0.5
)
gpflow.set_trainable(classifier.inducing_variable, False)
fig, ax = plt.subplots(figsize=(8, 2.6))
for number, style in enumerate((":", "-")):
    if number:
        classifier.update((X[200:], labels[200:]))
    result = fit(classifier, max_iterations=15)
    assert result.sites.converged
    probability, _ = classifier.predict_y(Xnew)
    label = f"after batch {number + 1}"
    ax.plot(Xnew, probability, style, color=CLASSES[1], label=label)
ax.plot(X, labels, "|", color=ROWS, ms=5)
ax.axvline(X[200, 0], color="k", lw=0.5)
ax.set(xlabel="x", ylabel="probability of label 1")
ax.legend(fontsize=8)
fig.tight_layout()
wrong = np.mean((classifier.predict_y(X)[0].numpy() > 0.5) != labels)
print(f"errors on all rows, after the last batch: {wrong:.3f}")
assert wrong < 0.15
