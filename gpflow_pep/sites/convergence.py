"""Damped updates of the sites until they have converged, with a status; nothing improper is ever accepted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .acceleration import Acceleration
from .energy import log_integral
from .gaussian import Move, Site, SiteSums
from .minibatch import SMALLEST_STEP
from .sweep import Sites, Sweep

# A rough look at the tilted distributions is enough while changes are above this and shrink, and for so many sweeps.
_ROUGHLY, _MAX_ROUGH = 0.02, 5
_SLACK, _ROUNDING = 1e-9, 1e-12  # by which rounding may make a bound smaller, relative to it and to what cancels in it
_HUGE = 100.0  # change of a marginal
_SMALL_PART = 1e-3  # of a move that lowers a bound
_NEARLY, _GROWTH = 0.2, 2.0  # changes so large, or that grow so much, make earlier sweeps no guide


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


class Look(NamedTuple):
    """What all sites should become under given sums, to a few digits or exactly."""

    rough: Callable[[SiteSums], Sweep]
    exact: Callable[[SiteSums], Sweep]


class _Damping:
    """
    The fraction of an update that is taken. It is halved when an update undid much of the one before, or made the
    remaining change larger (twice as large, where both went the same way), and otherwise grows by a fifth.
    """

    def __init__(self, largest: float):
        self._largest = self.fraction = largest
        self._last: tuple[float, tf.Tensor] | None = None

    def adapt(self, found: Sweep) -> None:
        """Take in what the last look found."""
        change, direction = float(found.change), found.c
        if self._last is not None:
            last_change, last = self._last
            cosine = float(tf.reduce_sum(last * direction) / (tf.norm(last) * tf.norm(direction) + 1e-300))
            if cosine < -0.3 or change > (2.0 if cosine > 0.5 else 1.0) * last_change:
                self.fraction = max(0.5 * self.fraction, min(0.02, self._largest))
            else:
                self.fraction = min(1.2 * self.fraction, self._largest)
        self._last = (change, direction)

    def reject(self, fraction: float) -> None:
        """The step had to be made this small; what comes next is not to be compared with what came before."""
        self.fraction = fraction
        self._last = None


def converge(
    sites: Sites,
    sums: Callable[[], SiteSums],
    look: Look,
    *,
    max_sweeps: int,
    tol: float,
    damping: float,
    report: Report | None = None,
    warm_up: Callable[[SiteSums, float], SiteSums] | None = None,
    is_bound: bool = False,
) -> SitesStatus:
    """
    Parallel sweeps: all sites are updated from the same q, by a fraction that adapts.

    While changes are large a rough look at the tilted distributions is enough; the last ones are exact, and accelerated
    (:mod:`.acceleration`). Where updates that keep everything proper become tiny the sites are, in the end, those of
    the smallest change that was seen.

    :param sums: computes the sums from the sites.
    :param look: what the sites should become under given sums.
    :param warm_up: a first sweep by a fraction, from given sums to new ones, that is done in another way.
    :param is_bound: whether the energy is a lower bound, of which an update is a natural gradient: then one that makes
        it smaller is taken back, and repeated without acceleration or by half.
    :raises FloatingPointError: where there is no update that keeps everything proper.
    """
    state = sums() if warm_up is None else warm_up(sums(), damping)
    state, found = proper_start(sites, state, look.rough)
    control, acceleration, sweeps = (
        _Damping(damping),
        Acceleration(int(tf.size(sites.linear))),
        int(warm_up is not None),
    )
    rough_looks, last_change, was_huge = 1, np.inf, False
    best: tuple[Site, SitesStatus] | None = None
    while True:
        change = float(found.change)
        was_huge = was_huge or change > _HUGE  # then what cancelled in the sums left its rounding there
        if rough_looks and (
            change < max(_ROUGHLY, tol) or change > last_change or rough_looks > _MAX_ROUGH or sweeps >= max_sweeps
        ):
            state, found = proper_start(sites, sums() if was_huge else state, look.exact)
            control, rough_looks = _Damping(damping), 0
            acceleration.forget()
            change = float(found.change)
        status = _status(state, found, tol, sweeps, control.fraction)
        if report is not None:
            report(status)
        if status.converged or sweeps >= max_sweeps:
            return status
        if not rough_looks and (best is None or change < best[1].change):
            best = sites.values(), status
        # Where steps go to nothing they go to where a cavity is improper.
        if best is not None and control.fraction < SMALLEST_STEP * damping:
            kept, nearest = best
            sites.assign(kept)
            return replace(nearest, sweeps=sweeps, damping=control.fraction)
        control.adapt(found)
        undamped = found.move
        if change > min(_NEARLY, _GROWTH * last_change):
            acceleration.forget()
        moves = acceleration.moves(undamped, control.fraction)
        last_change = change
        has_floor = is_bound and not rough_looks
        floor = _floor(status.log_evidence, _of_rows(state, found)) if has_floor else -np.inf
        state, found, move, taken = _advance(sites, state, moves, look.rough if rough_looks else look.exact, floor)
        if change > _HUGE and not rough_looks:
            state, found = proper_start(sites, sums(), look.exact)
        if taken < 1.0:
            control.reject(taken * control.fraction)
        if taken < 1.0 or move is not moves[0]:
            acceleration.forget()
        elif not rough_looks:
            acceleration.made(undamped, move)
        sweeps += 1
        rough_looks += bool(rough_looks)


def _advance(
    sites: Sites, state: SiteSums, moves: list[Move], look: Callable[[SiteSums], Sweep], floor: float
) -> tuple[SiteSums, Sweep, Move, float]:
    """
    The first move that leaves everything proper and the log evidence above `floor`, or the last one, halved until it
    does: the new sums, what is found there, the move, and the part of it that was made. Where even a small part of it
    does not reach the floor that is for rounding, and it goes on without.
    """
    kept = sites.values()

    def attempt(move: Move, part: float) -> tuple[SiteSums, Sweep] | None:
        candidate = state.moved(part, move.A, move.c)
        if not candidate.is_proper():
            return None
        _move(sites, part, move)
        accepted = False
        try:
            new = look(candidate)
            may_fall = floor == -np.inf or part < _SMALL_PART
            accepted = _is_proper(new) and (may_fall or _log_evidence(candidate, new) >= floor)
        finally:
            if not accepted:
                sites.assign(kept)
        return (candidate, new) if accepted else None

    *others, last = moves
    for move in others:
        if (reached := attempt(move, 1.0)) is not None:
            return *reached, move, 1.0
    part = 1.0
    while (reached := attempt(last, part)) is None:
        part = _halved(part)
    return *reached, last, part


def converge_in_batches(
    sites: Sites,
    sums: Callable[[], SiteSums],
    look: Look,
    update: Callable[[SiteSums, float], SiteSums],
    *,
    max_sweeps: int,
    tol: float,
    damping: float,
    report: Report | None = None,
) -> SitesStatus:
    """
    Minibatch sweeps: q is updated after every batch, and all rows are looked at once a sweep, for the status.

    :param update: updates all sites, batch by batch (:func:`.minibatch.update_rows`), by a
        fraction: from given sums to new ones.
    """
    state, found = proper_start(sites, sums(), look.exact)
    control = _Damping(damping)
    for sweeps in range(max_sweeps + 1):
        status = _status(state, found, tol, sweeps, control.fraction)
        if report is not None:
            report(status)
        if status.converged or sweeps == max_sweeps:
            break
        control.adapt(found)
        state, found = proper_start(sites, update(state, control.fraction), look.exact)
    return status


def update_once(sites: Sites, sums: Callable[[], SiteSums], look: Look, damping: float) -> None:
    """One parallel update, by at most `damping`, from an exact look; its cavities are not looked at."""
    state, found = proper_start(sites, sums(), look.exact)
    _move(sites, _proper_part(state, found.move, damping), found.move)


def proper_start(sites: Sites, state: SiteSums, look: Callable[[SiteSums], Sweep]) -> tuple[SiteSums, Sweep]:
    """The sites as they are, or scaled down where the hyperparameters have changed so that they are improper."""
    kept = sites.values()
    try:
        for _ in range(40):
            if state.is_proper():
                found = look(state)
                if _is_proper(found):
                    return state, found
            for variable in (sites.precision, sites.linear):
                variable.assign(0.5 * variable)
            state = state.moved(-0.5, state.A, state.c)
        raise FloatingPointError(
            "The sites cannot be updated: tilted distributions are not finite even under the prior. Check data, "
            "likelihood and kernel for values that are NaN, infinite or overflowing."
        )
    except BaseException:
        sites.assign(kept)
        raise


def _is_proper(found: Sweep) -> bool:
    finite = all(np.isfinite(float(value)) for value in (found.terms, found.change))
    return finite and float(found.remaining) > 0.0


def _proper_part(state: SiteSums, move: Move, part: float) -> float:
    """The part of a move, halved until B is positive definite."""
    while not state.moved(part, move.A, move.c).is_proper():
        part = _halved(part)
    return part


def _halved(step: float) -> float:
    if step < SMALLEST_STEP:
        raise FloatingPointError(
            "No update of the sites keeps B and all cavities positive definite. Try a smaller alpha, a larger jitter, "
            "or hyperparameters that fit the data better."
        )
    return 0.5 * step


def _move(sites: Sites, part: float, move: Move) -> None:
    for variable, change in zip((sites.precision, sites.linear), move.site, strict=True):
        variable.assign_add(part * change)


def _status(state: SiteSums, found: Sweep, tol: float, sweeps: int, damping: float) -> SitesStatus:
    change = float(found.change)
    return SitesStatus(change <= tol, sweeps, change, _log_evidence(state, found), damping)


def _log_evidence(state: SiteSums, found: Sweep) -> float:
    _, c = state.total()
    return float(log_integral(state.posterior(), c)) + _of_rows(state, found)


def _of_rows(state: SiteSums, found: Sweep) -> float:
    """What is not q's integral."""
    return float(found.terms + state.old.terms)


def _floor(log_evidence: float, of_rows: float) -> float:
    """A bound that another is not below, but for rounding."""
    cancelling = abs(of_rows) + abs(log_evidence - of_rows)
    return log_evidence - _SLACK * abs(log_evidence) - _ROUNDING * cancelling
