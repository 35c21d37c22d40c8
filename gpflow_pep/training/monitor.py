"""TensorBoard monitoring of a training run, by GPflow's monitor."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from gpflow.monitor import (
    ImageToTensorBoard,
    ModelToTensorBoard,
    Monitor,
    MonitorTaskGroup,
    ScalarToTensorBoard,
    ToTensorBoard,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..engine import index_columns
from ..models.classifier import CLASSIFICATION
from ..runtime import Workers, warn
from ..saving.arrays_file import FilePath, check_writable
from .history import History
from .objectives import without_warnings


@contextmanager
def closed_writer(directory: str | None) -> Iterator[None]:
    """Close the event file of this run: GPflow keeps it open, by folder, for later runs."""
    is_earlier = directory in ToTensorBoard.writers
    try:
        yield
    finally:
        if directory is not None and directory in ToTensorBoard.writers and not is_earlier:
            ToTensorBoard.writers.pop(directory).close()


def folder_of(directory: FilePath | None, workers: Workers) -> str | None:
    """Return the folder of the events of this worker, if there is one."""
    if directory is None:
        return None
    folder = os.fspath(directory)
    return folder if workers.is_chief else os.path.join(folder, f"worker-{workers.index}")


def monitor(
    model: GPModel, history: History, directory: str, data: RegressionData | tf.data.Dataset
) -> Callable[[int], None]:
    """
    Return a function that writes parameters and scores at every record and a plot at every tenth.

    If writing fails, it warns once and is not called again.

    :param data: X [N, D] and Y [N, P], or a dataset, whose first batch is shown; plots need D = 1
        or 2.
    :raises ValueError: if the directory cannot be written to.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        check_writable(Path(directory) / "events")
    except OSError as error:
        raise ValueError(
            f"tensorboard must be a directory that can be written, got {directory!r}: {error}"
        ) from error
    keywords = ["kernel", "likelihood", "mean_function", "scale"]
    scalars: list[Any] = [
        ScalarToTensorBoard(directory, lambda: history.objective[-1], "objective"),
        ModelToTensorBoard(directory, model, max_size=100, keywords_to_monitor=keywords),
    ]
    if history.scores is not None:
        for name in history.scores.names:
            latest = partial(lambda name: history.held_out[name][-1], name)
            scalars.append(ScalarToTensorBoard(directory, latest, f"held_out/{name}"))
    groups = [MonitorTaskGroup(scalars)]
    if isinstance(data, tf.data.Dataset):
        data = next(iter(data))
    X, Y = (np.asarray(values)[:1000] for values in data)  # more points would hide each other
    if X.shape[1] <= 2 and not index_columns(model.kernel):
        draw = partial(_draw, model, X, Y)
        layout = {"layout": "constrained"}  # with room for the legend
        task = ImageToTensorBoard(directory, draw, "predictions", fig_kw=layout)
        # A plot takes far longer than scalars.
        groups.append(MonitorTaskGroup(task, period=10 * history.interval))
    tasks = Monitor(*groups)

    def show(iteration: int) -> None:
        try:
            tasks(iteration)
        # Also errors of a prediction between the rows.
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = getattr(error, "message", str(error))
            # The first line, without the operation.
            reason = re.sub(r"^\{\{.*?\}\} ?", "", reason).splitlines()[0]
            warn(
                f"tensorboard {directory!r} could not be written: {reason}; "
                "training continues without it."
            )
            history.monitor = None

    return show


def _draw(model: GPModel, X: AnyNDArray, Y: AnyNDArray, figure: Figure, axes: Axes) -> None:
    """Draw predictions of the observations, the data and the inducing points."""
    from .. import plotting  # imports pyplot, which takes time

    are_classes = isinstance(model.likelihood, CLASSIFICATION) and Y.shape[1] == 1
    display = plotting.ClassDisplay if are_classes else plotting.PredictionDisplay
    with without_warnings(model):
        figure.clear()  # axes and color bar of the last drawing
        display.from_model(model, (X, Y), ax=figure.add_subplot())
