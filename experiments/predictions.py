"""Predictions of a trained model as a file beside its run, for tables and figures drawn later."""

from pathlib import Path

import numpy as np
from gpflow.models import GPModel

from gpflow_pep.datasets import Dataset

FILE = "predictions.npz"
_GRID = 300  # points across a single input
_MARGIN = 0.1  # of the inputs' range, on either side


def save_predictions(model: GPModel, dataset: Dataset, directory: Path) -> Path:
    """
    Write ``predictions.npz``: ``Z`` [M, D], test ``mean`` and ``variance`` (noise included) [N_test, 1]; with a single
    input also ``x``, ``x_mean``, ``x_variance`` [300, 1], the same along a grid over the inputs. Units as trained on.

    :return: its path.
    """
    mean, variance = model.predict_y(dataset.X_test)
    arrays = {"Z": model.inducing_variable.Z.numpy(), "mean": mean.numpy(), "variance": variance.numpy()}
    if dataset.X_train.shape[1] == 1:
        low, high = dataset.X_train.min(), dataset.X_train.max()
        margin = _MARGIN * (high - low)
        arrays["x"] = np.linspace(low - margin, high + margin, _GRID)[:, None]
        arrays["x_mean"], arrays["x_variance"] = (part.numpy() for part in model.predict_y(arrays["x"]))
    path = directory / FILE
    np.savez(path, **arrays)
    return path
