"""Arrays in one file that is written whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gpflow.base import AnyNDArray


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, AnyNDArray]) -> None:
    """Write an npz file: an earlier one at `path` stays until this one is complete."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load_arrays(path: str | os.PathLike[str]) -> dict[str, AnyNDArray]:
    """Read what :func:`save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
