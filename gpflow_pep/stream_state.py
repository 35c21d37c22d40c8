"""All that a stream carries, in arrays: saved in one file, from which it continues bit for bit."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gpflow.base import AnyNDArray

from .arrays_file import DIGEST, load_arrays, save_arrays, unusable

_VERSION = 1
_VERSION_KEY = "version"
_WHAT = "the state"


@dataclass(frozen=True)
class StreamState:
    """
    The state of a streaming model, version 1: a name and an array for everything that changes while it runs.

    ==========================  ==============================================================================
    ``old.Z``                   old inducing points, [1 or C, Ma, D]
    ``old.root, old.linear``    R and η of the old posterior exp(-a'RR'a/2 + η'a) over its prior
    ``old.log_normalizer``      see :class:`gpflow_pep.engine.AbsorbedPosterior`
    ``inducing.Z``              present inducing points, [1 or C, M, D]
    ``data.X, data.Y``          the batch that the model holds
    ``alpha``                   the power
    ``sites...``                of models with sites: the batch's, and what they were updated for
    ``parameter...``            other parameters, by their names in GPflow, unconstrained
    ``parts``                   classes and settings of kernel, likelihood and mean function, as JSON
    ==========================  ==============================================================================
    """

    arrays: Mapping[str, AnyNDArray]

    def as_dict(self) -> dict[str, AnyNDArray]:
        """The arrays and the version."""
        return {_VERSION_KEY: np.array(_VERSION), **self.arrays}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, AnyNDArray]) -> "StreamState":
        """
        Return the state from the result of :meth:`as_dict`, or of ``numpy.load`` of a file.

        :raises ValueError: where it is of another version.
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
