"""
Kills, full disks and damaged checkpoints: training ends as if nothing had happened, or an error
names the file.

    killed     SIGKILL at any moment, at a record, before a call of the system or within a write
    full       files may have so many bytes only, which may be fewer than a checkpoint has
    damaged    the checkpoint has other bytes

The same call then goes on from the file that is there. All follows from the seed of the case but
what depends on the time.

    python -m campaign.faults [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import itertools
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from campaign.running import Campaign, Outcome, Rng, guarded, judged
from gpflow_pep import APEP, PEPR, TSVGP, PEPClassifier
from gpflow_pep.likelihoods import Probit
from gpflow_pep.saving.arrays_file import load_arrays
from gpflow_pep.training import fit

_CALLS = ("open", "fsync", "replace")
_MOST_SECONDS = 120  # of a training in a process
_WAYS = ("any moment", "record", "write", *_CALLS)
_BY_LBFGS = ("PEPR", "PEPClassifier")
# L-BFGS resumes from its best parameters, on another way to where 20 iterations gain less than
# 5e-4 nats a row, 0.02 in all; 3e-5 of some 20 nats has been seen.
_FLAT = 2e-3
# Forked from a process that has imported TensorFlow (6 s, once) and has run no operation of it.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["campaign.faults"])

_rng = np.random.default_rng(3)
X = _rng.uniform(-2.0, 2.0, (40, 1))
Y = np.sin(2.5 * X) + 0.2 * _rng.normal(size=X.shape)
LABELS = np.where(Y > 0.0, 1.0, 0.0)
Z = np.linspace(-1.8, 1.8, 5)[:, None]


class Case(NamedTuple):
    """A fault, and the training that it disturbs."""

    seed: int
    kind: str
    subject: str


class Trained(NamedTuple):
    """Results of a training."""

    values: dict[str, AnyNDArray]
    objective: tuple[float, ...]
    status: str


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(1.0, lengthscales=0.9)


def _classifier() -> PEPClassifier:
    model = PEPClassifier((X, LABELS), _kernel(), Probit(), Z)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


_ADAM = {"optimizer": "adam", "max_iterations": 15}
_IN_MINIBATCHES = {"max_iterations": 120, "interval": 5, "batch_size": 7, "learning_rate": 0.05}
_MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "PEPR": (lambda: PEPR((X, Y), _kernel(), Z, noise_variance=0.3, alpha=0.5), None),
    "PEPClassifier": (_classifier, None),
    "TSVGP": (
        lambda: TSVGP(_kernel(), gpflow.likelihoods.Gaussian(0.3), Z, num_data=len(X)),
        (X, Y),
    ),
    "APEP": (lambda: APEP(_kernel(), Probit(), Z, num_data=len(X)), (X, LABELS)),
}
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "PEPR": ("PEPR", {"max_iterations": 100}),
    "PEPClassifier": ("PEPClassifier", {"max_iterations": 100}),
    "PEPR, Adam": ("PEPR", _ADAM),
    "PEPClassifier, Adam": ("PEPClassifier", _ADAM),
    "PEPClassifier, minibatches": ("PEPClassifier", {**_ADAM, "batch_size": 16}),
    "TSVGP": ("TSVGP", _IN_MINIBATCHES),
    "APEP": ("APEP", _IN_MINIBATCHES),
}
"""Models, and options of `fit`."""


def train(subject: str, model: Any, path: Path, callback: Any = None) -> Trained:
    """Train a model, with a checkpoint at every record."""
    name, options = TRAININGS[subject]
    options = {"checkpoint": path, "checkpoint_seconds": 0.0, **options}
    result = fit(model, _MODELS[name][1], callback=callback, **options)
    return Trained(values_of(model), result.objective, result.status)


def new(subject: str) -> Any:
    """Make the model of a training."""
    return _MODELS[TRAININGS[subject][0]][0]()


def values_of(model: Any) -> dict[str, AnyNDArray]:
    """Copy the values of all parameters."""
    return {name: np.array(value) for name, value in gpflow.utilities.read_values(model).items()}


@cache
def undisturbed(subject: str) -> tuple[Trained, bytes]:
    """Return a training that nothing happens to, and its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.npz"
        return train(subject, new(subject), path), path.read_bytes()


def compared(subject: str, trained: Trained) -> Outcome:
    """Compare with the undisturbed training: bit for bit, or the objective of L-BFGS."""
    expected, _ = undisturbed(subject)
    if trained.status != expected.status:
        return Outcome("other status", np.nan, trained.status)
    if subject in _BY_LBFGS:
        lost = expected.objective[-1] - trained.objective[-1]
        return judged({"objective": max(lost, 0.0) / _FLAT})
    differ = trained.objective != expected.objective or any(
        not np.array_equal(trained.values[name], value) for name, value in expected.values.items()
    )
    return judged({"values": 2.0 * differ})


def again(case: Case, path: Path) -> Outcome:
    """Go on from a file, which is whole or absent, and compare the end."""
    if path.exists():
        load_arrays(path, "the file")
    return compared(case.subject, train(case.subject, new(case.subject), path))


# --- killed ---------------------------------------------------------------------------------------


def _perform(subject: str, path: Path, way: str, number: int) -> None:
    """Train, and die at the numbered record or call, or when a file has so many hundred bytes."""
    calls = itertools.count(1)

    def act(*_: Any) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if way == "write":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 * number, resource.RLIM_INFINITY))
    elif way in _CALLS:
        call = getattr(os, way)

        def act_and_call(*arguments: Any, **options: Any) -> Any:
            act()
            return call(*arguments, **options)

        setattr(os, way, act_and_call)
    train(subject, new(subject), path, act if way == "record" else None)


def killed(case: Case, path: Path, rng: Rng) -> Outcome:
    """Kill up to three processes at one training, one after the other; then bring it to an end."""
    for _ in range(rng.integers(1, 4)):
        way = str(rng.choice(_WAYS))
        victim = _PROCESSES.Process(
            target=_perform, args=(case.subject, path, way, int(rng.integers(1, 15)))
        )
        victim.start()
        if way == "any moment":
            time.sleep(rng.uniform(0.0, 3.0))
            victim.kill()
        victim.join(_MOST_SECONDS)
        if victim.is_alive():
            victim.kill()
            return Outcome("hung", np.nan, way)
        if victim.exitcode not in (0, -signal.SIGKILL, -signal.SIGXFSZ):
            return Outcome("died", np.nan, f"{way}: {victim.exitcode}")
    return again(case, path)


# --- full -----------------------------------------------------------------------------------------


@contextmanager
def _limited(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full(case: Case, path: Path, rng: Rng) -> Outcome:
    """Train where files cannot be written from some size on, then where they can."""
    size = int(rng.integers(1, 2 * len(undisturbed(case.subject)[1])))
    with _limited(size):
        outcome = compared(case.subject, train(case.subject, new(case.subject), path))
    return outcome if outcome.verdict != "right" else again(case, path)


# --- damaged --------------------------------------------------------------------------------------


def damage(content: bytes, rng: Rng) -> bytes:
    """Cut bytes off, flip bits, or let other bytes take the place of some."""
    start = int(rng.integers(len(content)))
    length = int(rng.integers(1, 200))
    places = rng.integers(len(content), size=rng.integers(1, 9))
    flipped = bytearray(content)
    for place in places:
        flipped[place] ^= 1 << int(rng.integers(8))
    ways = (
        content[:start],
        bytes(flipped),
        content[:start] + rng.bytes(length) + content[start + length :],
        content[:start] + content[length:][: len(content) - start],
    )
    return ways[rng.integers(len(ways))]


def damaged(case: Case, path: Path, rng: Rng) -> Outcome:
    """Train with a damaged checkpoint: the error names it, and neither file nor model changes."""
    written = damage(undisturbed(case.subject)[1], rng)
    path.write_bytes(written)
    model = new(case.subject)
    before = values_of(model)
    try:
        trained = train(case.subject, model, path)
    except ValueError as error:
        changed = path.read_bytes() != written or any(
            not np.array_equal(value, before[name]) for name, value in values_of(model).items()
        )
        said = str(error)
        is_clear = str(path) in said and "\n" not in said and len(said) < 700
        if changed:
            return Outcome("changed", np.nan, said)
        return Outcome("refused" if is_clear else "refused obscurely", np.nan, said)
    return compared(case.subject, trained)


KINDS = {"killed": killed, "full": full, "damaged": damaged}


def case_of(seed: int) -> Case:
    """Return the case of a seed: the kinds in turn."""
    rng = np.random.default_rng(seed)
    return Case(seed, list(KINDS)[seed % len(KINDS)], str(rng.choice(list(TRAININGS))))


def run(case: Case) -> Outcome:
    """Run a case in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        path = Path(folder) / "c.npz"
        rng = np.random.default_rng([case.seed, 1])
        return guarded(lambda: KINDS[case.kind](case, path, rng))


CAMPAIGN = Campaign(run, words=lambda case: case[1:], verdicts=("right", "refused"))

if __name__ == "__main__":
    CAMPAIGN.main(__doc__, case_of, 1000)
