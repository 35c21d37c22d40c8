"""Checkpoints of a training run, for exact resumption; checks of the runs of several workers."""

import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..runtime import Workers, warn
from ..saving.arrays_file import (
    FilePath,
    assign_arrays,
    check_writable,
    load_arrays,
    save_arrays,
    unusable,
)
from ..saving.run_identity import differing, fingerprint
from .result import STATUSES

HISTORY = ("iterations", "seconds", "recorded", "objective", "held_out", "ended")
"""The record of a run: attributes of :class:`.history.History`, and the outcome at the end."""
_VERSION = 1  # format of the file, compared as part of a run's identity
# Entries of a run's identity that may differ between workers.
_PER_WORKER = frozenset({"data", "model.blocks", "model.dataset"})


class Checkpoints:
    """The checkpoint file of one run, replaced at intervals."""

    def __init__(self, path: FilePath, run: Mapping[str, object], seconds: float, *, writes: bool):
        """
        :param run: identity of the run: settings, model and data, as JSON data.
        :param seconds: the minimum time between two writes, in seconds.
        :param writes: whether this process writes the file; False: another worker does.
        :raises ValueError: if the directory does not exist, or the file cannot be written.
        """
        self._path = Path(path)
        self._seconds = seconds
        self._writes = writes
        if not self._path.parent.is_dir():
            raise ValueError(f"checkpoint must be in a directory that exists, got {str(path)!r}.")
        try:
            check_writable(self._path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(
                f"checkpoint must be a file that can be written, got {str(path)!r}: {reason}."
            ) from error
        self._has_failed = False
        self._run: dict[str, object] = json.loads(json.dumps({"version": _VERSION, **run}))
        self._last = time.perf_counter()

    @property
    def is_due(self) -> bool:
        """True if the minimum time since the last write has passed."""
        return time.perf_counter() - self._last >= self._seconds

    def save(self, history: Mapping[str, object], variables: Mapping[str, tf.Variable]) -> None:
        """Replace the file if this process writes it; if that fails, keep it and warn once."""
        if not self._writes:
            return
        arrays = {name: value.numpy() for name, value in variables.items()}
        arrays["about"] = np.array(json.dumps({"run": self._run, "history": history}))
        try:
            save_arrays(self._path, arrays)
        except OSError as error:
            if not self._has_failed:
                reason = error.strerror or str(error)
                warn(
                    f"checkpoint {str(self._path)!r} could not be written: {reason}; "
                    "training continues"
                )
            self._has_failed = True
        self._last = time.perf_counter()

    def restore(self, variables: Mapping[str, tf.Variable]) -> dict[str, Any] | None:
        """
        Assign the file's values to the variables and return its history; None if there is no file.

        :raises ValueError: if the file is damaged or belongs to another run; then no variable is
            assigned.
        """
        if not self._path.exists():
            return None
        arrays = load_arrays(self._path, "checkpoint")
        run, history = self._about(arrays.pop("about", None))
        names = differing(self._run, run) or sorted(arrays.keys() ^ variables.keys())
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # a message of one line
            differ = "differs" if len(names) == 1 else "differ"
            raise ValueError(
                f"checkpoint {str(self._path)!r} was written by a different run: "
                f"{', '.join(names[:3])}{more} {differ}. "
                "Give another path, or delete the file to start over."
            )
        try:
            assign_arrays(arrays, variables)
        except ValueError as error:
            raise unusable(self._path, "checkpoint", str(error)) from error
        return history

    def _about(self, about: AnyNDArray | None) -> tuple[dict[str, object], dict[str, object]]:
        """Return identity and history of the run; its "ended" is the outcome of a finished run."""
        if about is None or about.dtype.kind != "U" or about.ndim != 0:
            raise ValueError(f"{str(self._path)!r} is not a checkpoint of `fit`.")
        try:
            record = json.loads(str(about))
            if not isinstance(record, dict) or not isinstance(record.get("run"), dict):
                raise ValueError("it has no record of a run")
            history = record.get("history")
            if not isinstance(history, dict) or history.keys() != set(HISTORY):
                raise ValueError("it has no record of the training")
            iterations, seconds, recorded, objective, held_out, ended = (
                history[name] for name in HISTORY
            )
            accepted = (
                _are([iterations], int) and iterations >= 0,
                _are([seconds], int, float) and 0.0 <= seconds < 1e18,
                _are(recorded, int) and min(recorded, default=0) >= 0,
                _are(objective, int, float),
                isinstance(held_out, dict)
                and all(_are(scores, int, float) for scores in held_out.values()),
                ended is None or (_are(ended, str) and len(ended) == 2 and ended[0] in STATUSES),
            )
            for name, is_accepted in zip(HISTORY, accepted, strict=True):
                if not is_accepted:
                    raise ValueError(
                        f"its record of the training cannot have {name} {history[name]!r}"
                    )
        except (ValueError, RecursionError) as error:
            raise unusable(self._path, "checkpoint", str(error)) from error
        return record["run"], history


def _are(values: object, *types: type) -> bool:
    """Return whether the values are a list of these types, without huge integers."""
    return isinstance(values, list) and all(
        type(value) in types and not (type(value) is int and abs(value) > 2**53) for value in values
    )


def check_same_run(
    workers: Workers, model: GPModel, run: Mapping[str, object]
) -> dict[str, object]:
    """Check that all workers run the same training; return the identity of the joint run."""
    power = getattr(model, "alpha", None)
    per_worker = _PER_WORKER
    if power is not None and power.shape.rank != 0:
        per_worker |= {"model.alpha"}
    per_worker &= run.keys()
    compared = {name: _checksum(run[name]) for name in sorted(run.keys() - per_worker)}
    compared["parameters at the start"] = _checksum_of_parameters(model)
    everyone = workers.gather(*compared.values())
    for index, different in enumerate(everyone != everyone[0]):
        if different.any():
            names = ", ".join(np.array(list(compared))[different])
            raise ValueError(
                "all workers must run the same training, "
                f"but worker {index} differs from worker 0 in {names}."
            )
    gathered = {name: workers.gather(_checksum(run[name])).tolist() for name in sorted(per_worker)}
    return {**run, **gathered}


def check_same_start(workers: Workers, iterations: int, model: GPModel) -> None:
    """Raise a `ValueError` naming a worker that resumes from another checkpoint than worker 0."""
    everyone = workers.gather(iterations, _checksum_of_parameters(model))
    for index, values in enumerate(everyone):
        if (values != everyone[0]).any():
            raise ValueError(
                f"checkpoint must be the same file for all workers, but worker {index} resumes "
                f"after {values[0]} iterations and worker 0 after {everyone[0][0]}, or from other "
                "parameters: use a shared file system."
            )


def _checksum(value: object) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _checksum_of_parameters(model: GPModel) -> int:
    return fingerprint(*(variable.numpy() for variable in model.trainable_variables))
