"""Select the number of inducing points: increase it until bounds or densities stop improving."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPRFITC, GPModel
from tqdm import tqdm

from .. import validation
from ..engine import independent_parts
from ..inducing import greedy_variance
from ..inducing.rows import distinct
from ..models import PEP
from ..models.kernels_and_inducing_variables import other_parameters
from ..training import fit, uninterrupted
from ..training.objectives import FAILURES
from .reuse import check_made

TOLERANCE = "tolerance"
LARGEST = "largest"
ALL_ROWS = "all rows"
_ENDS = {
    TOLERANCE: "",
    LARGEST: ", and no larger number was given",
    ALL_ROWS: ", and these are all distinct rows",
}
_LOOK_AHEAD = 256  # points

InducingModelConstructor = Callable[[RegressionData, AnyNDArray], GPModel]
"""Construct a new model from data (X [N, D], Y [N, P]) and inducing points Z [M, D]."""


@dataclass(frozen=True, repr=False)
class NumInducingSelection:
    """Result of :func:`select_num_inducing`: arrays [K] over the numbers tried, in nats per row."""

    numbers: AnyNDArray  #: Numbers of inducing points, ascending.
    objectives: AnyNDArray
    """The objective after training; a lower bound on the log evidence at alpha = 0."""
    upper_bounds: AnyNDArray
    """Upper bounds on the log evidence at the trained hyperparameters; NaN if there are none."""
    densities: AnyNDArray  #: Mean leave-one-out log density; NaN for models without one.
    seconds: AnyNDArray  #: Wall time for choosing points, training and scoring.
    criterion: str
    """The score that had to improve: "gap" (between the bounds) or "density" (leave-one-out)."""
    status: str
    """
    "tolerance": the last step gained less than the tolerance, and a new start less than the margin
    | "largest": one gained more, but no larger number was given | "all rows": the same, and all
    distinct rows are inducing points.
    """
    reason: str  #: The reason why the search stopped, as a sentence.
    best: int  #: Index of the selected number: the last whose step gained at least the tolerance.
    model: GPModel  #: The trained model with `num_inducing` points.
    trainings: tuple[Any, ...]  #: Results of `train` for each number.

    @property
    def num_inducing(self) -> int:
        """The selected number of inducing points."""
        return int(self.numbers[self.best])

    @property
    def gaps(self) -> AnyNDArray:
        """Upper bound minus objective."""
        return self.upper_bounds - self.objectives

    def __repr__(self) -> str:
        found = f"num_inducing={self.num_inducing}, status={self.status!r}"
        return f"NumInducingSelection({found}; {self.reason})"

    def __str__(self) -> str:
        """Return all scores as a table."""
        columns = self.objectives, self.upper_bounds, self.gaps, self.densities
        names = ["objective", "upper bound", "gap", "loo density"]
        lines = [f"{'M':>6}{''.join(f'{name:>13}' for name in names)}{'seconds':>9}"]
        for number, seconds, *scores in zip(self.numbers, self.seconds, *columns, strict=True):
            cells = (f"{'' if np.isnan(score) else f'{score:.4f}':>13}" for score in scores)
            lines.append(f"{number:>6}{''.join(cells)}{seconds:>9.2f}")
        return "\n".join([*lines, f"{self.num_inducing} inducing points: {self.reason}"])


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, the points from which larger models start, its scores and training result."""

    model: GPModel
    points: AnyNDArray
    score: float = np.nan  # the objective, or the leave-one-out density
    limit: float = 0.0  # the upper bound, if the gap between the bounds decides
    scores: tuple[float, ...] = ()
    result: object = None

    def rise(self, after: "_Candidate") -> float:
        """Return by how much the score of another model is larger."""
        return after.score - self.score

    def gain(self, after: "_Candidate") -> float:
        """Return the rise of the score plus, if the gap decides, the fall of the upper bound."""
        return self.rise(after) + max(self.limit - after.limit, 0.0)


def select_num_inducing(
    make: InducingModelConstructor,
    data: RegressionData,
    numbers: Sequence[int] = (16, 32, 64, 128, 256, 512),
    *,
    tolerance: float = 0.01,
    train: Callable[..., Any] = fit,
    progress: bool = False,
) -> NumInducingSelection:
    """
    Train models with an increasing number of inducing points until a step gains less than
    `tolerance` nats per row.

    The gain depends on the model:

    ===================================  ======================================================
    a lower bound with an `upper_bound`  the gap between the bounds shrinks, or the lower bound
    (`PEPR` at alpha = 0, `TSGPR`,       rises (with other hyperparameters it may rise while the
    `BTSGPR`, GPflow's `SGPR`)           gap does not shrink). At fixed hyperparameters, more
                                         points raise it by at most the gap.
    other models with leave-one-out      their mean rises (`PEPR` at alpha > 0, `PEP`,
    densities                            `PEPClassifier`)
    ===================================  ======================================================

    Points are chosen by :func:`gpflow_pep.inducing.greedy_variance`, first with the initial
    hyperparameters of `make`, later with the trained hyperparameters of the smaller model. A larger
    model starts from the smaller model's points and other parameters; the additional points are
    rows of X, chosen given these points.

    With too few points, training may end at a model that takes the function for noise, and larger
    models would stay there. Therefore, when the lower bound or the density first rises by less than
    `tolerance`, a new start is trained for 20 iterations: a model with the largest number of points
    (at most 256, fixed rows of X) and the initial parameters of `make`. While its score is better
    by a margin (log(N) / 2 nats per parameter, as in BIC, or `tolerance` per row, if that is more),
    the search goes on, and models start from its parameters. There is no new start if `train`
    changes no parameters except the points.

    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> Y = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    >>> found = select_num_inducing(
    ...     lambda data, Z: PEPR(data, gpflow.kernels.Matern52(), Z, alpha=0.0),
    ...     (X, Y),
    ...     numbers=[3, 40],
    ...     train=lambda model: fit(model, max_iterations=5),
    ... )
    >>> found.numbers.tolist()
    [3, 40]

    :param make: constructs a model of all data with points Z [M, D] and a new kernel, likelihood
        and other parts; it is called once more with one point, for its kernel. With separate
        kernels, the first latent function's kernel chooses the points; with separate points, larger
        models start from the points given to `make`.
    :param data: X [N, D] and Y [N, P].
    :param numbers: the numbers of points to try, ascending; larger numbers than distinct rows of X
        are reduced to it. The default is doubled each time, so that the last training takes most of
        the time.
    :param tolerance: the gain, in nats per row, below which the smaller number is selected.
    :param train: trains a model in place.
    :param progress: show a progress bar of the trainings.
    :raises FloatingPointError: if a score is NaN.
    :raises KeyboardInterrupt: if Ctrl-C ends a training run.
    """
    X, Y = validation.regression_data(data)
    tolerance = validation.positive_number(tolerance, "tolerance")
    rows = distinct(X)
    wanted = _checked_numbers(numbers, len(rows))
    model = make((X, Y), X[rows[:1]].copy())
    criterion = _criterion(model)
    check_made(model, None, (X, Y), X[rows[:1]])
    initial = kept = ahead = _Candidate(model, X[:0])
    sizes = [np.size(each) for each in other_parameters(model).values() if each.trainable]
    margin = max(tolerance, 0.5 * sum(sizes) * np.log(len(X)) / len(X))
    trained = partial(_trained, make, (X, Y), criterion)
    status = ALL_ROWS if wanted[-1] == len(rows) else LARGEST
    note = ""
    found: list[_Candidate] = []
    seconds = []
    progress = validation.boolean(progress, "progress")
    with tqdm(total=len(wanted), unit="fit", disable=not progress) as bar:
        for M in wanted:
            bar.set_postfix_str(f"{M} inducing points")
            began = time.perf_counter()
            is_promising = kept.rise(ahead) >= margin  # False before there is a new start
            start = ahead if is_promising else kept
            candidate = trained(train, start, M)
            if found and kept.rise(candidate) < tolerance:
                if ahead is initial:
                    ahead = _new_start(trained, initial, kept, X[rows], wanted[-1])
                    is_promising = kept.rise(ahead) >= margin
                    if ahead is not initial:
                        note = "; a new start was no better"
                if is_promising:
                    note = "; a new start with more points was better"
                if is_promising and start is kept:
                    with suppress(*FAILURES):
                        candidate = max(candidate, trained(train, ahead, M), key=kept.rise)
                elif not is_promising and kept.gain(candidate) < tolerance:
                    status = TOLERANCE
            if not found or kept.gain(candidate) >= tolerance:
                kept = candidate
            found.append(candidate)
            seconds.append(time.perf_counter() - began)
            bar.update()
            if status == TOLERANCE:
                break
    tried = wanted[: len(found)]
    reason = _reason(status, tried, criterion, tolerance, gains=kept is candidate)
    scores = np.array([each.scores for each in found])
    return NumInducingSelection(
        numbers=np.array(tried),
        objectives=scores[:, 0],
        upper_bounds=scores[:, 1],
        densities=scores[:, 2],
        seconds=np.array(seconds),
        criterion=criterion,
        status=status,
        reason=f"{reason}{note}.",
        best=found.index(kept),
        model=kept.model,
        trainings=tuple(each.result for each in found),
    )


def _checked_numbers(numbers: Sequence[int], largest: int) -> list[int]:
    """Return ascending numbers of points, none larger than the number of distinct rows."""
    wanted = [validation.positive_integer(number, "numbers") for number in numbers]
    if not wanted or wanted != sorted(set(wanted)):
        raise ValueError(f"numbers must be ascending, at least one, got {list(numbers)}.")
    return sorted({min(number, largest) for number in wanted})


def _trained(
    make: InducingModelConstructor,
    data: RegressionData,
    criterion: str,
    train: Callable[..., Any],
    start: _Candidate,
    M: int,
    Z: AnyNDArray | None = None,
) -> _Candidate:
    """Train a model with M points, Z or a greedy choice, from the parameters of `start`."""
    given = start.points
    if Z is None:
        kernel = independent_parts(start.model.inducing_variable, start.model.kernel)[0][1]
        Z = greedy_variance(kernel, data[0], M, given=given if 0 < len(given) < M else None)
    model = make(data, Z.copy())
    check_made(model, start.model, data, Z)
    if len(given):  # else these are the initial parameters
        earlier = other_parameters(start.model)
        for name, parameter in other_parameters(model).items():
            parameter.unconstrained_variable.assign(earlier[name].unconstrained_variable)
    result = uninterrupted(train(model))
    scores = _scores(model, len(data[0]))
    score, limit, density = scores
    if criterion == "density":
        score, limit = density, 0.0
    if np.isnan(limit - score):
        raise FloatingPointError(f"the {criterion} of the model with {M} inducing points is NaN.")
    if type(model.inducing_variable) is InducingPoints:  # perhaps moved
        Z = model.inducing_variable.Z.numpy()
    return _Candidate(model, Z, score, limit, scores, result)


def _new_start(
    trained: Callable[..., _Candidate],
    initial: _Candidate,
    kept: _Candidate,
    X: AnyNDArray,
    largest: int,
) -> _Candidate:
    """Train a model with many points briefly; return `initial` if `train` changes no parameters."""
    before = other_parameters(initial.model)
    after = other_parameters(kept.model)
    if all(np.array_equal(before[name], after[name]) for name in after):
        return initial
    number = min(largest, _LOOK_AHEAD)
    Z = X[np.linspace(0, len(X) - 1, number).astype(int)]
    train = partial(fit, max_iterations=20, train_inducing=False)
    with suppress(*FAILURES):
        return trained(train, initial, number, Z)
    return initial


def _criterion(model: GPModel) -> str:
    powers = np.asarray(getattr(model, "alpha", 0.0))
    if hasattr(model, "upper_bound") and not isinstance(model, GPRFITC) and not powers.any():
        return "gap"
    if hasattr(model, "loo_log_predictive_density"):
        return "density"
    raise ValueError(
        "make must return a model with a lower bound and an upper_bound, or with "
        f"loo_log_predictive_density, got {type(model).__name__}."
    )


def _scores(model: GPModel, num_data: int) -> tuple[float, float, float]:
    """Return objective, upper bound and leave-one-out density in nats per row, or NaN."""
    density = upper_bound = np.nan
    if hasattr(model, "loo_log_predictive_density"):
        density = float(np.mean(model.loo_log_predictive_density()))
    if hasattr(model, "upper_bound"):
        upper_bound = float(model.upper_bound())
    if isinstance(model, PEP):  # computing the densities has converged the sites
        objective = model.sites_status.log_evidence
    else:
        objective = float(model.maximum_log_likelihood_objective())
    return objective / num_data, upper_bound / num_data, density


def _reason(
    status: str, tried: Sequence[int], criterion: str, tolerance: float, *, gains: bool
) -> str:
    if len(tried) == 1:
        return f"only one number was tried{_ENDS[status]}"
    score = "the bounds" if criterion == "gap" else "the leave-one-out density"
    gained = "at least" if gains else "less than"
    step = f"from {tried[-2]} to {tried[-1]} {score} gained {gained} {tolerance:g} nats per row"
    return step + _ENDS[status]
