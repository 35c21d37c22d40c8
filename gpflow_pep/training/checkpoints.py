"""Checkpoints of a training: everything that it needs to go on as if nothing had happened."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ..arrays_file import load_arrays, save_arrays

_VERSION = 1


class Checkpoints:
    """A file that is replaced from time to time, and belongs to one run."""

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, Any], seconds: float):
        """
        :param run: what the run is: settings, model and data, as JSON can write them.
        :param seconds: so many pass between two writes, at least.
        :raises ValueError: where there is no such directory.
        """
        self._path, self._seconds = Path(path), seconds
        if not self._path.parent.is_dir():
            raise ValueError(f"checkpoint must be in a directory that exists, got {str(path)!r}.")
        self._run: dict[str, Any] = json.loads(json.dumps({"version": _VERSION, **run}))
        self._last = time.perf_counter()

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed."""
        return time.perf_counter() - self._last >= self._seconds

    def save(self, course: Mapping[str, Any], variables: Mapping[str, tf.Variable]) -> None:
        """Replace the file: what happened so far, as JSON can write it, and the variables."""
        text = np.array(json.dumps({"run": self._run, "course": course}))
        save_arrays(self._path, {"about": text, **{name: value.numpy() for name, value in variables.items()}})
        self._last = time.perf_counter()

    def restore(self, variables: Mapping[str, tf.Variable]) -> dict[str, Any] | None:
        """
        Give the variables the file's values, and return what happened until then; None where there is no file.

        :raises ValueError: where the file is not of this run; nothing has changed.
        """
        if not self._path.exists():
            return None
        arrays = load_arrays(self._path)
        if "about" not in arrays:
            raise ValueError(f"checkpoint must be a file that a training wrote, got {str(self._path)!r}.")
        about = json.loads(str(arrays.pop("about")))
        differing = sorted(
            name for name in self._run.keys() | about["run"].keys() if self._run.get(name) != about["run"].get(name)
        )
        if not differing and arrays.keys() != variables.keys():
            differing = sorted(arrays.keys() ^ variables.keys())
        if differing:
            raise ValueError(
                f"checkpoint {str(self._path)!r} must belong to this run; they differ in {', '.join(differing)}. "
                "Give another path, or delete the file."
            )
        for name, variable in variables.items():
            variable.assign(arrays[name])
        course: dict[str, Any] = about["course"]
        return course
