"""Select the number of inducing points: increase it until the bounds or leave-one-out densities stop improving."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

TOLERANCE, LARGEST, ALL_ROWS = "tolerance", "largest", "all rows"
_LOOK_AHEAD = 256  # points

InducingModelConstructor = Callable[[RegressionData, AnyNDArray], GPModel]
"""Construct a new model from data (X [N, D], Y [N, P]) and inducing points Z [M, D]."""


@dataclass(frozen=True, repr=False)
class NumInducingSelection:
    """Result of :func:`select_num_inducing`. Arrays [K] have an entry per number tried; scores are in nats per row."""

    numbers: AnyNDArray  #: Numbers of inducing points, ascending.
    objectives: (
        AnyNDArray  #: The objective after training; a lower bound on the log evidence at alpha = 0.
    )
    upper_bounds: AnyNDArray  #: Upper bounds on the log evidence at the trained hyperparameters; NaN if there are none.
    densities: AnyNDArray  #: Mean leave-one-out log density; NaN for models without one.
    seconds: AnyNDArray  #: Wall time for choosing points, training and scoring.
    criterion: str  #: The score that had to improve: "gap" (between the bounds) or "density" (leave-one-out).
    status: str
    """
    "tolerance": the last step gained less than the tolerance, and a new start less than the margin | "largest": one
    gained more, but no larger number was given | "all rows": the same, and all distinct rows are inducing points.
    """
    reason: str  #: The reason why the search stopped, as a sentence.
    num_inducing: (
        int  #: The selected number: the last number whose step gained at least the tolerance.
    )
    model: GPModel  #: The trained model with `num_inducing` points.
    trainings: tuple[Any, ...]  #: Results of `train` for each number.

    @property
    def gaps(self) -> AnyNDArray:
        """Upper bound minus objective."""
        return self.upper_bounds - self.objectives

    def __repr__(self) -> str:
        return f"NumInducingSelection(num_inducing={self.num_inducing}, status={self.status!r}; {self.reason})"

    def __str__(self) -> str:
        """Return all scores as a table."""
        columns = self.objectives, self.upper_bounds, self.gaps, self.densities
        lines = [
            f"{'M':>6}{'objective':>13}{'upper bound':>13}{'gap':>13}{'loo density':>13}{'seconds':>9}"
        ]
        for number, seconds, *scores in zip(self.numbers, self.seconds, *columns, strict=True):
            cells = (f"{'' if np.isnan(score) else f'{score:.4f}':>13}" for score in scores)
            lines.append(f"{number:>6}{''.join(cells)}{seconds:>9.2f}")
        return "\n".join([*lines, f"{self.num_inducing} inducing points: {self.reason}"])


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, the points from which larger models start, its scores and training result."""

    model: GPModel
    points: AnyNDArray
    scores: tuple[float, float, float] = (np.nan, np.nan, np.nan)
    result: Any = None


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
    Train models with an increasing number of inducing points until a step gains less than `tolerance` nats per row.

    The gain depends on the model:

    ==========================================  ======================================================================
    a lower bound with an `upper_bound`         the gap between the bounds shrinks, or the lower bound rises (with other
    (`PEPR` at alpha = 0, `TSGPR`, `BTSGPR`,    hyperparameters it may rise while the gap does not shrink). At fixed
    GPflow's `SGPR`)                            hyperparameters, more points raise it by at most the gap.
    other models with leave-one-out densities   their mean rises (`PEPR` at alpha > 0, `PEP`, `PEPClassifier`)
    ==========================================  ======================================================================

    Points are chosen by :func:`gpflow_pep.inducing.greedy_variance`, first with the initial hyperparameters of `make`,
    later with the trained hyperparameters of the smaller model. A larger model starts from the smaller model's points
    and other parameters; the additional points are rows of X, chosen given these points.

    With too few points, training may end at a model that takes the function for noise, and larger models would stay
    there. Therefore, when the lower bound or the density first rises by less than `tolerance`, a new start is trained
    for 20 iterations: a model with the largest number of points (at most 256, fixed rows of X) and the initial
    parameters of `make`. While its score is better by a margin (log(N) / 2 nats per parameter, as in BIC, or
    `tolerance` per row, if that is more), the search goes on, and models start from its parameters. There is no new
    start if `train` changes no parameters except the points.

    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> Y = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    >>> found = select_num_inducing(
    ...     lambda data, Z: PEPR(data, gpflow.kernels.Matern52(), Z, alpha=0.0), (X, Y), numbers=[3, 40],
    ...     train=lambda model: fit(model, max_iterations=5),
    ... )
    >>> found.numbers.tolist()
    [3, 40]

    :param make: constructs a model of all data with points Z [M, D] and a new kernel, likelihood and other parts; it is
        called once more with one point, for its kernel. With separate kernels, the first latent function's kernel
        chooses the points; with separate points, larger models start from the points given to `make`.
    :param data: X [N, D] and Y [N, P].
    :param numbers: the numbers of points to try, ascending; larger numbers than distinct rows of X are reduced to it.
        The default is doubled each time, so that the last training takes most of the time.
    :param tolerance: the gain, in nats per row, below which the smaller number is selected.
    :param train: trains a model in place.
    :param progress: show a progress bar of the trainings.
    :raises FloatingPointError: if a score is NaN.
    :raises KeyboardInterrupt: if Ctrl-C ends a training run.
    """
    X, Y = validation.regression_data(data)
    tolerance = validation.positive_number(tolerance, "tolerance")
    rows = distinct(X)
    wanted = [validation.positive_integer(number, "numbers") for number in numbers]
    if not wanted or wanted != sorted(set(wanted)):
        raise ValueError(f"numbers must be ascending, at least one, got {list(numbers)}.")
    wanted = sorted({min(number, len(rows)) for number in wanted})
    model = make((X, Y), X[rows[:1]].copy())
    criterion = _criterion(model)
    check_made(model, None, (X, Y), X[rows[:1]])
    deciding = 0 if criterion == "gap" else 2  # the objective or the density
    initial = kept = ahead = _Candidate(model, X[:0])
    status, was_better = LARGEST, False
    found, seconds = list[_Candidate](), list[float]()

    def candidate(
        M: int, start: _Candidate, train: Callable[..., Any], Z: AnyNDArray | None = None
    ) -> _Candidate:
        """Train a model with M points, Z or a greedy choice, from the parameters of `start`."""
        if Z is None:
            kernel = independent_parts(start.model.inducing_variable, start.model.kernel)[0][1]
            Z = greedy_variance(
                kernel, X, M, given=start.points if 0 < len(start.points) < M else None
            )
        model = make((X, Y), Z.copy())
        check_made(model, start.model, (X, Y), Z)
        if start is not initial:
            for name, parameter in other_parameters(model).items():
                parameter.unconstrained_variable.assign(
                    other_parameters(start.model)[name].unconstrained_variable
                )
        result = uninterrupted(train(model))
        scores = _scores(model, len(X))
        if np.isnan(scores[2] if criterion == "density" else scores[1] - scores[0]):
            raise FloatingPointError(
                f"the {criterion} of the model with {M} inducing points is NaN."
            )
        is_one_set = type(model.inducing_variable) is InducingPoints  # perhaps moved
        return _Candidate(
            model, model.inducing_variable.Z.numpy() if is_one_set else Z, scores, result
        )

    def rise(after: _Candidate) -> float:
        return after.scores[deciding] - kept.scores[deciding]

    def gain(after: _Candidate) -> float:
        tightening = kept.scores[1] - after.scores[1] if criterion == "gap" else 0.0
        return rise(after) + max(tightening, 0.0)

    def look_ahead() -> _Candidate:
        """Train a model with many points briefly from the initial parameters; `initial` if `train` changes none."""
        before = other_parameters(initial.model)
        if all(
            np.array_equal(before[name], after)
            for name, after in other_parameters(kept.model).items()
        ):
            return initial
        with suppress(*FAILURES):
            Z = X[rows[np.linspace(0, len(rows) - 1, min(wanted[-1], _LOOK_AHEAD)).astype(int)]]
            return candidate(
                len(Z),
                initial,
                lambda model: fit(model, max_iterations=20, train_inducing=False),
                Z,
            )
        return initial

    def is_promising() -> bool:
        return rise(ahead) >= margin  # False for `initial`, whose scores are NaN

    num_parameters = sum(
        np.size(each) for each in other_parameters(model).values() if each.trainable
    )
    margin = max(tolerance, 0.5 * num_parameters * np.log(len(X)) / len(X))
    with tqdm(
        total=len(wanted), unit="fit", disable=not validation.boolean(progress, "progress")
    ) as bar:
        for M in wanted:
            bar.set_postfix_str(f"{M} inducing points")
            began = time.perf_counter()
            start = ahead if is_promising() else kept
            found.append(candidate(M, start, train))
            if len(found) > 1 and rise(found[-1]) < tolerance:
                ahead = look_ahead() if ahead is initial else ahead
                was_better |= is_promising()
                if is_promising() and start is kept:
                    with suppress(*FAILURES):
                        found[-1] = max(found[-1], candidate(M, ahead, train), key=rise)
                elif not is_promising() and gain(found[-1]) < tolerance:
                    status = TOLERANCE
            seconds.append(time.perf_counter() - began)
            bar.update()
            if status == TOLERANCE:
                break
            if len(found) == 1 or gain(found[-1]) >= tolerance:
                kept = found[-1]
    tried = wanted[: len(found)]
    if status == LARGEST and tried[-1] == len(rows):
        status = ALL_ROWS
    note = (
        "; a new start with more points was better" if was_better else "; a new start was no better"
    )
    reason = _reason(
        status, tried, criterion, tolerance, kept is found[-1], "" if ahead is initial else note
    )
    objectives, upper_bounds, densities = np.array([each.scores for each in found]).T
    columns = np.array(tried), objectives, upper_bounds, densities, np.array(seconds)
    number, trainings = tried[found.index(kept)], tuple(each.result for each in found)
    return NumInducingSelection(*columns, criterion, status, reason, number, kept.model, trainings)


def _criterion(model: GPModel) -> str:
    powers = np.asarray(getattr(model, "alpha", 0.0))
    if hasattr(model, "upper_bound") and not isinstance(model, GPRFITC) and not powers.any():
        return "gap"
    if hasattr(model, "loo_log_predictive_density"):
        return "density"
    accepted = "a model with a lower bound and an upper_bound, or with loo_log_predictive_density"
    raise ValueError(f"make must return {accepted}, got {type(model).__name__}.")


def _scores(model: GPModel, num_data: int) -> tuple[float, float, float]:
    """Return objective, upper bound and leave-one-out density in nats per row; NaN if the model has none."""
    has_density = hasattr(model, "loo_log_predictive_density")
    density = float(np.mean(model.loo_log_predictive_density())) if has_density else np.nan
    upper_bound = float(model.upper_bound()) if hasattr(model, "upper_bound") else np.nan
    # Computing the densities has converged the sites.
    is_pep = isinstance(model, PEP)
    objective = (
        model.sites_status.log_evidence
        if is_pep
        else float(model.maximum_log_likelihood_objective())
    )
    return objective / num_data, upper_bound / num_data, density


def _reason(
    status: str, tried: Sequence[int], criterion: str, tolerance: float, gains: bool, note: str
) -> str:
    ends = {
        TOLERANCE: "",
        LARGEST: ", and no larger number was given",
        ALL_ROWS: ", and these are all distinct rows",
    }
    if len(tried) == 1:
        return f"only one number was tried{ends[status]}."
    score = "the bounds" if criterion == "gap" else "the leave-one-out density"
    gained = "at least" if gains else "less than"
    return f"from {tried[-2]} to {tried[-1]} {score} gained {gained} {tolerance:g} nats per row{ends[status]}{note}."
