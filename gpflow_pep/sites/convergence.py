"""Damped updates of the sites until they have converged, with a status; nothing improper is ever accepted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

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
    """Updates of all sites."""

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
    look: Callable[[SiteSums], Sweep],
    *,
    max_sweeps: int,
    tol: float,
    damping: float,
    report: Report | None = None,
) -> SitesStatus:
    """
    Parallel sweeps: all sites are updated from the same q, by a fraction that adapts.

    :param sums: computes the sums from the sites.
    :param look: what the sites should become under given sums.
    :raises FloatingPointError: where there is no update that keeps everything proper.
    """
    state, found = proper_start(sites, sums(), look)
    control, sweeps = _Damping(damping), 0
    while True:
        status = _status(state, found, tol, sweeps, control.fraction)
        if report is not None:
            report(status)
        if status.converged or sweeps == max_sweeps:
            return status
        control.adapt(found)
        step = _proper_step(state, found, control.fraction)
        _move(sites, step, found)
        try:
            candidate = state.moved(step, found.A, found.c)
            new = look(candidate)
            while not _is_proper(new):  # back half of the way, until all cavities are proper
                _move(sites, -0.5 * step, found)
                step = _halved(step)
                control.reject(step)
                candidate = state.moved(step, found.A, found.c)
                new = look(candidate)
        except BaseException:
            _move(sites, -step, found)
            raise
        state, found = candidate, new
        sweeps += 1


def converge_in_batches(
    sites: Sites,
    sums: Callable[[], SiteSums],
    look: Callable[[SiteSums], Sweep],
    look_at: Callable[[SiteSums, AnyNDArray], Sweep],
    *,
    batch_size: int,
    max_sweeps: int,
    tol: float,
    damping: float,
    report: Report | None = None,
) -> SitesStatus:
    """
    Minibatch sweeps: q is updated after every batch, and all rows are looked at once a sweep, for the status.

    :param look_at: what the sites of some rows should become.
    """
    state, found = proper_start(sites, sums(), look)
    rng = np.random.default_rng(0)
    for sweeps in range(max_sweeps + 1):
        status = _status(state, found, tol, sweeps, damping)
        if report is not None:
            report(status)
        if status.converged:
            break
        if sweeps < max_sweeps:
            order = rng.permutation(sites.num_data)
            for start in range(0, len(order), batch_size):
                state = update_batch(sites, state, look_at, order[start : start + batch_size], damping)
            state, found = proper_start(sites, state, look)
    return status


def update_batch(
    sites: Sites,
    state: SiteSums,
    look_at: Callable[[SiteSums, AnyNDArray], Sweep],
    rows: AnyNDArray,
    damping: float,
) -> SiteSums:
    """The sites of some rows, each with a proper cavity, are updated by at most `damping`: the new sums."""
    found = look_at(state, rows)
    if not np.isfinite(float(found.change)):
        return state
    step = _proper_step(state, found, damping)
    _move(sites, step, found, rows)
    return state.moved(step, found.A, found.c)


def update_once(sites: Sites, sums: Callable[[], SiteSums], look: Callable[[SiteSums], Sweep], damping: float) -> Sweep:
    """One parallel update, by at most `damping`; its cavities are not looked at. Returns what was found before it."""
    state, found = proper_start(sites, sums(), look)
    _move(sites, _proper_step(state, found, damping), found)
    return found


def proper_start(sites: Sites, state: SiteSums, look: Callable[[SiteSums], Sweep]) -> tuple[SiteSums, Sweep]:
    """The sites as they are, or scaled down where the hyperparameters have changed so that they are improper."""
    for _ in range(40):
        if state.is_proper():
            found = look(state)
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


def _proper_step(state: SiteSums, found: Sweep, step: float) -> float:
    """The step, halved until B is positive definite."""
    while not state.moved(step, found.A, found.c).is_proper():
        step = _halved(step)
    return step


def _halved(step: float) -> float:
    if step < _SMALLEST_STEP:
        raise FloatingPointError(
            "No update of the sites keeps B and all cavities positive definite. Try a smaller alpha, a larger jitter, "
            "or hyperparameters that fit the data better."
        )
    return 0.5 * step


def _move(sites: Sites, step: float, found: Sweep, rows: AnyNDArray | None = None) -> None:
    for variable, change in zip((sites.precision, sites.linear), found.site, strict=True):
        if rows is None:
            variable.assign_add(step * change)
        else:
            variable.scatter_add(tf.IndexedSlices(step * change, rows))


def _status(state: SiteSums, found: Sweep, tol: float, sweeps: int, damping: float) -> SitesStatus:
    log_evidence = float(log_integral(Posterior.of(*state), state.c) + found.terms)
    change = float(found.change)
    return SitesStatus(change <= tol, sweeps, change, log_evidence, damping)
