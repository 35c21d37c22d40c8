"""All that a stream carries, in arrays: saved in one file, from which it continues bit for bit."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .arrays_file import DIGEST, load_arrays, save_arrays, unusable

POINTS, SETTINGS = "inducing.Z", "parts"
"""Names of two arrays that are no variables of a model."""

_VERSION = 1
_VERSION_KEY = "version"
_WHAT = "the state"


@dataclass(frozen=True)
class StreamState:
    """
    The state of a streaming model, version 1: a name and an array for everything that changes while it runs.

    =================================  ==============================================================================
    ``old.Z``                          old inducing points, [1 or C, Ma, D]
    ``old.root, old.linear``           R and η of the old posterior exp(-a'RR'a/2 + η'a) over its prior
    ``old.log_normalizer``             see `gpflow_pep.engine.AbsorbedPosterior`
    ``inducing.Z``                     present inducing points, [1 or C, M, D]
    ``data.X, data.Y``                 the batch (not in StreamingSVGP)
    ``alpha``                          the power (not in StreamingSVGP)
    ``sites.precision, sites.linear``  of models with sites: the sites of the batch, [N, C]
    ``num_data``                       of StreamingSVGP, if it was given: rows of the batch
    ``parameter...``                   other parameters, by their names in GPflow, unconstrained
    ``parts``                          classes and settings of kernel, likelihood and mean function, as JSON
    =================================  ==============================================================================

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = StreamingSGPR((X[:30], np.sin(X[:30])), gpflow.kernels.Matern52(), X[::10])
    >>> model.state.save("stream.npz")
    >>> again = StreamingSGPR.from_state(StreamState.load("stream.npz"), gpflow.kernels.Matern52())
    >>> again.update((X[30:], np.sin(X[30:])))
    """

    arrays: Mapping[str, AnyNDArray]

    def as_dict(self) -> dict[str, AnyNDArray]:
        """The arrays and the version."""
        return {_VERSION_KEY: np.array(_VERSION), **self.arrays}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, AnyNDArray]) -> "StreamState":
        """
        Return the state from the result of :meth:`as_dict`, or of ``numpy.load`` of a file.

        :raises ValueError: if it is of another version.
        """
        version = np.asarray(arrays.get(_VERSION_KEY))
        if version.shape != () or version.dtype.kind not in "iu" or version != _VERSION:
            raise ValueError(f"the state must be of version {_VERSION}, got {version.tolist()!r}.")
        return cls({name: np.asarray(value) for name, value in arrays.items() if name not in (_VERSION_KEY, DIGEST)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an npz file, whole or not at all: an earlier one at `path` stays until this one is complete."""
        save_arrays(path, self.as_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "StreamState":
        """
        Read what :meth:`save` wrote.

        :raises ValueError: if it is damaged, or not a state of this version.
        """
        arrays = load_arrays(path, _WHAT)
        try:
            return cls.from_dict(arrays)
        except ValueError as error:
            raise unusable(path, _WHAT, str(error)) from error

    @property
    def points(self) -> AnyNDArray:
        """
        The present inducing points, [1 or C, M, D].

        :raises ValueError: if the array has another shape.
        """
        Z = self.arrays[POINTS]
        if Z.ndim != 3 or 0 in Z.shape:
            raise ValueError(f"the state's {POINTS} must have shape [1 or C, M, D], got {list(Z.shape)}.")
        return Z

    @property
    def settings(self) -> list[list[str]]:
        """
        Classes and settings of kernel, likelihood and mean function.

        :raises ValueError: if the array does not hold what `settings_array` made.
        """
        text = str(self.arrays[SETTINGS])
        try:
            settings = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the state's {SETTINGS} must be JSON that a model wrote, got {text[:40]!r}.") from error
        if not isinstance(settings, list) or not all(isinstance(setting, list) and setting for setting in settings):
            raise ValueError(f"the state's {SETTINGS} must be a list of settings, got {text[:40]!r}.")
        return settings

    def check_has(self, names: Iterable[str], model: str) -> None:
        """Raise an error that names the model unless the state has these arrays."""
        missing = sorted(set(names) - self.arrays.keys())
        if missing:
            raise ValueError(f"the state must be that of {model}; it lacks {', '.join(missing)}.")

    def check_names(self, names: Iterable[str]) -> None:
        """Raise an error unless the state's variables have these names."""
        differing = sorted(set(names) ^ (self.arrays.keys() - {POINTS, SETTINGS}))
        if differing:
            raise ValueError(
                f"the state must have the parameters of this model; they differ in {', '.join(differing)}."
            )

    def assign_to(self, variables: Mapping[str, tf.Variable]) -> None:
        """
        Assign the arrays to the variables of these names.

        :raises ValueError: if an array does not fit its variable, or is not finite; no variable has been assigned then.
        """
        for name, variable in variables.items():
            values = self.arrays[name]
            if not variable.shape.is_compatible_with(values.shape):
                raise ValueError(f"the state's {name} must have shape {variable.shape}, got {values.shape}.")
            if values.dtype != variable.dtype.as_numpy_dtype:
                raise ValueError(f"the state's {name} must be {variable.dtype.name}, got {values.dtype}.")
            if not np.isfinite(values).all():
                raise ValueError(f"the state's {name} must be finite, got values that are NaN or infinite.")
        for name, variable in variables.items():
            variable.assign(self.arrays[name])


def settings_array(settings: list[list[str]]) -> AnyNDArray:
    """Return the settings as an array of the state."""
    return np.array(json.dumps(settings))
