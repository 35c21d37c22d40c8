"""Save predictions of a trained model with its run, for later tables and figures."""

import numpy as np
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.models import GPR, GPModel
from sacred.run import Run

from experiments.datasets import Dataset, Floats
from experiments.recording.experiment import run_directory

FILE = "predictions.npz"
_GRID = 300  # points across a single input
_SQUARE = 120  # points along either of two inputs
_MARGIN = 0.1  # of the inputs' range, on either side


def save(run: Run, arrays: dict[str, Floats]) -> None:
    """Write arrays to ``predictions.npz`` of a run, unless it is not recorded."""
    directory = run_directory(run)
    if directory is not None:
        path = directory / FILE
        np.savez_compressed(path, **arrays)
        run.add_artifact(path)


def regression_arrays(model: GPModel, dataset: Dataset) -> dict[str, Floats]:
    """
    Return arrays for figures of a regression: ``Z`` [M, D], test ``mean`` and ``variance`` (noise included)
    [N_test, 1]; with a single input also ``x``, ``x_mean``, ``x_variance`` [300, 1], the same along
    a grid over the inputs. Units as trained on.
    """
    mean, variance = model.predict_y(dataset.X_test)
    arrays = {"Z": inducing_points(model), "mean": mean.numpy(), "variance": variance.numpy()}
    if dataset.X_train.shape[1] == 1:
        arrays["x"] = _across(dataset.X_train[:, 0], _GRID)[:, None]
        arrays["x_mean"], arrays["x_variance"] = (
            part.numpy() for part in model.predict_y(arrays["x"])
        )
    return arrays


def classification_arrays(model: GPModel, dataset: Dataset, Z_start: Floats) -> dict[str, Floats]:
    """
    Return arrays for figures of a classification: inducing points before and after training, ``Z_start`` and ``Z`` [M,
    D], and the test ``probability`` of label 1 [N_test, 1]; with two inputs also ``x1``, ``x2``
    [120] and ``x_probability`` [120, 120], the same at the first input x1[column] and the second
    x2[row]. For C > 2 classes Z is [C, M, D] if each has its own, and probabilities are [N_test, C]
    and [120, 120, C].
    """
    arrays = {
        "Z_start": Z_start,
        "Z": inducing_points(model),
        "probability": model.predict_y(dataset.X_test)[0].numpy(),
    }
    if dataset.X_train.shape[1] == 2:
        arrays["x1"], arrays["x2"] = (_across(column, _SQUARE) for column in dataset.X_train.T)
        points = np.stack(np.meshgrid(arrays["x1"], arrays["x2"]), -1).reshape(-1, 2)
        of_points = model.predict_y(points)[0].numpy()  # [14400, 1 or C]
        arrays["x_probability"] = np.squeeze(of_points.reshape(_SQUARE, _SQUARE, -1))
    return arrays


def inducing_points(model: GPModel) -> Floats:
    """Return Z [M, D]; [0, D] for an exact model, [C, M, D] if each latent function has its own."""
    if isinstance(model, GPR):
        return np.empty((0, model.data[0].shape[1]))
    variable = model.inducing_variable
    if isinstance(variable, SeparateIndependentInducingVariables):
        return np.stack([part.Z.numpy() for part in variable.inducing_variable_list])
    return variable.Z.numpy()


def _across(column: Floats, count: int) -> Floats:
    """Return a grid over the values of an input, with a margin on either side."""
    margin = _MARGIN * np.ptp(column)
    return np.linspace(column.min() - margin, column.max() + margin, count)
