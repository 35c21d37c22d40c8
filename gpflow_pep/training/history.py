"""History of a training run: records, scores, callbacks, checkpoints and early stopping."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ..ep import SitesStatus
from ..models.sparse import SparseGP
from ..runtime import Tensors, asserted, assign_all, compiled
from ..tilted.predictive import predicted_log_density
from .checkpoints import HISTORY, Checkpoints
from .dataset_batches import rows_for
from .objectives import FAILURES, without_warnings
from .options import Callback, FitOptions
from .result import EARLY, INTERRUPTED, FitResult, Outcome

_CHUNK_ROWS = 4096  # held-out rows predicted at a time
NOT_FINITE = "the training loss or its derivatives are not finite."


@contextmanager
def recorded_interruption(*, enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """
    Yield a function that returns whether Ctrl-C has been pressed; the second time, it raises
    `KeyboardInterrupt`.

    It has no effect outside the main thread (only the main thread receives signals) and in programs
    that handle SIGINT.
    """
    pressed: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(number)

    is_main = threading.current_thread() is threading.main_thread()
    default = signal.default_int_handler
    if enabled and is_main and signal.getsignal(signal.SIGINT) is default:
        signal.signal(signal.SIGINT, record)
    try:
        yield lambda: bool(pressed)
    finally:
        if signal.getsignal(signal.SIGINT) is record:
            signal.signal(signal.SIGINT, default)


def keeping_data(callback: Callback | None, model: GPModel) -> Callback | None:
    """Return the callback; if it replaces the model's data, restore them and raise a ValueError."""
    # Else the data were given to `fit`, or are a dataset, which cannot be replaced.
    if callback is None or not isinstance(getattr(model, "data", None), tuple):
        return callback

    def called(iteration: int, objective: float) -> None:
        before = tuple(map(tf.convert_to_tensor, model.data))  # references to the values, no copies
        stop = None
        try:
            callback(iteration, objective)
        except StopIteration as error:
            stop = error
        finally:  # also after another error, which is raised
            is_replaced = not all(map(_are_equal, before, model.data))
            if is_replaced:
                model.data = before
        if is_replaced:
            raise ValueError(
                "callback must leave model.data as it is during training, got a callback that "
                "replaced it: assign new data after fit, and call fit again."
            ) from stop
        if stop is not None:
            raise stop

    return called


def _are_equal(before: tf.Tensor, now: Any) -> bool:
    now = tf.convert_to_tensor(now)
    return before is now or (before.shape == now.shape and bool(tf.reduce_all(before == now)))


class HeldOut:
    """Held-out scores at the current parameters; smaller is better."""

    def __init__(self, model: GPModel, data: RegressionData):
        try:
            rows = rows_for(model, data)
        except ValueError as error:
            raise ValueError(f"held_out: {error}") from error
        self._model = model
        self._data = tuple(map(tf.constant, rows))
        self.names = ["nlpd"]
        if isinstance(model.likelihood, Gaussian):
            self.names.append("rmse")

    def __call__(self) -> dict[str, float]:
        """Compute the mean negative log density in nats and, for Gaussian noise, the RMSE."""
        with without_warnings(self._model):
            density, square = map(float, self._sums(*self._data))
        n, P = self._data[1].shape
        scores = {"nlpd": -density / n, "rmse": float(np.sqrt(square / (n * P)))}
        return {name: scores[name] for name in self.names}

    @compiled
    def _sums(self, X: tf.Tensor, Y: tf.Tensor) -> Tensors:
        """Sum log predictive densities [] and squared errors [] over rows, with one posterior."""
        model = self._model
        predict = model.predict_f
        if isinstance(model, SparseGP):  # each call of its `predict_f` would read all its rows
            predict = model.posterior().predict_f

        def part(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            inputs, outputs = chunk.data
            mean, variance = predict(inputs)
            density = predicted_log_density(model.likelihood, inputs, mean, variance, outputs)
            square = zero
            if "rmse" in self.names:
                square = tf.square(outputs - mean)
            return tf.reduce_sum(density), tf.reduce_sum(square)

        zero = tf.zeros([], X.dtype)
        return split_rows((X, Y), _CHUNK_ROWS).sum(part, (zero, zero))


@dataclass(kw_only=True)
class History:
    """Training loop state: records, early stopping, interruption, callbacks and checkpoints."""

    options: FitOptions
    variables: Sequence[tf.Variable]  # the trained parameters
    interval: int = 1  # steps between records
    progress_bar: Any = None  # of tqdm
    scores: HeldOut | None = None
    checkpoints: Checkpoints | None = None
    interrupted: Callable[[], bool] = lambda: False
    monitor: Callable[[int], object] | None = None  # called at every record, for TensorBoard
    iterations: int = 0
    recorded: list[int] = field(default_factory=list)  # iteration of every record
    objective: list[float] = field(default_factory=list)
    held_out: dict[str, list[float]] = field(default_factory=dict)
    # Raised by the user's callback; not handled as a failed step.
    callback_error: BaseException | None = None
    stopped_by_callback: bool = False
    _state: dict[str, tf.Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._best: list[tf.Variable] = []
        if self.scores is not None and self.options.patience is not None:
            self._best = [tf.Variable(each, trainable=False) for each in self.variables]
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
        return number % self.interval == 0 or number == self.options.steps

    @property
    def is_over(self) -> bool:
        """True if no step remains or training has stopped early."""
        return self.iterations >= self.options.steps or self.stopped is not None

    @property
    def stopped(self) -> Outcome | None:
        """The outcome of a run stopped by Ctrl-C, callback or `patience`; None if it continues."""
        if self.stopped_by_callback:
            return Outcome(EARLY, f"Stopped by the callback after {self.iterations} iterations.")
        if self.interrupted():
            return Outcome(INTERRUPTED, f"Interrupted after {self.iterations} iterations.")
        patience = self.options.patience
        if patience is None:
            return None
        name, values = self._criterion()
        values = values[self._first_of_phase :]
        # argmin finds the first of equal scores.
        if len(values) <= patience or int(np.argmin(values)) >= len(values) - patience:
            return None
        return Outcome(EARLY, f"Stopped early: the {name} has not improved for {patience} records.")

    def resume(self, state: dict[str, tf.Variable]) -> Outcome | None:
        """Resume from the checkpoint, if there is one; return the outcome of a finished run."""
        if self.checkpoints is None:
            return None
        self._state = state | numbered("best", self._best) | numbered("parameter", self.variables)
        saved = self.checkpoints.restore(self._state)
        if saved is None:
            return None
        self._began -= saved.pop("seconds")
        ended = saved.pop("ended")
        vars(self).update(saved)
        if self.progress_bar is not None:
            self.progress_bar.update(self.iterations)
        return ended and Outcome(*ended)

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
        """Record the final state once; `again` forces a record after the parameters changed."""
        if again or self.iterations not in self.recorded[self._first_of_stage :][-1:]:
            self._record(objective)

    def discard_last(self) -> None:
        """Discard the failed last step and its record."""
        self.iterations -= 1
        if self.recorded and self.recorded[-1] > self.iterations:
            for values in self._columns:
                values.pop()

    def restore_best(self) -> int | None:
        """Restore the parameters of the best held-out score; return the index of its record."""
        values = self._criterion()[1]
        if not self._best or not any(np.isfinite(values)):
            return None
        assign_all(self.variables, self._best)
        # The last of equal scores, whose parameters were copied.
        return len(values) - 1 - int(np.argmin(values[::-1]))

    def save(self, outcome: Outcome | None = None) -> None:
        """Write a checkpoint, if there is a checkpoint file."""
        if self.checkpoints is not None:
            saved = {name: getattr(self, name) for name in HISTORY if name != "ended"}
            self.checkpoints.save({**saved, "ended": outcome}, self._state)

    def close(self, restored: int | None, energy: float | None) -> None:
        """Append the final parameters' record: `restored` again, or `energy` at converged sites."""
        if energy is not None:
            scores = {}
            if self.scores is not None:
                try:
                    scores = self.scores()
                except FAILURES:  # training has ended, and its result must not be lost
                    scores = dict.fromkeys(self.scores.names, np.nan)
            iteration = self.iterations
            if restored is not None:
                iteration = self.recorded[restored]
            self._append(iteration, energy, scores)
        elif restored is not None:
            for values in self._columns:
                values.append(values[restored])

    def result(self, outcome: Outcome, sites: SitesStatus | None) -> FitResult:
        """Return the result of the run, which has ended with this outcome and sites."""
        return FitResult(
            *outcome,
            iterations=self.iterations,
            recorded=tuple(self.recorded),
            objective=tuple(self.objective),
            held_out={name: tuple(values) for name, values in self.held_out.items()},
            sites=sites,
            seconds=self.seconds,
        )

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
        scores = {}
        if self.scores is not None:
            scores = self.scores()
        self._append(self.iterations, objective, scores)
        values = self._criterion()[1]
        if self._best and values[-1] == min(values) < np.inf:
            assign_all(self._best, self.variables)
        if self.progress_bar is not None:
            records = {"objective": self.objective, **self.held_out}
            latest = ", ".join(f"{name} {values[-1]:.6g}" for name, values in records.items())
            self.progress_bar.set_postfix_str(latest, refresh=False)
        callback = self.options.callback
        if callback is not None and not self.stopped_by_callback:
            try:
                callback(self.iterations, objective)
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


def numbered(name: str, variables: Iterable[tf.Variable]) -> dict[str, tf.Variable]:
    """Name the variables of a checkpoint by numbers."""
    return {f"{name}.{number}": variable for number, variable in enumerate(variables)}


def finite_loss(loss: tf.Tensor, gradient: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the loss; raise an error unless loss and gradient are finite."""
    accepted = [tf.reduce_all(tf.math.is_finite(value)) for value in (loss, *gradient)]
    return asserted(loss, tf.stack(accepted), NOT_FINITE)
