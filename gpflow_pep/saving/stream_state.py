"""The state of a stream as named arrays in one file; a restored stream continues bit for bit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .arrays_file import (
    Arrays,
    FilePath,
    assign_arrays,
    load_arrays,
    save_arrays,
    unusable,
    without_digest,
)
from .parameter_settings import written_as_json
from .run_identity import differing

# The arrays that are not variables of a model.
POINTS = "inducing.Z"
SETTINGS = "parts"
JITTER = "jitter"
PARAMETERS = "parameters"
NOT_VARIABLES = {POINTS, SETTINGS, JITTER, PARAMETERS}
_VERSION_KEY = "version"
_VERSION = 1  # of the names and shapes listed in docs/guide/streams.md


@dataclass(frozen=True, repr=False)
class StreamState:
    """
    The state of a streaming model: all arrays that change while it runs, by name. The guide to
    streams lists them.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = StreamingSGPR((X[:30], np.sin(X[:30])), gpflow.kernels.Matern52(), X[::10])
    >>> model.state.save("stream.npz")
    >>> again = StreamingSGPR.from_state(StreamState.load("stream.npz"), gpflow.kernels.Matern52())
    >>> again.update((X[30:], np.sin(X[30:])))
    """

    arrays: Arrays

    def __repr__(self) -> str:
        shapes = (f"{name} {list(value.shape)}" for name, value in self.arrays.items())
        return f"StreamState({', '.join(shapes)})"

    def as_dict(self) -> dict[str, AnyNDArray]:
        """Return the arrays and the version."""
        return {_VERSION_KEY: np.array(_VERSION), **self.arrays}

    @classmethod
    def from_dict(cls, arrays: Arrays) -> "StreamState":
        """
        Return the state from the result of :meth:`as_dict`, or of ``numpy.load`` of a file; check
        its version.
        """
        version = np.asarray(arrays.get(_VERSION_KEY))
        if version.shape != () or version.dtype.kind not in "iu" or version != _VERSION:
            raise ValueError(f"the state must be of version {_VERSION}, got {version.tolist()!r}.")
        arrays = without_digest(arrays)
        return cls(
            {name: np.asarray(value) for name, value in arrays.items() if name != _VERSION_KEY}
        )

    def save(self, path: FilePath) -> None:
        """
        Write an npz file. An existing file at `path` is replaced when the new file is complete.
        """
        save_arrays(path, self.as_dict())

    @classmethod
    def load(cls, path: FilePath) -> "StreamState":
        """
        Read a file written by :meth:`save`; raise a `ValueError` if it is damaged or of another
        version.
        """
        arrays = load_arrays(path, "the state")
        try:
            return cls.from_dict(arrays)
        except ValueError as error:
            raise unusable(path, "the state", str(error)) from error

    @property
    def points(self) -> AnyNDArray:
        """The current inducing points, [1 or C, M, D]."""
        Z = self.arrays[POINTS]
        if Z.ndim != 3 or 0 in Z.shape:
            raise ValueError(
                f"the state's {POINTS} must have shape [1 or C, M, D], got {list(Z.shape)}."
            )
        return Z

    def assign_to(self, variables: Mapping[str, tf.Variable], settings: Mapping[str, str]) -> None:
        """
        Assign the arrays to the variables of these names; nothing if a name, an array or a setting
        does not fit.
        """
        if names := sorted(variables.keys() ^ (self.arrays.keys() - NOT_VARIABLES)):
            raise ValueError(
                "the state must have the parameters of this model; they differ in "
                f"{', '.join(names)}."
            )
        text = str(self.arrays[SETTINGS])
        with written_as_json(SETTINGS, text):
            saved = dict(json.loads(text))
        if names := differing(settings, saved):
            raise ValueError(
                "the state must come from a model with the same kernel, likelihood, mean function "
                f"and options; they differ in {', '.join(names)}."
            )
        assign_arrays(self.arrays, variables, about="the state's ", resize=True)
