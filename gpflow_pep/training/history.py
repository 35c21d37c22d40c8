"""History of a training run: records, held-out scores, callbacks, TensorBoard, checkpoints and early stopping."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ..engine import Chunk, split_rows
from ..models.sparse import SparseGP
from ..runtime.checks import asserted
from ..runtime.tracing import compiled
from ..tilted.predictive import predicted_log_density
from .checkpoints import HISTORY, Checkpoints
from .dataset_batches import rows_for
from .objectives import FAILURES, without_warnings
from .result import EARLY, INTERRUPTED, Outcome

_CHUNK_ROWS = 4096  # held-out rows predicted at a time
NOT_FINITE = "the training loss or its derivatives are not finite."

Callback = Callable[
    [int, float], None
]  #: Called at every record with iteration, from 1, and objective in nats.


@contextmanager
def recorded_interruption(*, enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """
    Yield a function that returns whether Ctrl-C has been pressed; the second time, it raises `KeyboardInterrupt`.

    It has no effect outside the main thread (only the main thread receives signals) and in programs that handle SIGINT.
    """
    pressed: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(number)

    is_main = threading.current_thread() is threading.main_thread()
    if not (enabled and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, record)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def keeping_data(callback: Callback, model: GPModel) -> Callback:
    """Return the callback with a check: if it replaces the model's data, restore them and raise a ValueError."""
    # Else the data were given to `fit`, or are a dataset, which cannot be replaced.
    if not isinstance(getattr(model, "data", None), tuple):
        return callback

    def called(iteration: int, objective: float) -> None:
        before = tuple(map(tf.convert_to_tensor, model.data))  # references to the values, no copies
        stop: StopIteration | None = None
        try:
            callback(iteration, objective)
        except StopIteration as error:
            stop = error
        finally:  # also after another error, which is raised
            now: Any = map(tf.convert_to_tensor, model.data)
            is_replaced = not all(map(_are_equal, before, now))
            if is_replaced:
                model.data = before
        if is_replaced:
            raise ValueError(
                "callback must leave model.data as it is during training, got a callback that replaced it: "
                "assign new data after fit, and call fit again."
            ) from stop
        if stop is not None:
            raise stop

    return called


def _are_equal(a: tf.Tensor, b: tf.Tensor) -> bool:
    return a is b or (a.shape == b.shape and bool(tf.reduce_all(a == b)))


class HeldOut:
    """Held-out scores at the current parameters; smaller is better."""

    def __init__(self, model: GPModel, data: RegressionData):
        try:
            rows = rows_for(model, data)
        except ValueError as error:
            raise ValueError(f"held_out: {error}") from error
        self._model, self._data = model, tuple(map(tf.constant, rows))
        self.names = ["nlpd", "rmse"] if isinstance(model.likelihood, Gaussian) else ["nlpd"]

    def __call__(self) -> dict[str, float]:
        """Compute the mean negative log predictive density in nats and, for Gaussian noise, the RMSE."""
        with without_warnings(self._model):
            density, square = map(float, self._sums(*self._data))
        n, P = self._data[1].shape
        scores = {"nlpd": -density / n, "rmse": float(np.sqrt(square / (n * P)))}
        return {name: scores[name] for name in self.names}

    @compiled
    def _sums(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return sums of log predictive densities [] and squared errors [] over rows; compute the posterior once."""
        # Each call of `predict_f` of a model with data would read all its rows.
        predict = (
            self._model.posterior().predict_f
            if isinstance(self._model, SparseGP)
            else self._model.predict_f
        )

        def part(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            inputs, outputs = chunk.data
            mean, variance = predict(inputs)
            density = predicted_log_density(self._model.likelihood, inputs, mean, variance, outputs)
            square = (
                tf.square(outputs - mean) if "rmse" in self.names else tf.zeros([], density.dtype)
            )
            return tf.reduce_sum(density), tf.reduce_sum(square)

        zero = tf.zeros([], X.dtype)
        return split_rows((X, Y), _CHUNK_ROWS).sum(part, (zero, zero))


@dataclass(kw_only=True)
class History:
    """Training loop state: records so far, early stopping, interruption, callbacks and checkpoints."""

    variables: Sequence[tf.Variable]  # the trained parameters
    steps: int  # at most
    interval: int  # steps between records
    progress_bar: Any  # of tqdm, or None
    callback: Callback | None
    scores: HeldOut | None
    # Stop after as many records without improvement of the first score, else the objective.
    patience: int | None
    checkpoints: Checkpoints | None
    interrupted: Callable[[], bool]
    monitor: Callable[[int], Any] | None = None  # called at every record, for TensorBoard
    iterations: int = 0
    recorded: list[int] = field(default_factory=list)  # iteration of every record
    objective: list[float] = field(default_factory=list)
    held_out: dict[str, list[float]] = field(default_factory=dict)
    # Raised by the user's callback; not handled as a failed step.
    callback_error: BaseException | None = None
    stopped_by_callback: bool = False
    _state: dict[str, tf.Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keeps_best = self.scores is not None and self.patience is not None
        self._best = (
            [tf.Variable(each, trainable=False) for each in self.variables] if keeps_best else []
        )
        self._began = time.perf_counter()
        self._first_of_phase = 0  # record from which `patience` counts
        self._first_of_stage = 0  # record from which the objective has the present rows

    @property
    def seconds(self) -> float:
        """Training time in seconds, without the time between interruption and resumption."""
        return time.perf_counter() - self._began

    @property
    def will_record(self) -> bool:
        """True if the current step ends with a record."""
        number = self.iterations + 1
        return number % self.interval == 0 or number == self.steps

    @property
    def is_over(self) -> bool:
        """True if no step remains or training has stopped early."""
        return self.iterations >= self.steps or self.stopped is not None

    @property
    def stopped(self) -> Outcome | None:
        """The outcome of a run stopped by Ctrl-C, the callback or `patience`; None if it continues."""
        if self.stopped_by_callback:
            return Outcome(EARLY, f"Stopped by the callback after {self.iterations} iterations.")
        if self.interrupted():
            return Outcome(INTERRUPTED, f"Interrupted after {self.iterations} iterations.")
        if self.patience is None:
            return None
        name, values = self._criterion()
        values = values[self._first_of_phase :]
        # argmin finds the first of equal scores.
        if len(values) <= self.patience or int(np.argmin(values)) >= len(values) - self.patience:
            return None
        return Outcome(
            EARLY, f"Stopped early: the {name} has not improved for {self.patience} records."
        )

    def resume(self, state: Mapping[str, tf.Variable]) -> Outcome | None:
        """Resume from the checkpoint, if there is one; return the outcome of a finished run, or None to continue."""
        self._state = {
            f"best.{number}": variable for number, variable in enumerate(self._best)
        } | dict(state)
        self._state |= {
            f"parameter.{number}": variable for number, variable in enumerate(self.variables)
        }
        saved = None if self.checkpoints is None else self.checkpoints.restore(self._state)
        if saved is None:
            return None
        self._began -= saved.pop("seconds")
        ended = saved.pop("ended")
        vars(self).update(saved)
        if self.progress_bar is not None:
            self.progress_bar.update(self.iterations)
        return None if ended is None else Outcome(*ended)

    def step(self, objective: float | None) -> None:
        """Count a step; record the objective if it is given."""
        self.iterations += 1
        if self.progress_bar is not None:
            self.progress_bar.update()
        if objective is not None:
            self._record(objective)

    def begin_phase(self) -> None:
        """Count `patience` anew: other parameters are trained from now on."""
        self._first_of_phase = max(0, len(self.objective) - 1)

    def begin_stage(self) -> None:
        """Count `patience` and the records of the stage anew: the objective has other rows now."""
        self._first_of_phase = self._first_of_stage = len(self.objective)

    def record_last(self, objective: float, *, again: bool = False) -> None:
        """Record the last step, or the start, unless it is recorded; `again` if the parameters have changed since."""
        if again or self.iterations not in self.recorded[self._first_of_stage :][-1:]:
            self._record(objective)

    def discard_last(self) -> None:
        """Discard the failed last step and its record."""
        self.iterations -= 1
        if self.recorded and self.recorded[-1] > self.iterations:
            for values in self._columns:
                values.pop()

    def restore_best(self) -> int | None:
        """Restore the parameters of the best finite held-out score, if scores decide; return its record's index."""
        values = self._criterion()[1]
        if not self._best or not any(np.isfinite(values)):
            return None
        for variable, best in zip(self.variables, self._best, strict=True):
            variable.assign(best)
        # The last of equal scores, whose parameters were copied.
        return len(values) - 1 - int(np.argmin(values[::-1]))

    def save(self, outcome: Outcome | None = None) -> None:
        """Write a checkpoint, if there is a checkpoint file."""
        if self.checkpoints is not None:
            saved = {name: outcome if name == "ended" else getattr(self, name) for name in HISTORY}
            self.checkpoints.save(saved, self._state)

    def close(self, restored: int | None, energy: float | None) -> None:
        """Append a record of the final parameters: record `restored` again, or `energy` at sites converged since."""
        if energy is not None:
            scores = {}
            if self.scores is not None:
                try:
                    scores = self.scores()
                except FAILURES:  # training has ended, and its result must not be lost
                    scores = dict.fromkeys(self.scores.names, np.nan)
            self._append(
                self.iterations if restored is None else self.recorded[restored], energy, scores
            )
        elif restored is not None:
            for values in self._columns:
                values.append(values[restored])

    @property
    def _columns(self) -> list[list[Any]]:
        """The columns of the table of records: iteration, objective and scores."""
        return [self.recorded, self.objective, *self.held_out.values()]

    def _append(self, iteration: int, objective: float, scores: Mapping[str, float]) -> None:
        self.recorded.append(iteration)
        self.objective.append(objective)
        for name, value in scores.items():
            self.held_out.setdefault(name, []).append(value)

    def _record(self, objective: float) -> None:
        self._append(self.iterations, objective, {} if self.scores is None else self.scores())
        values = self._criterion()[1]
        if self._best and values[-1] == min(values) < np.inf:
            for best, variable in zip(self._best, self.variables, strict=True):
                best.assign(variable)
        if self.progress_bar is not None:
            records = {"objective": self.objective, **self.held_out}
            latest = ", ".join(f"{name} {values[-1]:.6g}" for name, values in records.items())
            self.progress_bar.set_postfix_str(latest, refresh=False)
        if self.callback is not None and not self.stopped_by_callback:
            try:
                self.callback(self.iterations, objective)
            except StopIteration:
                self.stopped_by_callback = True
            except BaseException as error:
                self.callback_error = error
                raise
        if self.monitor is not None:
            self.monitor(self.iterations)
        if self.checkpoints is not None and self.checkpoints.is_due:
            self.save()

    def _criterion(self) -> tuple[str, list[float]]:
        """Return name and values of the early-stopping criterion; smaller is better."""
        name, values = "objective", [-value for value in self.objective]
        if self.held_out:
            name, values = next(iter(self.held_out.items()))
            name = f"held-out {name}"
        return name, [value if np.isfinite(value) else np.inf for value in values]


def finite_loss(loss: tf.Tensor, gradient: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the loss; raise an error unless loss and gradient are finite."""
    accepted = [tf.reduce_all(tf.math.is_finite(value)) for value in (loss, *gradient)]
    return asserted(loss, tf.stack(accepted), NOT_FINITE)
