"""Judge results, files and errors after a fault, for all kinds of faults."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from campaign import damage
from campaign.children import TRAININGS, Ended, Trained, undisturbed
from campaign.running import Outcome
from gpflow_pep.saving.arrays_file import load_arrays

TOLERANCE = 1e-6  # of objectives that L-BFGS ends with, relative; of predictions at converged sites
# Between the ends of two searches at converged sites, whose steps differ: 3e-5 has been seen.
_ELSEWHERE = 1e-4


class Case(NamedTuple):
    """A fault and its subject."""

    seed: int
    kind: str
    subject: str

    @property
    def rng(self) -> np.random.Generator:
        """The seed of all random choices."""
        return np.random.default_rng([self.seed, 1])


def right(error: float = 0.0, message: str = "") -> Outcome:
    """Judge a value against the expected value; numbers within a tolerance."""
    return Outcome("right" if error <= 1.0 else "wrong numbers", error, message)


def wrong(verdict: str, message: object = "") -> Outcome:
    """Judge a condition that must not hold."""
    return Outcome(verdict, np.nan, str(message)[-300:])


def same_arrays(found: dict[str, AnyNDArray], expected: dict[str, AnyNDArray]) -> Outcome:
    """Bit for bit."""
    differing = [
        name
        for name in found.keys() | expected.keys()
        if name not in found
        or name not in expected
        or not np.array_equal(found[name], expected[name])
    ]
    return wrong("wrong numbers", f"{sorted(differing)} differ") if differing else right()


def compared(name: str, trained: Trained, least: float = -np.inf) -> Outcome:
    """
    Compare a training with the undisturbed one.

    :param least: the objective that it had when it was killed.
    """
    expected = undisturbed(name).trained
    if trained.status != expected.status:
        return wrong("other status", trained.status)
    if TRAININGS[name].exact:
        if trained.objective != expected.objective:
            return wrong(
                "wrong numbers", f"objectives {trained.objective}, not {expected.objective}"
            )
        return same_arrays(trained.values, expected.values)
    size = TOLERANCE * (1.0 + abs(expected.evaluated))
    found = trained.evaluated
    another_way = (expected.evaluated - found) * (
        TOLERANCE / _ELSEWHERE if "precision" in trained.values else 1.0
    )
    worse = max(abs(trained.objective[-1] - found), least - found, another_way, 0.0)
    return right(
        worse / size,
        f"{found!r}, said {trained.objective[-1]!r}, killed {least!r}, undisturbed "
        f"{expected.evaluated!r}",
    )


def whole(path: Path) -> Outcome | None:
    """Return the error of an existing file; None if it is valid."""
    try:
        load_arrays(path, "the file")
    except FileNotFoundError:
        return None
    except Exception as error:
        return wrong("torn file", f"{type(error).__name__}: {error}")
    return None


def refusal(error: Exception, *names: object) -> Outcome:
    """Judge an error: one sentence or two that name a path."""
    said = str(error)
    named = any(str(name) in said for name in names)
    ours = isinstance(error, (ValueError, OSError)) and not isinstance(error, UnicodeError)
    if not ours:
        return wrong("raw error", f"{type(error).__name__}: {said}")
    good = named and "\n" not in said and len(said) < 700
    return Outcome(
        "refused" if good else "refused obscurely", np.nan, f"{type(error).__name__}: {said}"[:300]
    )


def of_ended(ended: Ended, judge: Callable[[Any], Outcome]) -> Outcome:
    """Judge what a child returned, or that it has returned nothing."""
    if ended.code == 0:
        return judge(ended.value)
    return wrong("hung" if ended.code == -signal.SIGALRM else "died", f"{ended.code}: {ended.said}")


def small_disk(
    folder: Path, rng: np.random.Generator, least: int = 64
) -> damage.Disk | damage.Limit:
    """
    Return a place that will be full: at first with room for the file and another one, in kilobytes.
    """
    try:
        return damage.Disk(folder, least + int(rng.integers(512)))
    except OSError:
        return damage.Limit(int(rng.integers(1, 4000)))
