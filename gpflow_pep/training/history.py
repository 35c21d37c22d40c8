"""The history of a training: what is recorded, reported, scored, shown and saved at its steps, and when it is over."""

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .checkpoints import Checkpoints
from .result import EARLY, Ending
from .saved_history import SavedHistory

Report = Callable[[int, float], None]
"""Called at every record with the iteration's number, from 1, and the objective, in nats."""

# What writing raises, by Python or by TensorFlow.
UNWRITABLE = (
    OSError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.FailedPreconditionError,
    tf.errors.ResourceExhaustedError,
)

Scores = Callable[[], Mapping[str, float]]
Watch = Callable[[int], Any]


class History:
    """What a training has done so far, and what is told and written of it."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        *,
        steps: int,
        interval: int,
        bar: Any,
        report: Report | None,
        scores: Scores | None,
        patience: int | None,
        checkpoints: Checkpoints | None,
    ):
        """
        :param variables: the parameters that are trained.
        :param steps: at most.
        :param interval: steps between records.
        :param bar: tqdm's.
        :param scores: of held-out rows, now; the smaller the better.
        :param patience: so many records in a row without anything better end it: of the first score, or else of the
            objective.
        """
        self.iterations = 0
        self.objective: list[float] = []
        self.held_out: dict[str, list[float]] = {}
        self.watch: Watch | None = None
        """Called at every record, for TensorBoard."""
        self.watched = ""
        """Where that writes."""
        self._steps, self._interval = steps, interval
        self._bar, self._report, self._scores, self._patience = bar, report, scores, patience
        self._trained = list(variables)
        self._best = [] if scores is None or patience is None else _copies(variables)
        self._checkpoints, self._state = checkpoints, dict[str, tf.Variable]()
        self._recorded, self._before, self._began = 0, 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the beginning, without the time that nothing ran."""
        return self._before + time.perf_counter() - self._began

    @property
    def will_record(self) -> bool:
        """Whether the step that is being taken is followed by a record."""
        number = self.iterations + 1
        return number % self._interval == 0 or number == self._steps

    @property
    def is_over(self) -> bool:
        """Whether no step remains, or there has been nothing better for too long."""
        return self.iterations >= self._steps or self.is_over_early

    @property
    def is_over_early(self) -> bool:
        """Whether there has been nothing better for too long."""
        if self._patience is None:
            return False
        values = self._judged_by()[1]
        return len(values) > self._patience and int(np.argmin(values)) < len(values) - self._patience  # the first best

    @property
    def ending(self) -> Ending:
        """How training ended that is over early."""
        name = self._judged_by()[0]
        return Ending(EARLY, f"Stopped early: the {name} has not been better for {self._patience} records.")

    def resume(self, state: Mapping[str, tf.Variable]) -> Ending | None:
        """
        Go on from a checkpoint, if there is one.

        :param state: what goes from step to step beside the parameters, by name.
        :return: how the run had ended, if it had.
        :raises ValueError: where the checkpoint is not of this run.
        """
        self._state = {f"best.{number}": variable for number, variable in enumerate(self._best)} | {
            f"parameter.{number}": variable for number, variable in enumerate(self._trained)
        }
        self._state |= state
        saved = None if self._checkpoints is None else self._checkpoints.restore(self._state)
        if saved is None:
            return None
        self.iterations, self._recorded, self._before = saved.iterations, saved.iterations, saved.seconds
        self.objective, self.held_out = saved.objective, saved.held_out
        self._bar.update(self.iterations)
        return None if saved.ended is None else Ending(*saved.ended)

    def step(self, objective: float | None) -> None:
        """A step is done; where one is given the objective is recorded."""
        self.iterations += 1
        self._bar.update()
        if objective is not None:
            self._record(objective)

    def close(self, objective: float) -> None:
        """A record of the last step, or of the start, if it has none."""
        if self._recorded < self.iterations or not self.objective:
            self._record(objective)

    def undo(self) -> None:
        """The last step has turned out to be none."""
        self.iterations -= 1
        if self._recorded > self.iterations:
            self._recorded = self.iterations
            self.objective.pop()
            for values in self.held_out.values():  # without that of the step, if scoring it failed
                del values[len(self.objective) :]

    def go_back_to_best(self) -> None:
        """The parameters of the best score come back, if scores have ended the training and one was finite."""
        if not any(np.isfinite(self._judged_by()[1])):
            return
        for variable, best in zip(self._trained, self._best, strict=bool(self._best)):
            variable.assign(best)

    def save(self, ended: Ending | None = None) -> None:
        """Write a checkpoint, if they are asked for."""
        if self._checkpoints is None:
            return
        ending = None if ended is None else [ended.status, ended.reason]
        saved = SavedHistory(self.iterations, self.seconds, self.objective, self.held_out, ending)
        self._checkpoints.save(saved, self._state)

    def _record(self, objective: float) -> None:
        self._recorded = self.iterations
        self.objective.append(objective)
        for name, value in ({} if self._scores is None else self._scores()).items():
            self.held_out.setdefault(name, []).append(value)
        if self._best:
            judged_by = self._judged_by()[1]
            if judged_by[-1] == min(judged_by) < np.inf:
                for best, variable in zip(self._best, self._trained, strict=True):
                    best.assign(variable)
        now = {"objective": self.objective, **self.held_out}
        self._bar.set_postfix_str(", ".join(f"{name} {each[-1]:.6g}" for name, each in now.items()), refresh=False)
        if self._report is not None:
            self._report(self.iterations, objective)
        if self.watch is not None:
            self._show(self.watch)
        if self._checkpoints is not None and self._checkpoints.is_due:
            self.save()

    def _show(self, watch: Watch) -> None:
        """Call the monitor. If it cannot write, warn and go on without it."""
        try:
            watch(self.iterations)
        except UNWRITABLE as error:
            reason = error.message if isinstance(error, tf.errors.OpError) else str(error)
            reason = re.sub(r"^\{\{.*?\}\} ?", "", reason).splitlines()[0]  # not which operation it was, nor the rest
            where = f"tensorboard {self.watched!r}"
            warnings.warn(f"{where} could not be written: {reason}; training goes on without it.", stacklevel=2)
            self.watch = None

    def _judged_by(self) -> tuple[str, list[float]]:
        """What an early end is decided by, and its values, the smaller the better."""
        name, values = "objective", [-value for value in self.objective]
        if self.held_out:
            name, values = next(iter(self.held_out.items()))
            name = f"held-out {name}"
        return name, [value if np.isfinite(value) else np.inf for value in values]


def _copies(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    return [tf.Variable(variable, trainable=False) for variable in variables]
