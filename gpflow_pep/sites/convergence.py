"""Damped updates of the sites until they have converged, with a status; nothing improper is ever accepted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from .energy import log_integral
from .gaussian import Posterior, SiteSums
from .sweep import Sites, Sweep

_SMALLEST_STEP = 1e-4


@dataclass(frozen=True)
class SitesStatus:
    """How an update of the sites ended."""

    converged: bool
    """Whether the last change was below the tolerance."""

    sweeps: int
    """Sweeps over the data."""

    change: float
    """The largest change of a marginal, in its own standard deviations, that an undamped update would still make."""

    log_evidence: float
    """The energy at the sites: an approximation to log p(y), in nats."""

    damping: float
    """The fraction of an update that was taken in the end."""


Report = Callable[[SitesStatus], None]
"""Called after every sweep."""


class _Damping:
    """
    The fraction of an update that is taken. It is halved when an update undid much of the one before, or made the
    remaining change larger, and grows by a fifth while changes shrink.
    """

    def __init__(self, largest: float):
        self._largest = self.fraction = largest
        self._last: tuple[float, tf.Tensor] | None = None

    def adapt(self, found: Sweep) -> None:
        change, direction = float(found.change), found.c
        if self._last is not None:
            last_change, last = self._last
            cosine = float(tf.reduce_sum(last * direction) / (tf.norm(last) * tf.norm(direction) + 1e-300))
            if change > last_change or cosine < -0.3:
                self.fraction = max(0.5 * self.fraction, 0.02)
            else:
                self.fraction = min(1.2 * self.fraction, self._largest)
        self._last = (change, direction)

    def reject(self, fraction: float) -> None:
        self.fraction = fraction
        self._last = None


def converge(
    sites: Sites,
    sums: Callable[[], SiteSums],
    sweep: Callable[..., Sweep],
    *,
    max_sweeps: int,
    tol: float,
    damping: float,
    report: Report | None,
) -> SitesStatus:
    """
    Parallel sweeps: all sites are updated from the same q, by a fraction that adapts.

    :param sums: computes the sums from the sites.
    :param sweep: what the sites should become under given sums.
    :raises FloatingPointError: where there is no step that keeps everything proper.
    """
    state, found = _proper_start(sites, sums(), sweep)
    control, sweeps = _Damping(damping), 1
    while True:
        status = _status(state, found, tol, sweeps, control.fraction)
        if report is not None:
            report(status)
        if status.converged or sweeps >= max_sweeps:
            return status
        control.adapt(found)
        step = control.fraction
        while not (candidate := state.moved(step, found.A, found.c)).is_proper():
            step = _halved(step)
        _move(sites, step, found)
        try:
            new = sweep(candidate)
            sweeps += 1
            while not _is_proper(new):  # back half of the way, until all cavities are proper
                _move(sites, -0.5 * step, found)
                step = _halved(step)
                control.reject(step)
                candidate = state.moved(step, found.A, found.c)
                new = sweep(candidate)
                sweeps += 1
        except BaseException:
            _move(sites, -step, found)
            raise
        state, found = candidate, new


def _proper_start(sites: Sites, state: SiteSums, sweep: Callable[..., Sweep]) -> tuple[SiteSums, Sweep]:
    """The sites as they are, or scaled down where the hyperparameters have changed so that they are improper."""
    for _ in range(40):
        if state.is_proper():
            found = sweep(state)
            if _is_proper(found):
                return state, found
        for variable in (sites.precision, sites.linear):
            variable.assign(0.5 * variable)
        state = SiteSums(state.L, 0.5 * state.A, 0.5 * state.c)
    raise FloatingPointError(
        "The sites cannot be updated: tilted distributions are not finite even under the prior. Check data, likelihood "
        "and kernel for values that are NaN, infinite or overflowing."
    )


def _is_proper(found: Sweep) -> bool:
    finite = all(np.isfinite(float(value)) for value in (found.terms, found.change))
    return finite and float(found.remaining) > 0.0


def _halved(step: float) -> float:
    if step < _SMALLEST_STEP:
        raise FloatingPointError(
            "No update of the sites keeps B and all cavities positive definite. Try a smaller alpha, a larger jitter, "
            "or hyperparameters that fit the data better."
        )
    return 0.5 * step


def _move(sites: Sites, step: float, found: Sweep) -> None:
    for variable, change in zip((sites.precision, sites.linear), found.site, strict=True):
        variable.assign_add(step * change)


def _status(state: SiteSums, found: Sweep, tol: float, sweeps: int, damping: float) -> SitesStatus:
    log_evidence = float(log_integral(Posterior.of(*state), state.c) + found.terms)
    change = float(found.change)
    return SitesStatus(change <= tol, sweeps, change, log_evidence, damping)
