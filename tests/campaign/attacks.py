"""
Random attacks on models, predictions, streams and estimators: each has the right result or is
refused clearly.

A case is one of the attacks on a random subject. It must give the numbers of an independent
computation, such as of a model constructed anew with the part that was replaced. Or it must be
refused by an error that names the argument, after which the subject has the same numbers as before.
The seed of a case determines it.

    python -m campaign.attacks [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError

from campaign import (
    attacks_on_estimators,
    attacks_on_models,
    attacks_on_predictions,
    attacks_on_streams,
)
from campaign.attack_subjects import Attack, NotConverged, Numbers
from campaign.running import Campaign, Outcome

_TOLERANCE = 1e-6  # relative; sites converge to 1e-9
_LONGEST = 400  # characters in which a message names the argument
_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    NotImplementedError,
    OSError,
    tf.errors.InvalidArgumentError,
    ShapeMismatchError,
)

ATTACKS = {
    "models": attacks_on_models.ATTACKS,
    "predictions": attacks_on_predictions.ATTACKS,
    "streams": attacks_on_streams.ATTACKS,
    "estimators": attacks_on_estimators.ATTACKS,
}
NAMES = [(kind, name) for kind, attacks in ATTACKS.items() for name in attacks]


class Case(NamedTuple):
    """An attack, by name, and the seed of its subject."""

    seed: int
    kind: str
    name: str


def case_of(seed: int) -> Case:
    """Return the case of a seed: the attacks follow each other."""
    return Case(seed, *NAMES[seed % len(NAMES)])


def run(case: Case) -> Outcome:
    """Attack the subject of a case, and judge the outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return judge(ATTACKS[case.kind][case.name], np.random.default_rng([case.seed, 11]))
        except NotConverged as error:
            return Outcome("not converged", np.nan, str(error))


def judge(attack: Attack, rng: np.random.Generator) -> Outcome:
    """Judge an attack on a random subject."""
    subject = attack.subject(rng)
    before = subject.numbers()
    try:
        result = attack.act(subject)
    except NotConverged:
        raise
    except Exception as error:
        outcome = _refusal(attack.names, error)
        return outcome if outcome.verdict != "refused" else _unchanged(outcome, subject, before)
    if attack.names is not None:
        return Outcome("accepted", np.nan, "")
    found, expected = result
    return _compared(found, expected)


def _refusal(names: str | None, error: Exception) -> Outcome:
    said = str(error)
    message = f"{type(error).__name__}: {said}"[:300]
    if names is None or not isinstance(error, _ERRORS):
        return Outcome("raw error", np.nan, message)
    # GPflow's shapes are a table, and scikit-learn adds advice in further lines.
    first = said if isinstance(error, ShapeMismatchError) else said.partition("\n")[0][:_LONGEST]
    return Outcome("refused" if re.search(names, first) else "refused obscurely", np.nan, message)


def _unchanged(refused: Outcome, subject: Any, before: Numbers) -> Outcome:
    try:
        after = _compared(subject.numbers(), before)
    except NotConverged:
        raise
    except Exception as error:
        return Outcome("model changed", np.inf, f"{type(error).__name__}: {error}"[:300])
    return (
        refused
        if after.verdict == "right"
        else Outcome("model changed", after.error, after.message)
    )


def _compared(found: Numbers, expected: Numbers) -> Outcome:
    """Compare arrays, by name, relative to the largest entry."""
    worst = Outcome("right", 0.0, "")
    for name in found.keys() | expected.keys():
        one, two = (np.asarray(each.get(name, np.nan), dtype=float) for each in (found, expected))
        error = np.inf
        if one.shape == two.shape and np.isfinite(one).all() and np.isfinite(two).all():
            error = float(
                np.abs(one - two).max(initial=0.0)
                / (_TOLERANCE * (1.0 + np.abs(two).max(initial=0.0)))
            )
        if error >= worst.error:
            worst = Outcome(
                "right" if error <= 1.0 else "wrong numbers", error, "" if error <= 1.0 else name
            )
    return worst


CAMPAIGN = Campaign(
    case_of,
    run,
    words=lambda case: (case.kind, repr(case.name)),
    groups=tuple(ATTACKS),
    groups_of=lambda case: (case.kind,),
    verdicts=("right", "refused", "not converged"),
)

if __name__ == "__main__":
    CAMPAIGN.main(__doc__)
