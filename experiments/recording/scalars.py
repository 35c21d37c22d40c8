"""Numbers that change during training, written to Sacred's metrics and to TensorBoard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import tensorflow as tf
from sacred.run import Run

from experiments.recording.experiment import run_directory


@contextmanager
def scalar_log(run: Run) -> Iterator[Callable[..., None]]:
    """
    Yield a function that writes values by name, of one step and part, to ``metrics.json`` and
    ``tensorboard/`` of a run.

    Scalars are on disk even if the training fails. A run that is not recorded has no log for
    TensorBoard.
    """
    directory = run_directory(run)
    writer = tf.summary.create_noop_writer()
    if directory is not None:
        writer = tf.summary.create_file_writer(str(directory / "tensorboard"))

    def write(step: int, values: Mapping[str, float], part: str = "") -> None:
        with writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"{part}{name}", value)
                run.log_scalar(f"{part}{name}", value, step)
        writer.flush()

    try:
        yield write
    finally:
        writer.close()
