"""
Random models and calls: each outcome is right, or one of our own errors that names what is wrong.

A case makes a regression model from data in some layout and place (far from the origin, in
clusters, duplicated, few rows, ...), with parameters over many orders of magnitude, and calls it.
Objective and predictions are compared with 50 digits. All follows from the seed of the case.

    python -m campaign.calls [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import copy
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np

from campaign.cases import KERNELS, PLACES, Case, case_of, make
from campaign.reference import Reference, power_ep
from campaign.running import Campaign, Outcome, guarded, judged

_TOLERANCE = 1e-6  # relative, of what is well conditioned
_EPS = float(np.finfo(float).eps)


def run(case: Case) -> Outcome:
    """Make the model of a case, call it, and judge what comes of it."""
    return guarded(lambda: compare(case, make(case)))


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
        "full covariance": np.abs(np.diagonal(full.numpy()[0]) - expected.variance).max()
        / tolerated["variance"],
    }
    return judged(errors)


def _tolerated(case: Case, expected: Reference, noise: float) -> dict[str, float]:
    """
    Errors that rounding explains: 1e-6 of the terms' size, and what a relative error of Kuu and Kuf
    does.

    The latter is eps, or eps r^2 at points r lengthscales from the mean of the inducing points,
    where squared distances of several inputs are products. It moves the variance of f given u by so
    much times variance |Kuu^-1 k|^2; the objective by that over the noise for each row, and a mean,
    whose weight is at most its own size over the noise, likewise.
    """
    Z = np.asarray(case.Z, dtype=float)
    points = (
        np.concatenate([Z, np.asarray(case.Xnew, dtype=float)]) - Z.mean(axis=0)
    ) / case.lengthscale
    squares = np.square(points).sum(axis=1).max() if Z.shape[1] > 1 else 0.0
    moved = _EPS * max(10.0 * len(Z), squares) * case.variance * (1.0 + expected.amplification)
    relative = _TOLERANCE + len(case.X) * moved / noise
    return {
        "objective": relative * (1.0 + expected.size),
        "mean": relative * (np.sqrt(case.variance) + float(np.abs(case.Y).max())),
        "variance": relative * case.variance + moved,
    }


def _words(case: Case) -> Sequence[Any]:
    numbers = (
        f"variance {case.variance:.2g} lengthscale {case.lengthscale:.2g} noise {case.noise:.2g}"
    )
    return *case[1:5], f"{numbers} alpha {case.alpha}"


CAMPAIGN = Campaign(
    case_of,
    run,
    words=_words,
    groups=tuple(PLACES),
    groups_of=lambda case: (case.place,),
    verdicts=("right",),
)

if __name__ == "__main__":
    CAMPAIGN.main(__doc__)
