"""Random models and calls, good and bad: each outcome is right, or one of our own errors that names what is wrong.

A case makes a regression model from data in some layout and place (far from the origin, in clusters, duplicated, few
rows, ...), with parameters over many orders of magnitude, and calls it. Or it has one flaw (NaN, shapes, absurd
numbers), which must be refused by a `ValueError` that names the argument. Objective and predictions of cases without a
flaw are compared with 50 digits. All follows from the seed of the case.

    python -m experiments.campaign.calls [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import argparse
import copy
import json
import re
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from experiments.arguments import count
from experiments.campaign.cases import KERNELS, PLACES, Case, case_of, flaw_of, make
from experiments.campaign.reference import Reference, power_ep

_TOLERANCE = 1e-6  # relative, of what is well conditioned
_EPS = float(np.finfo(float).eps)


class Outcome(NamedTuple):
    """How a case ended."""

    verdict: str
    """"right", "refused", or what is wrong."""
    error: float
    """The largest error in units of what is tolerated; NaN where there is nothing to compare."""
    message: str


def run(case: Case) -> Outcome:
    """Make the model of a case, call it, and judge what comes of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.flaw is not None:
            return _refusal(case)
        try:
            model = make(case)
            return compare(case, model)
        except tf.errors.InvalidArgumentError as error:
            message = str(error)
            named = re.search(
                r"factorisation of (Kuu|B) failed|variance of f given u|lengthscales of their mean", message
            )
            return Outcome("refused" if named else "raw error", np.nan, message[:300])
        except Exception as error:
            return Outcome("raw error", np.nan, f"{type(error).__name__}: {error}"[:300])


def _refusal(case: Case) -> Outcome:
    name = flaw_of(case).names
    try:
        make(case)
    except ValueError as error:
        said = str(error)
        return Outcome(
            "refused" if re.search(rf"\b{name}\b", said) and len(said) < 400 else "refused obscurely",
            np.nan,
            said[:300],
        )
    except Exception as error:
        return Outcome("raw error", np.nan, f"{type(error).__name__}: {error}"[:300])
    return Outcome("accepted", np.nan, "")


def compare(case: Case, model: Any) -> Outcome:
    """Compare objective and predictions, of the model and of a copy, with 50 digits."""
    kernel = KERNELS[case.kernel][1](
        *(float(value.numpy()) for value in (model.kernel.variance, model.kernel.lengthscales))
    )
    jitter, noise = gpflow.default_jitter(), float(model.likelihood.variance.numpy())
    expected = power_ep(
        (case.X, case.Y), kernel, model.inducing_variable.Z.numpy(), case.Xnew,
        alpha=case.alpha, noise=noise, jitter=jitter, structured=case.model == "TSGPR",
    )  # fmt: skip
    objective = float(model.maximum_log_likelihood_objective())
    mean, variance = (value.numpy()[:, 0] for value in model.predict_f(case.Xnew))
    _, full = copy.deepcopy(model).predict_f(case.Xnew, full_cov=True)
    tolerated = _tolerated(case, expected, noise)
    errors = {
        "objective": abs(objective - expected.objective) / tolerated["objective"],
        "mean": np.abs(mean - expected.mean).max() / tolerated["mean"],
        "variance": np.abs(variance - expected.variance).max() / tolerated["variance"],
        "full covariance": np.abs(np.diagonal(full.numpy()[0]) - expected.variance).max() / tolerated["variance"],
    }
    worst = max(errors, key=lambda name: errors[name] if np.isfinite(errors[name]) else np.inf)
    if not np.isfinite(errors[worst]):
        return Outcome("not finite", np.inf, worst)
    return Outcome("right" if errors[worst] <= 1.0 else f"wrong {worst}", float(errors[worst]), "")


def _tolerated(case: Case, expected: Reference, noise: float) -> dict[str, float]:
    """
    Errors that rounding explains: 1e-6 of the terms' size, and what rounding of Kuu by eps variance does.

    It moves the variance of f given u by eps variance |Kuu^-1 k|^2; the objective by that over the noise for each row,
    and a mean, whose weight is at most its own size over the noise, likewise.
    """
    moved = 10.0 * len(case.Z) * _EPS * case.variance * (1.0 + expected.amplification)
    relative = _TOLERANCE + len(case.X) * moved / noise
    return {
        "objective": relative * (1.0 + expected.size),
        "mean": relative * (np.sqrt(case.variance) + float(np.abs(case.Y).max())),
        "variance": relative * case.variance + moved,
    }


def main() -> None:
    """Run cases and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=count, default=1000, help="how many, at most (%(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case (%(default)s)")
    parser.add_argument("--output", type=Path, help="file for what is wrong (JSON)")
    arguments = parser.parse_args()
    began, found = time.monotonic(), []
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        if time.monotonic() - began > 60.0 * arguments.minutes:
            break
        case = case_of(seed)
        outcome = run(case)
        found.append((case, outcome))
        if outcome.verdict not in ("right", "refused") or (outcome.verdict == "refused" and case.flaw is None):
            print(seed, *case[1:6], f"variance {case.variance:.2g} lengthscale {case.lengthscale:.2g}",
                  f"noise {case.noise:.2g} alpha {case.alpha}", *outcome, flush=True)  # fmt: skip
    if arguments.output:
        wrong = [{"seed": case.seed, **outcome._asdict()} for case, outcome in found if outcome.verdict != "right"]
        arguments.output.write_text(json.dumps(wrong, indent=1))
    print_table(found)


def print_table(found: list[tuple[Case, Outcome]]) -> None:
    """Print how many cases ended how, and the worst errors of those that are right."""
    print(f"\n{'':28}{'cases':>7}{'right':>7}{'refused':>9}{'other':>7}{'worst error / tolerated':>25}")
    for group in ("flawed", *PLACES, "all"):
        outcomes = [
            outcome for case, outcome in found if group in ("all", case.place if case.flaw is None else "flawed")
        ]
        verdicts = Counter(outcome.verdict for outcome in outcomes)
        errors = [outcome.error for outcome in outcomes if outcome.verdict == "right"]
        other = len(outcomes) - verdicts["right"] - verdicts["refused"]
        worst = f"{max(errors):25.2g}" if errors else ""
        print(f"{group:28}{len(outcomes):7}{verdicts['right']:7}{verdicts['refused']:9}{other:7}{worst}")


if __name__ == "__main__":
    main()
