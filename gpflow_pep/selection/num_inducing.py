"""Select the number of inducing points: increase it until the bounds or leave-one-out densities stop improving."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPRFITC, GPModel
from gpflow.utilities import parameter_dict
from tqdm import tqdm

from .. import validation
from ..engine import independent_parts
from ..inducing import greedy_variance
from ..inducing.rows import distinct
from ..models import PEP
from ..training import fit, uninterrupted
from .reuse import check_new_parts

TOLERANCE, LARGEST, ALL_ROWS = "tolerance", "largest", "all rows"

InducingModelConstructor = Callable[[RegressionData, AnyNDArray], GPModel]
"""Construct a new model from data (X [N, D], Y [N, P]) and inducing points Z [M, D]."""


@dataclass(frozen=True, repr=False)
class NumInducingSelection:
    """Result of :func:`select_num_inducing`. Arrays [K] have an entry per number tried; scores are in nats per row."""

    numbers: AnyNDArray
    """Numbers of inducing points, ascending."""
    objectives: AnyNDArray
    """The objective after training; a lower bound on the log evidence at alpha = 0."""
    upper_bounds: AnyNDArray
    """An upper bound on the log evidence at the trained hyperparameters; NaN for models without one."""
    densities: AnyNDArray
    """Mean leave-one-out log density; NaN for models without one."""
    seconds: AnyNDArray
    """Wall time for choosing points, training and scoring."""
    criterion: str
    """The score that had to improve: "gap" (between the bounds) or "density" (leave-one-out)."""
    status: str
    """
    "tolerance": the last step gained less than the tolerance | "largest": it gained more, but no larger number was
    given | "all rows": all distinct rows are inducing points, and the last step, if any, gained more.
    """
    reason: str
    """The reason why the search stopped, as a sentence."""
    num_inducing: int
    """The selected number: the last number tried, or the previous number if the last step gained too little."""
    model: GPModel
    """The trained model with `num_inducing` points."""
    trainings: tuple[Any, ...]
    """Results of `train` for each number."""

    @property
    def gaps(self) -> AnyNDArray:
        """Upper bound minus objective."""
        return self.upper_bounds - self.objectives

    def __repr__(self) -> str:
        """Return the selected number and the reason."""
        return f"NumInducingSelection(num_inducing={self.num_inducing}, status={self.status!r}; {self.reason})"

    def __str__(self) -> str:
        """Return all scores as a table."""
        columns = (self.objectives, self.upper_bounds, self.gaps, self.densities)
        lines = [f"{'M':>6}{'objective':>12}{'upper bound':>13}{'gap':>10}{'loo density':>13}{'seconds':>9}"]
        for number, seconds, *scores in zip(self.numbers, self.seconds, *columns, strict=True):
            cells = ("" if np.isnan(score) else f"{score:.4f}" for score in scores)
            parts = (f"{cell:>{width}}" for cell, width in zip(cells, (12, 13, 10, 13), strict=True))
            lines.append(f"{number:>6}{''.join(parts)}{seconds:>9.2f}")
        return "\n".join([*lines, f"{self.num_inducing} inducing points: {self.reason}"])


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
    and other parameters; the additional points are rows of X, chosen given these points. At alpha = 0 the objective
    therefore does not decrease, except for the effect of jitter.

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
        chooses the points; with separate points, larger models start from the points given to `make`, not from the
        trained points.
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
    _check_number(model, 1)
    Z, last, status = None, model, LARGEST
    scores, trainings, seconds = list[tuple[float, float, float]](), list[Any](), list[float]()
    with tqdm(total=len(wanted), unit="fit", disable=not progress) as bar:
        for M in wanted:
            bar.set_postfix_str(f"{M} inducing points")
            began = time.perf_counter()
            kernel = independent_parts(model.inducing_variable, model.kernel)[0][1]
            if Z is not None and type(model.inducing_variable) is InducingPoints:  # one set of points, perhaps moved
                Z = model.inducing_variable.Z.numpy()
            Z = greedy_variance(kernel, X, M, given=Z)
            last, model = model, make((X, Y), Z.copy())
            _check_number(model, M)
            check_new_parts(last, model)
            if scores:
                _assign_other_parameters(model, last)
            trainings.append(uninterrupted(train(model)))
            objective, upper_bound, density = _scores(model, len(X))
            if np.isnan(density if criterion == "density" else upper_bound - objective):
                raise FloatingPointError(f"the {criterion} of the model with {M} inducing points is NaN.")
            scores.append((objective, upper_bound, density))
            seconds.append(time.perf_counter() - began)
            bar.update()
            if len(scores) > 1:
                # Of the objective, the upper bound and the density.
                rise, loosening, gain = (after - before for before, after in zip(*scores[-2:], strict=True))
                if (gain if criterion == "density" else max(rise, rise - loosening)) < tolerance:
                    status = TOLERANCE
                    break
    tried = wanted[: len(scores)]
    if status == LARGEST and tried[-1] == len(rows):
        status = ALL_ROWS
    chosen, model = (tried[-2], last) if status == TOLERANCE else (tried[-1], model)
    objectives, upper_bounds, densities = np.array(scores).T
    return NumInducingSelection(
        numbers=np.array(tried),
        objectives=objectives,
        upper_bounds=upper_bounds,
        densities=densities,
        seconds=np.array(seconds),
        criterion=criterion,
        status=status,
        reason=_reason(status, tried, criterion, tolerance),
        num_inducing=chosen,
        model=model,
        trainings=tuple(trainings),
    )


def _check_number(model: GPModel, M: int) -> None:
    number = int(model.inducing_variable.num_inducing)
    if number != M:
        raise ValueError(f"make(data, Z) returned a model with {number} inducing points, but Z has {M}.")


def _criterion(model: GPModel) -> str:
    powers = np.asarray(getattr(model, "alpha", 0.0))
    if hasattr(model, "upper_bound") and not isinstance(model, GPRFITC) and not powers.any():
        return "gap"
    if not hasattr(model, "loo_log_predictive_density"):
        raise ValueError(
            "make must return a model whose objective is a lower bound and which has an upper_bound, or one with "
            f"loo_log_predictive_density, got {type(model).__name__}."
        )
    return "density"


def _assign_other_parameters(model: GPModel, smaller: GPModel) -> None:
    """Copy all parameters of the smaller model except the inducing variable's."""
    trained = parameter_dict(smaller)
    points = {id(parameter) for parameter in parameter_dict(model.inducing_variable).values()}
    for name, parameter in parameter_dict(model).items():
        if id(parameter) not in points:
            parameter.unconstrained_variable.assign(trained[name].unconstrained_variable)


def _scores(model: GPModel, num_data: int) -> tuple[float, float, float]:
    """Return objective, upper bound and leave-one-out density in nats per row; NaN if the model has none."""
    has_density = hasattr(model, "loo_log_predictive_density")
    density = float(np.mean(model.loo_log_predictive_density())) if has_density else np.nan
    upper_bound = float(model.upper_bound()) if hasattr(model, "upper_bound") else np.nan
    if isinstance(model, PEP):  # computing the densities has converged the sites
        objective = model.sites_status.log_evidence
    else:
        objective = float(model.maximum_log_likelihood_objective())
    return objective / num_data, upper_bound / num_data, density


def _reason(status: str, tried: Sequence[int], criterion: str, tolerance: float) -> str:
    ends = {TOLERANCE: "", LARGEST: ", and no larger number was given", ALL_ROWS: ", and these are all distinct rows"}
    if len(tried) == 1:
        return f"only one number was tried{ends[status]}."
    score = "the bounds" if criterion == "gap" else "the leave-one-out density"
    gained = "less than" if status == TOLERANCE else "at least"
    return f"from {tried[-2]} to {tried[-1]} {score} gained {gained} {tolerance:g} nats per row{ends[status]}."
