# %% [markdown]
# # More rows than memory, and several workers
#
# `PEPR`, `TSGPR`, `PEP` and `PEPClassifier` can read their rows from files and divide them among processes. The
# objective still sums over all rows. For readers who use `SVGP` only because `SGPR` runs out of memory. Runs in 40
# seconds, without a network.

# %%
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_pep import PEPR, fit
from gpflow_pep.data.readers import array_batches, csv_batches, standardized, statistics
from gpflow_pep.inducing import k_means
from gpflow_pep.plotting import draw_inducing_points

plt.rcParams["figure.dpi"] = 150
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
rng = np.random.default_rng(5)
X = rng.uniform(-3.0, 3.0, (20_000, 2))  # [N, D]
Y = np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:]) + 0.2 * rng.standard_normal((len(X), 1))
np.save(folder / "X.npy", X)
np.save(folder / "Y.npy", Y)
Z = k_means(X[:2000], 30, seed=0)  # [M, D]

# %% [markdown]
# ## Rows from a file
#
# `array_batches` takes anything that can be sliced: arrays mapped from a file, HDF5 data sets. The result is a
# `tf.data.Dataset` of batches, which takes the place of `(X, Y)`. Each evaluation reads all rows once, or twice with
# the gradient. Memory depends on the size of a batch. The objective is not approximated:

# %%
rows = array_batches(
    np.load(folder / "X.npy", mmap_mode="r"),
    np.load(folder / "Y.npy", mmap_mode="r"),
    batch_size=2500,
)
from_file = PEPR(
    rows, gpflow.kernels.SquaredExponential(), Z, alpha=0.5, noise_variance=0.1
)
in_memory = PEPR(
    (X, Y), gpflow.kernels.SquaredExponential(), Z, alpha=0.5, noise_variance=0.1
)
one, other = (
    float(model.maximum_log_likelihood_objective()) for model in (from_file, in_memory)
)
print(f"objective from the file {one:.6f}, in memory {other:.6f}")
np.testing.assert_allclose(one, other, rtol=1e-10)

# %%
result = fit(from_file, max_iterations=8)
print(result)
noise = float(np.sqrt(from_file.likelihood.variance))
print(f"noise s.d. {noise:.3f} (true 0.2)")
assert abs(noise - 0.2) < 0.02

# %% [markdown]
# **Figure:** the mean learned from the file (left) has the pattern of the function without noise (right). Circles are
# the inducing points.

# %%
side = np.linspace(-3.0, 3.0, 40)
grid = np.stack(np.meshgrid(side, side), axis=-1)
learned = from_file.predict_f(grid.reshape(-1, 2))[0].numpy().reshape(40, 40)
truth = np.sin(2.0 * grid[..., 0]) * np.cos(grid[..., 1])
fig, axes = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for ax, values in zip(axes, (learned, truth), strict=True):
    image = ax.contourf(side, side, values, np.linspace(-1.2, 1.2, 13), cmap="Blues")
    ax.set_xlabel("east")
axes[0].set_ylabel("north")
fig.colorbar(image, ax=axes, label="height")
draw_inducing_points(axes[0], from_file.inducing_variable.Z.numpy())
assert np.sqrt(np.mean((learned - truth) ** 2)) < 0.1

# %% [markdown]
# ## Tables, and standardized columns
#
# `csv_batches` and `parquet_batches` read columns by name. `statistics` computes means and standard deviations in one
# pass, and `standardized` applies them to each batch as it is read.

# %%
np.savetxt(
    folder / "rows.csv",
    np.hstack([X, Y])[:3000],
    delimiter=",",
    header="east,north,height",
    comments="",
)
table = csv_batches(
    folder / "rows.csv", inputs=["east", "north"], outputs=["height"], batch_size=1000
)
found = statistics(table)
print("mean of X", found.X_mean.round(3), " s.d. of Y", found.Y_std.round(3))
standard = PEPR(
    standardized(table, found), gpflow.kernels.SquaredExponential(), Z / 1.7, alpha=0.5
)
print(
    "nats a row:", round(float(standard.maximum_log_likelihood_objective()) / 3000, 4)
)

# %% [markdown]
# The dataset must give the same rows in the same order each time, so it must not shuffle. Each pass is checked:

# %%
shuffled = PEPR(table.shuffle(3), gpflow.kernels.SquaredExponential(), Z, alpha=0.5)
try:
    for _ in range(10):
        shuffled.maximum_log_likelihood_objective()
except Exception as error:
    print(type(error).__name__, str(error)[:300])
else:
    raise AssertionError("a shuffled dataset must be refused")

# %% [markdown]
# ## Several workers
#
# In the scope of TensorFlow's `MultiWorkerMirroredStrategy` each process passes its own share of the rows. The workers
# exchange O(M²) numbers per step, independent of N, and take identical steps. This is the whole program of a worker. On
# several machines, `TF_CONFIG` has their names instead of loopback addresses.

# %%
program = """
import json, sys
import gpflow
import numpy as np
import tensorflow as tf
from gpflow_pep import PEPR, fit
from gpflow_pep.data.readers import array_batches

index, count = int(sys.argv[1]), int(sys.argv[2])
# before any other operation of TensorFlow
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    X, Y = (np.load(f"{name}.npy", mmap_mode="r") for name in "XY")
    share = slice(*(len(X) * part // count for part in (index, index + 1)))
    kernel, Z = gpflow.kernels.SquaredExponential(), np.load("Z.npy")
    rows = array_batches(X[share], Y[share], batch_size=2500)
    model = PEPR(rows, kernel, Z, alpha=0.5, noise_variance=0.1)
    result = fit(model, max_iterations=8, checkpoint="training.npz")
    values = [variable.numpy().ravel() for variable in model.trainable_variables]
parameters = np.concatenate(values)
found = {"rows": len(X[share]), "objective": result.objective[-1]}
print(json.dumps(found | {"parameters": parameters.tolist()}))
"""
(folder / "train.py").write_text(program)
np.save(folder / "Z.npy", Z)


def free_ports(count):
    """Return unused ports of the loopback address."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
workers = []
for index in range(2):
    config = {
        "cluster": {"worker": addresses},
        "task": {"type": "worker", "index": index},
    }
    command = [sys.executable, "train.py", str(index), "2"]
    environment = os.environ | {"TF_CONFIG": json.dumps(config)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers.append(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
outputs = [worker.communicate() for worker in workers]
for worker, (_, errors) in zip(workers, outputs, strict=True):
    assert worker.returncode == 0, errors[-2000:]
first, second = (json.loads(printed.splitlines()[-1]) for printed, _ in outputs)

# %% [markdown]
# Both workers end with the same parameters, bit for bit; they agree up to rounding with one process that has all rows.
# The chief, worker 0, wrote the checkpoint. If the workers are started again after a crash, all resume from it.

# %%
print(f"rows: {first['rows']} + {second['rows']}")
print(f"objective: {first['objective']:.6f}, of one process {result.objective[-1]:.6f}")
assert first["parameters"] == second["parameters"]
np.testing.assert_allclose(first["objective"], result.objective[-1], rtol=1e-6)
own = np.concatenate([np.ravel(variable) for variable in from_file.trainable_variables])
print(
    f"largest difference of a parameter: {np.abs(own - first['parameters']).max():.0e}"
)
np.testing.assert_allclose(first["parameters"], own, rtol=1e-3, atol=1e-3)
assert (folder / "training.npz").exists()
temporary.cleanup()

# %% [markdown]
# `python -m experiments.distributed --workers 3` measures seconds and bytes per step on your machine.
