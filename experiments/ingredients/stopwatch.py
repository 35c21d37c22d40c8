"""Measure the seconds of a training without its reports."""

import time
from collections.abc import Callable

Report = Callable[[int, float, float], None]
"""
A function of the iteration, from 1, the objective in nats and the seconds of training so far. It is called after
iterations; for models with sites in minibatch training once an epoch.
"""


class Stopwatch:
    """Forward the reports of `gpflow_pep.fit`, and count the time without them."""

    def __init__(self, report: Report):
        self._report = report
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since construction, without reports."""
        return time.perf_counter() - self._began

    def __call__(self, iteration: int, objective: float) -> None:
        """Report, and stop the time meanwhile."""
        seconds = self.seconds()
        self._report(iteration, objective, seconds)
        self._began = time.perf_counter() - seconds
