"""Checkpoints of a training run: all that exact resumption needs."""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .. import validation
from ..runtime.checks import warn
from ..saving.arrays_file import ALTERED, check_writable, read_arrays, save_arrays, unusable
from ..saving.run_identity import difference
from .result import STATUSES

# The history that a checkpoint holds.


class SavedHistory(NamedTuple):
    """The history of a training run up to the checkpoint, as JSON data."""

    iterations: int
    seconds: float
    recorded: list[int]
    objective: list[float]
    held_out: dict[str, list[float]]
    ended: list[str] | None
    """Status and reason of a run that had ended; None if it had not."""


def saved_history_of(value: Any) -> SavedHistory:
    """
    Validate a `SavedHistory` decoded from JSON.

    :raises ValueError: if it is not one.
    """
    if not isinstance(value, dict) or value.keys() != set(SavedHistory._fields):
        raise ValueError("it has no record of the training")
    saved = SavedHistory(**value)
    validation.whole_number(saved.iterations, "iterations", 0, None)
    if not _are_numbers([saved.seconds]) or not 0.0 <= saved.seconds < math.inf:
        raise ValueError(f"seconds must be a finite number of at least 0, got {saved.seconds!r}")
    if not isinstance(saved.recorded, list):
        raise ValueError("recorded must be a list of iterations")
    for iteration in saved.recorded:
        validation.whole_number(iteration, "recorded", 0, None)
    scores = list(saved.held_out.values()) if isinstance(saved.held_out, dict) else [None]
    if not all(isinstance(values, list) and _are_numbers(values) for values in [saved.objective, *scores]):
        raise ValueError("objective and held_out must be lists of numbers")
    if saved.ended is not None and not _is_outcome(saved.ended):
        raise ValueError(f"ended must be a status and a reason, got {saved.ended!r}")
    return saved


def _is_outcome(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return is_pair and value[0] in STATUSES


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


_VERSION = 1
_WHAT = "checkpoint"
_MAY_BE_INFINITE = frozenset({"status"})  # of sites that have never been updated


class Checkpoints:
    """The checkpoint file of one run, replaced at intervals."""

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, Any], seconds: float, *, writes: bool = True):
        """
        :param run: identity of the run: settings, model and data, as JSON data.
        :param seconds: the least time between two writes, in seconds.
        :param writes: whether this process writes the file; otherwise another worker does.
        :raises ValueError: if the directory does not exist, or the file cannot be written.
        """
        self._path, self._seconds, self._writes = Path(path), seconds, writes
        if not self._path.parent.is_dir():
            raise ValueError(f"checkpoint must be in a directory that exists, got {str(path)!r}.")
        try:
            check_writable(self._path)
        except OSError as error:
            raise ValueError(
                f"checkpoint must be a file that can be written, got {str(path)!r}: {_reason(error)}."
            ) from error
        self._has_failed = False
        self._run: dict[str, Any] = json.loads(json.dumps({"version": _VERSION, **run}))
        self._last = time.perf_counter()

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed."""
        return time.perf_counter() - self._last >= self._seconds

    def save(self, saved: SavedHistory, variables: Mapping[str, tf.Variable]) -> None:
        """
        Replace the file, if this process writes it, by one with the history so far and the variables. If that fails,
        keep the old file and warn once; training continues.
        """
        if not self._writes:
            return
        text = np.array(json.dumps({"run": self._run, "history": saved._asdict()}))
        arrays = {"about": text, **{name: value.numpy() for name, value in variables.items()}}
        try:
            save_arrays(self._path, arrays)
        except OSError as error:
            if not self._has_failed:
                message = f"checkpoint {str(self._path)!r} could not be written: {_reason(error)}; training continues"
                warn(message)
            self._has_failed = True
        self._last = time.perf_counter()

    def restore(self, variables: Mapping[str, tf.Variable]) -> SavedHistory | None:
        """
        Assign the file's values to the variables and return its history; None if there is no file.

        :raises ValueError: if the file is damaged or belongs to another run; no variable has been assigned then.
        """
        if not self._path.exists():
            return None
        arrays, are_those_written = read_arrays(self._path, _WHAT)
        run, saved = self._read(arrays.pop("about", None))
        differing = [*_differing(self._run, run)] or sorted(arrays.keys() ^ variables.keys())
        if differing:
            raise ValueError(
                f"checkpoint {str(self._path)!r} must belong to this run; they differ in {', '.join(differing)}. "
                "Give another path, or delete the file to begin anew."
            )
        for name, variable in variables.items():
            self._check(name, variable, arrays[name])
        if not are_those_written:
            raise unusable(self._path, _WHAT, ALTERED)
        for name, variable in variables.items():
            variable.assign(arrays[name])
        return saved

    def _read(self, about: AnyNDArray | None) -> tuple[dict[str, Any], SavedHistory]:
        """Return the identity of the file's run, and its history."""
        if about is None or about.dtype.kind != "U" or about.ndim != 0:
            raise ValueError(f"checkpoint must be a file that a training wrote, got {str(self._path)!r}.")
        try:
            record = json.loads(str(about))
            if not isinstance(record, dict) or not isinstance(record.get("run"), dict):
                raise ValueError("it has no record of a run")
            return record["run"], saved_history_of(record.get("history"))
        except (ValueError, RecursionError) as error:
            raise unusable(self._path, _WHAT, str(error)) from error

    def _check(self, name: str, variable: tf.Variable, value: AnyNDArray) -> None:
        """Raise an error if a value does not fit the variable, or is not finite."""
        if value.dtype != variable.dtype.as_numpy_dtype or value.shape != variable.numpy().shape:
            raise unusable(
                self._path,
                _WHAT,
                f"{name} must be {variable.dtype.name} of shape {list(variable.numpy().shape)}, "
                f"got {value.dtype} of shape {list(value.shape)}",
            )
        if name not in _MAY_BE_INFINITE and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise unusable(self._path, _WHAT, f"{name} holds values that are NaN or infinite")


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterable[str]:
    """Yield the entries in which two runs differ; for models, with the first setting that differs."""
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = (run.get(name) for run in (ours, theirs))
        if one != other:
            setting = _differing_setting(one, other) if name == "settings" else None
            yield name if setting is None else f"{name} ({setting})"


def _differing_setting(ours: Any, theirs: Any) -> str | None:
    """Return the first setting that differs; None if a file lists no settings."""
    known = all(
        isinstance(value, list) and all(isinstance(setting, list) and setting for setting in value)
        for value in (ours, theirs)
    )
    return difference(ours, theirs) if known else None


def _reason(error: OSError) -> str:
    """Return the system's message, without the name of a temporary file."""
    return error.strerror or str(error)
