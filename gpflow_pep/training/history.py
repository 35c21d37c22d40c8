"""History of a training run: records, held-out scores, callbacks, TensorBoard, checkpoints and early stopping."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ..engine import AllRows, Chunk, Chunks, SingleRows
from ..likelihoods.predictive import predicted_log_density
from ..runtime.checks import check, reason_of, warn
from ..runtime.tracing import compiled
from .checkpoints import Checkpoints, SavedHistory
from .declared import without_warnings
from .objectives import FAILURES, Objective, rows_for
from .result import EARLY, INTERRUPTED, Outcome

# Ctrl-C in training: end after the evaluation under way, with a result in place of a traceback.

_SIGNAL = signal.SIGINT


class Interrupted(Exception):
    """Raised between evaluations of the objective, after Ctrl-C."""


class Interruption:
    """
    Context in which the first Ctrl-C is recorded, and the second one raises `KeyboardInterrupt`.

    It has no effect outside the main thread, which alone gets signals, and in programs with their own handler of
    SIGINT.
    """

    def __init__(self, *, enabled: bool = True):
        """
        :param enabled: whether the context has an effect.
        """
        self._enabled = enabled
        self.requested = False
        """Whether Ctrl-C has been pressed."""

    def __enter__(self) -> "Interruption":
        is_main = threading.current_thread() is threading.main_thread()
        self._enabled = self._enabled and is_main and signal.getsignal(_SIGNAL) is signal.default_int_handler
        if self._enabled:
            signal.signal(_SIGNAL, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            signal.signal(_SIGNAL, signal.default_int_handler)

    def raise_if_requested(self) -> None:
        """
        :raises Interrupted: if Ctrl-C has been pressed.
        """
        if self.requested:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True


Callback = Callable[[int, float], None]
"""Called at every record with the iteration's number, from 1, and the objective, in nats."""

# Errors of a failed write, from Python or TensorFlow.
UNWRITABLE = (
    OSError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.FailedPreconditionError,
    tf.errors.ResourceExhaustedError,
)

Scores = Callable[[], Mapping[str, float]]
Monitor = Callable[[int], Any]


class History:
    """Training loop state: records so far, early stopping, interruption, callbacks and checkpoints."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        *,
        steps: int,
        interval: int,
        progress_bar: Any,
        callback: Callback | None,
        scores: Scores | None,
        patience: int | None,
        checkpoints: Checkpoints | None,
        interruption: Interruption,
    ):
        """
        :param variables: the parameters that are trained.
        :param steps: the largest number of steps.
        :param interval: steps between records.
        :param progress_bar: that of tqdm.
        :param scores: computes the held-out scores at the current parameters; smaller is better.
        :param patience: stop after this many records in a row without improvement of the first score or, without
            scores, of the objective.
        :param interruption: whether Ctrl-C has been pressed.
        """
        self.iterations = 0
        self.recorded: list[int] = []
        """Iteration of every record."""
        self.objective: list[float] = []
        self.held_out: dict[str, list[float]] = {}
        self.callback_error: BaseException | None = None
        """An error of the callback, which is no failure of the model."""
        self.monitor: Monitor | None = None
        """Called at every record, for TensorBoard."""
        self.tensorboard = ""
        """The TensorBoard directory, for messages."""
        self._steps, self._interval = steps, interval
        self._progress_bar, self._callback, self._scores, self._patience = progress_bar, callback, scores, patience
        self._trained = list(variables)
        self._best = [] if scores is None or patience is None else _copies(variables)
        self._checkpoints, self._state = checkpoints, dict[str, tf.Variable]()
        self._interruption, self._is_stopped = interruption, False
        self._before, self._began = 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Training time so far, without the time between interruption and resumption."""
        return self._before + time.perf_counter() - self._began

    @property
    def will_record(self) -> bool:
        """Whether a record follows the current step."""
        number = self.iterations + 1
        return number % self._interval == 0 or number == self._steps

    @property
    def is_over(self) -> bool:
        """Whether no step remains, or training stops before that."""
        return self.iterations >= self._steps or self.is_over_early or self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C has been pressed, or the callback has stopped training."""
        return self._interruption.requested or self._is_stopped

    def raise_if_interrupted(self) -> None:
        """
        Call between evaluations within a step.

        :raises Interrupted: if Ctrl-C has been pressed.
        """
        self._interruption.raise_if_requested()

    @property
    def is_over_early(self) -> bool:
        """Whether there has been no improvement for `patience` records."""
        if self._patience is None:
            return False
        values = self._judged_by()[1]
        return len(values) > self._patience and int(np.argmin(values)) < len(values) - self._patience  # the first best

    @property
    def early_stop(self) -> Outcome:
        """The outcome of a training run that stops early."""
        name = self._judged_by()[0]
        return Outcome(EARLY, f"Stopped early: the {name} has not been better for {self._patience} records.")

    @property
    def interrupted(self) -> Outcome:
        """The outcome of a training run that is interrupted."""
        if self._is_stopped:
            return Outcome(EARLY, f"Stopped by the callback after {self.iterations} iterations.", resumes=True)
        return Outcome(INTERRUPTED, f"Interrupted after {self.iterations} iterations.", resumes=True)

    def resume(self, state: Mapping[str, tf.Variable]) -> Outcome | None:
        """
        Resume from the checkpoint, if there is one.

        :param state: variables that change from step to step, other than the parameters, by name.
        :return: the outcome of the run, if it had ended.
        :raises ValueError: if the checkpoint belongs to another run.
        """
        self._state = {f"best.{number}": variable for number, variable in enumerate(self._best)} | {
            f"parameter.{number}": variable for number, variable in enumerate(self._trained)
        }
        self._state |= state
        saved = None if self._checkpoints is None else self._checkpoints.restore(self._state)
        if saved is None:
            return None
        self.iterations, self.recorded, self._before = saved.iterations, saved.recorded, saved.seconds
        self.objective, self.held_out = saved.objective, saved.held_out
        self._progress_bar.update(self.iterations)
        return None if saved.ended is None else Outcome(saved.ended[0], saved.ended[1])

    def step(self, objective: float | None) -> None:
        """Count a step; record the objective if it is given."""
        self.iterations += 1
        self._progress_bar.update()
        if objective is not None:
            self._record(objective)

    def record_last(self, objective: float) -> None:
        """Record the last step, or the start, if it has no record yet."""
        if self.iterations not in self.recorded[-1:]:
            self._record(objective)

    def discard_last(self) -> None:
        """Discard the last step, which failed, and its record."""
        self.iterations -= 1
        if self.recorded and self.recorded[-1] > self.iterations:
            self.recorded.pop()
            self.objective.pop()
            for values in self.held_out.values():  # shorter if scoring the step failed
                del values[len(self.objective) :]

    def restore_best(self) -> int | None:
        """
        Restore the parameters of the best held-out score, if scores decide early stopping and one was finite.

        :return: the number of their record, from 0; None where nothing is restored.
        """
        values = self._judged_by()[1]
        if not self._best or not any(np.isfinite(values)):
            return None
        for variable, best in zip(self._trained, self._best, strict=True):
            variable.assign(best)
        return len(values) - 1 - int(np.argmin(values[::-1]))  # the last best, as they are copied

    def save(self, outcome: Outcome | None = None) -> None:
        """Write a checkpoint, if there is a checkpoint file."""
        if self._checkpoints is None:
            return
        ended = None if outcome is None else [outcome.status, outcome.reason]
        saved = SavedHistory(self.iterations, self.seconds, self.recorded, self.objective, self.held_out, ended)
        self._checkpoints.save(saved, self._state)

    def _record(self, objective: float) -> None:
        self.recorded.append(self.iterations)
        self.objective.append(objective)
        for name, value in ({} if self._scores is None else self._scores()).items():
            self.held_out.setdefault(name, []).append(value)
        if self._best:
            judged_by = self._judged_by()[1]
            if judged_by[-1] == min(judged_by) < np.inf:
                for best, variable in zip(self._best, self._trained, strict=True):
                    best.assign(variable)
        records = {"objective": self.objective, **self.held_out}
        latest = ", ".join(f"{name} {values[-1]:.6g}" for name, values in records.items())
        self._progress_bar.set_postfix_str(latest, refresh=False)
        if self._callback is not None:
            try:
                self._callback(self.iterations, objective)
            except StopIteration:
                self._is_stopped = True
            except BaseException as error:
                self.callback_error = error
                raise
        if self.monitor is not None:
            self._show(self.monitor)
        if self._checkpoints is not None and self._checkpoints.is_due:
            self.save()

    def _show(self, monitor: Monitor) -> None:
        """Call the monitor. If it cannot write, warn and continue without it."""
        try:
            monitor(self.iterations)
        except UNWRITABLE as error:
            reason = error.message if isinstance(error, tf.errors.OpError) else str(error)
            reason = re.sub(r"^\{\{.*?\}\} ?", "", reason).splitlines()[0]  # first line, without the operation
            message = f"tensorboard {self.tensorboard!r} could not be written: {reason}; training continues without it."
            warn(message)
            self.monitor = None

    def _judged_by(self) -> tuple[str, list[float]]:
        """Return name and values of the early-stopping criterion; smaller is better."""
        name, values = "objective", [-value for value in self.objective]
        if self.held_out:
            name, values = next(iter(self.held_out.items()))
            name = f"held-out {name}"
        return name, [value if np.isfinite(value) else np.inf for value in values]


def _copies(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    return [tf.Variable(variable, trainable=False) for variable in variables]


# Scores of held-out rows during training.

_ROWS = 4096  # predicted at a time


class HeldOut:
    """Held-out scores at the current parameters; smaller is better."""

    def __init__(self, model: GPModel, data: RegressionData):
        """
        :param data: X [n, D] and Y [n, P].
        :raises ValueError: if they are not valid regression data.
        """
        self._model = model
        self._data = tuple(map(tf.constant, rows_for(model, data)))

    @property
    def names(self) -> list[str]:
        """Names of the scores."""
        return ["nlpd", "rmse"] if isinstance(self._model.likelihood, Gaussian) else ["nlpd"]

    def __call__(self) -> dict[str, float]:
        """Compute the mean negative log predictive density in nats and, for Gaussian noise, the RMSE."""
        with without_warnings(self._model):
            density, square = map(float, self._sums(*self._data))
        n, P = self._data[1].shape
        scores = {"nlpd": -density / n}
        return scores | ({"rmse": float(np.sqrt(square / (n * P)))} if "rmse" in self.names else {})

    @compiled
    def _sums(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Log predictive densities and squared errors, summed over rows, [] each. The posterior is computed once."""
        chunks: Chunks = AllRows() if X.shape[0] <= _ROWS else SingleRows(_ROWS)
        # Each prediction of this library's models with data would read all of these.
        predict = self._model.posterior().predict_f if hasattr(self._model, "check_data") else self._model.predict_f

        def part(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            inputs, outputs = chunk.data
            mean, variance = predict(inputs)
            density = predicted_log_density(self._model.likelihood, inputs, mean, variance, outputs)
            is_real = "rmse" in self.names
            square = tf.reduce_sum(tf.square(outputs - mean)) if is_real else tf.zeros([], density.dtype)
            return tf.reduce_sum(density), square

        zero = tf.zeros([], X.dtype)
        return chunks.split((X, Y)).sum(part, (zero, zero))


# Recovery from failures in training: restore the last good parameters and report the reason.

NOT_FINITE = "the training loss or its derivatives are not finite."


@contextmanager
def restore_on_failure(objective: Objective, history: History, restore: Callable[[], None]) -> Iterator[list[str]]:
    """
    If an evaluation fails inside, restore the last good parameters and add the reason to the list yielded. Before the
    first step there are no good parameters: raise the error.

    :raises ValueError: if the data have changed.
    """
    reason: list[str] = []
    try:
        yield reason
    except FAILURES as error:
        restore()
        objective.reset()
        objective.check_data()
        if history.iterations == 0 or error is history.callback_error:
            raise
        reason.append(f"Stopped, and the last good parameters restored: {reason_of(error)}")
    except BaseException:
        restore()
        raise


def check_finite(*values: tf.Tensor) -> list[tf.Tensor]:
    """
    Check that all values are finite; in a graph, return the check as control dependencies.

    :raises tf.errors.InvalidArgumentError: if one is not finite.
    """
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
    return check(finite, NOT_FINITE)
