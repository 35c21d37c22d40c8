"""The seconds of a training, without those of its reports."""

import time
from collections.abc import Callable

Report = Callable[[int, float, float], None]
"""
Called after iterations with their number, from 1, the objective in nats and the seconds of training so far; for models
with sites in minibatch training once an epoch.
"""


class Stopwatch:
    """Passes what `gpflow_pep.fit` reports on, and counts the time without the reports."""

    def __init__(self, report: Report):
        self._report = report
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self._began

    def __call__(self, iteration: int, objective: float) -> None:
        """Report, and stop the time meanwhile."""
        seconds = self.seconds()
        self._report(iteration, objective, seconds)
        self._began = time.perf_counter() - seconds
