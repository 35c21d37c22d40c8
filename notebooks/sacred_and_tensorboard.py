# %% [markdown]
# # Experiments with Sacred, curves in TensorBoard
#
# Run an experiment of the repository from the command line, read its record and show its log. `fit` alone writes the
# same log for your own models. For readers who keep their results. Runs in half a minute, without a network.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gpflow_pep import PEPR, fit
from gpflow_pep.inducing import k_means
from gpflow_pep.plotting import PREDICTION

plt.rcParams["figure.dpi"] = 150
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
# has the folder `experiments`
clone = Path.cwd() if Path("experiments").is_dir() else Path.cwd().parent

# %% [markdown]
# ## A run
#
# Each experiment is a command; `print_config` in place of `with ...` prints its settings. Runs are recorded in `runs/`,
# or in the folder given by `--file_storage`.

# %%
command = [
    sys.executable,
    "-m",
    "experiments.regression",
    f"--file_storage={folder / 'runs'}",
]
command += [
    "with",
    "dataset=diabetes",
    "model=PEPR",
    "alpha=0.5",
    "M=20",
    "maxiter=40",
    "log_interval=2",
    "seed=0",
]
ended = subprocess.run(
    [*command, "progress=False"], cwd=clone, capture_output=True, text=True, check=False
)
assert ended.returncode == 0, ended.stderr[-2000:]

# %% [markdown]
# ## Its record
#
# A folder per run: the whole configuration (by full names: `alpha` is `gp.alpha`), the result, all logged values, the
# output, and in `run.json` source files and versions.

# %%
run = folder / "runs" / "1"
print("files:", ", ".join(sorted(path.name for path in run.iterdir())))
config = json.loads((run / "config.json").read_text())
record = json.loads((run / "run.json").read_text())
metrics = json.loads((run / "metrics.json").read_text())
print(
    "config:",
    {
        "gp": {name: config["gp"][name] for name in ("model", "alpha", "M")},
        "seed": config["seed"],
    },
)
print("status:", record["status"])
kept = {
    name: value
    for name, value in record["result"].items()
    if isinstance(value, float) and name != "seconds"
}
print("result:", {name: round(value, 4) for name, value in kept.items()})
print("logged:", ", ".join(sorted(metrics)))
assert record["status"] == "COMPLETED" and config["gp"]["alpha"] == 0.5

# %% [markdown]
# ## The log in TensorBoard
#
# `tensorboard --logdir runs` shows the scalars of all runs in the browser. Its files can be read from Python as well.
#
# **Figure:** L-BFGS raises the objective (nats per row) quickly and then slowly. The test NLPD falls at first and is
# flat after some ten iterations; further training does not improve the predictions.


# %%
def scalars(directory):
    """Steps and values of each scalar in a folder of TensorBoard logs."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    found = {}
    for name in events.Tags()["tensors"]:
        entries = [
            (event.step, tf.make_ndarray(event.tensor_proto))
            for event in events.Tensors(name)
        ]
        if all(value.dtype.kind == "f" and value.ndim == 0 for _, value in entries):
            found[name] = np.array([(step, float(value)) for step, value in entries]).T
    return found


logged = scalars(run / "tensorboard")
fig, axes = plt.subplots(1, 2, figsize=(8, 2.6))
for ax, name in zip(axes, ("objective_per_point", "test/nlpd"), strict=True):
    ax.plot(*logged[name], "o-", ms=3, color=PREDICTION)
    ax.set(ylabel=f"{name}, nats per row", xlabel="iteration")
fig.tight_layout()
np.testing.assert_allclose(
    logged["objective_per_point"][1],
    metrics["objective_per_point"]["values"],
    rtol=1e-6,
)
np.testing.assert_allclose(
    logged["objective_per_point"][1][-1],
    record["result"]["objective_per_point"],
    rtol=1e-6,
)

# %% [markdown]
# A sweep (`python -m experiments.sweep sweep.toml`) makes one such run for each combination of data sets, splits,
# models, powers and numbers of inducing points, and prints a table of means; see `experiments/README.md`.
#
# ## The same log from `fit`
#
# `fit(..., tensorboard=...)` logs the objective, parameters and scores of held-out rows of any model. For inputs of one
# or two dimensions it also logs pictures of the predictions, every ten records.

# %%
rng = np.random.default_rng(6)
X = rng.uniform(0.0, 6.0, (200, 1))
Y = np.sin(3.0 * X) + 0.2 * rng.standard_normal(X.shape)
model = PEPR(
    (X[:150], Y[:150]),
    gpflow.kernels.SquaredExponential(),
    k_means(X[:150], 12, seed=0),
    alpha=0.5,
)
result = fit(
    model, max_iterations=30, held_out=(X[150:], Y[150:]), tensorboard=folder / "logs"
)
logged = scalars(folder / "logs")
print(", ".join(sorted(logged)))
np.testing.assert_allclose(logged["objective"][1], result.objective, rtol=1e-6)

# %% [markdown]
# **Figure:** the last picture in TensorBoard's tab "Images": observations, mean and two standard deviations of y, and
# inducing points (black) at the bottom.

# %%
events = EventAccumulator(str(folder / "logs"), size_guidance={"tensors": 0}).Reload()
# width, height, PNG
last = tf.make_ndarray(events.Tensors("predictions")[-1].tensor_proto)
fig, ax = plt.subplots(figsize=(4.5, 3.4), dpi=100)
ax.imshow(tf.io.decode_png(last[2]))
ax.axis("off")
fig.tight_layout()
temporary.cleanup()
