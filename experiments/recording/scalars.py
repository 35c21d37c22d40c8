"""Numbers that change during training, written to Sacred's metrics and to TensorBoard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf
from sacred.run import Run


@contextmanager
def scalar_log(run: Run, directory: Path | None) -> Iterator[Callable[..., None]]:
    """
    Yield a function that writes values by name, of one step and part, to ``metrics.json`` and
    ``tensorboard/`` of a run.

    Scalars are on disk even if the training fails.

    :param directory: directory of the run; None to write no TensorBoard log.
    """
    create = tf.summary.create_file_writer
    writer = (
        tf.summary.create_noop_writer()
        if directory is None
        else create(str(directory / "tensorboard"))
    )

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
