"""TensorBoard monitoring of a training run, by GPflow's monitor."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from gpflow.monitor import ImageToTensorBoard, ModelToTensorBoard, Monitor, MonitorTaskGroup, ScalarToTensorBoard
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..models.kernels_and_inducing_variables import are_inducing_points, single_output_variables
from ..runtime.checks import warn
from ..saving.arrays_file import check_writable
from .history import History
from .objectives import without_warnings


def monitor(
    model: GPModel, history: History, directory: str, data: RegressionData | tf.data.Dataset
) -> Callable[[int], None]:
    """
    Return a function that writes objective, parameters and scores at every record, and a plot at every tenth; if that
    fails, it warns and removes itself from the history.

    :param data: X [N, D] and Y [N, P], or a dataset, whose first batch is shown; plots need D = 1 or 2.
    :raises ValueError: if the directory cannot be written to.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        check_writable(Path(directory) / "events")
    except OSError as error:
        raise ValueError(f"tensorboard must be a directory that can be written, got {directory!r}: {error}") from error
    keywords = ["kernel", "likelihood", "mean_function", "scale"]
    scalars: list[Any] = [
        ScalarToTensorBoard(directory, lambda: history.objective[-1], "objective"),
        ModelToTensorBoard(directory, model, max_size=100, keywords_to_monitor=keywords),
    ]
    for name in () if history.scores is None else history.scores.names:
        latest = partial(lambda name: history.held_out[name][-1], name)
        scalars.append(ScalarToTensorBoard(directory, latest, f"held_out/{name}"))
    groups = [MonitorTaskGroup(scalars)]
    first_rows = next(iter(data)) if isinstance(data, tf.data.Dataset) else data
    X, Y = (np.asarray(values)[:1000] for values in first_rows)  # more points would hide each other
    if X.shape[1] <= 2:
        task = ImageToTensorBoard(directory, partial(_draw, model, X, Y), "predictions")
        groups.append(MonitorTaskGroup(task, period=10 * history.interval))  # a plot takes far longer than scalars
    tasks = Monitor(*groups)

    def show(iteration: int) -> None:
        try:
            tasks(iteration)
        except (
            OSError,
            tf.errors.NotFoundError,
            tf.errors.PermissionDeniedError,
            tf.errors.FailedPreconditionError,
            tf.errors.ResourceExhaustedError,
        ) as error:
            reason = error.message if isinstance(error, tf.errors.OpError) else str(error)
            reason = re.sub(r"^\{\{.*?\}\} ?", "", reason).splitlines()[0]  # first line, without the operation
            warn(f"tensorboard {directory!r} could not be written: {reason}; training continues without it.")
            history.monitor = None

    return show


def _draw(model: GPModel, X: AnyNDArray, Y: AnyNDArray, figure: Figure, axes: Axes) -> None:
    """Plot predictions of the observations, the data and the inducing points."""
    axis = np.linspace(X.min(axis=0), X.max(axis=0), 200 if X.shape[1] == 1 else 40)  # [n, D]
    places = np.meshgrid(*axis.T)
    grid = np.stack([place.ravel() for place in places], axis=1).astype(X.dtype)
    with without_warnings(model):
        mean, variance = (np.asarray(part) for part in model.predict_y(grid))
    if X.shape[1] == 1:
        axes.plot(X, Y, ".", color="gray", alpha=0.5)
        for center, spread in zip(mean.T, 2.0 * np.sqrt(variance).T, strict=True):
            (line,) = axes.plot(places[0], center)
            axes.fill_between(places[0], center - spread, center + spread, color=line.get_color(), alpha=0.2)
    else:
        # Several outputs: show the index of the largest, the predicted class if they are class probabilities.
        shown = mean[:, 0] if mean.shape[1] == 1 else np.argmax(mean, axis=1)
        filled = axes.contourf(*places, shown.reshape(places[0].shape), alpha=0.6)
        axes.scatter(X[:, 0], X[:, 1], c=Y[:, 0], s=4, cmap=filled.cmap)
    variable = getattr(model, "inducing_variable", None)
    if variable is not None and are_inducing_points(variable):
        for single in single_output_variables(variable):
            Z = np.asarray(single.Z)
            axes.plot(Z[:, 0], np.full(len(Z), axes.get_ylim()[0]) if Z.shape[1] == 1 else Z[:, 1], "k+")
