"""Numbers that change during training, written to Sacred's metrics and to TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import tensorflow as tf
from sacred.run import Run


class ScalarLog:
    """
    Write scalars to a run's ``metrics.json`` and to ``tensorboard/`` in its directory.

    A context manager: scalars are on disk even if the training fails.
    """

    def __init__(self, run: Run, directory: Path | None):
        """
        :param directory: directory of the run; None to write no TensorBoard log.
        """
        self._run = run
        if directory is None:
            self._writer = tf.summary.create_noop_writer()
        else:
            self._writer = tf.summary.create_file_writer(str(directory / "tensorboard"))

    def __enter__(self) -> "ScalarLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values, by name, of one step."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
                self._run.log_scalar(name, value, step)
        self._writer.flush()
