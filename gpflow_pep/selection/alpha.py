"""Select alpha by predictions of unseen rows: leave-one-out or cross-validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from tqdm import tqdm

from .. import validation
from ..training import fit, uninterrupted
from .reuse import check_made, compiled_model

ModelConstructor = Callable[[RegressionData, float], GPModel]
"""Construct a new model from data (X [n, D], Y [n, P]) and alpha."""


@dataclass(frozen=True, repr=False)
class AlphaSelection:
    """Scores of the powers, arrays [A]. Densities are in nats, summed over the outputs of a row."""

    alphas: AnyNDArray  #: The powers compared.
    scores: AnyNDArray  #: Mean log predictive density of an unseen row; larger is better.
    errors: AnyNDArray  #: Standard errors of the scores over rows.
    differences: AnyNDArray  #: Score minus the best score, at most 0.
    difference_errors: AnyNDArray
    """Standard errors of the differences, smaller than `errors`: the rows are paired."""
    densities: AnyNDArray  #: Log predictive density of every row, [A, N].
    trainings: tuple[tuple[Any, ...], ...]
    """Results of `train` for each power: one, or one per fold."""

    @property
    def alpha(self) -> float:
        """The power of the best score, the first of equal scores."""
        return float(self.alphas[np.argmax(self.scores)])

    @property
    def within_two_standard_errors(self) -> AnyNDArray:
        """Powers, ascending, within two standard errors of the difference from the best score."""
        near = self.differences >= -2.0 * self.difference_errors
        return np.sort(self.alphas[near | (self.alphas == self.alpha)])

    def __repr__(self) -> str:
        scores = zip(self.alphas, self.scores, self.errors, strict=True)
        listed = ", ".join(
            f"{alpha:g}: {score:.4f} ± {error:.4f}" for alpha, score, error in scores
        )
        return f"AlphaSelection(alpha={self.alpha:g}; {listed})"


def select_alpha(
    make: ModelConstructor,
    data: RegressionData,
    alphas: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    *,
    folds: int | None = None,
    train: Callable[..., Any] = fit,
    seed: int = 0,
    progress: bool = False,
) -> AlphaSelection:
    """
    Train a model for each power and compare the predictions of unseen rows.

    By default these are leave-one-out predictions of one fit per power. The hyperparameters were
    trained with the row, so the scores are optimistic, most for alpha = 1 if inducing points are
    trained: use `folds` then. Without a comparison, 0.5 is a good choice (Bui, Yan and Turner 2017,
    sec. 4); only 0 gives a bound.

    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> Y = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    >>> found = select_alpha(
    ...     lambda data, alpha: PEPR(data, gpflow.kernels.Matern52(), X[::5], alpha=alpha),
    ...     (X, Y), alphas=[0.0, 0.5], train=lambda model: fit(model, max_iterations=5),
    ... )
    >>> found.alpha in found.within_two_standard_errors
    True

    :param make: constructs a model of this alpha with a new kernel, likelihood and other parts. It
        must have `loo_log_predictive_density` (`PEPR`, `PEPClassifier`), unless `folds` is given.
    :param data: X [N, D] and Y [N, P].
    :param alphas: the powers, in [0, 1]: 0 is the variational bound, 1 EP.
    :param folds: K, from 2 to N, for K-fold cross-validation with random folds; None:
        leave-one-out. (The standard errors ignore that rows of a fold are predicted by the same
        model.)
    :param train: trains a model in place; called with the model and, for minibatch models, with the
        data.
    :param seed: seed for the folds.
    :param progress: show a progress bar of the trainings.
    :raises FloatingPointError: if a model's densities are NaN.
    :raises KeyboardInterrupt: if Ctrl-C ends a training run.
    """
    X, Y = validation.regression_data(data)
    if len(X) < 2:
        raise ValueError(f"data must have at least two rows, got {len(X)}.")
    powers = np.array([float(validation.power(alpha)) for alpha in alphas])
    if not len(powers) or len(set(powers)) < len(powers):
        raise ValueError(f"alphas must be different powers, at least one, got {list(alphas)}.")
    order = np.random.default_rng(validation.seed(seed)).permutation(len(X))
    parts = [order[:0]]  # leave-one-out: all rows are trained on
    if folds is not None:
        parts = np.array_split(order, validation.whole_number(folds, "folds", 2, len(X)))
    # The optimizers of other packages may need static shapes.
    is_own_training = getattr(train, "__module__", "").partition(".")[0] == "gpflow_pep"
    densities = np.empty([len(powers), len(X)])
    trainings = []
    last = None
    progress = validation.boolean(progress, "progress")
    with tqdm(total=len(powers) * len(parts), unit="fit", disable=not progress) as bar:
        for alpha, density in zip(powers, densities, strict=True):
            results = []
            bar.set_postfix_str(f"alpha {alpha:g}")
            for part in parts:
                rest = np.setdiff1d(np.arange(len(X)), part)
                rows = (X[rest], Y[rest])
                model = make(rows, alpha)
                _check_model(model, alpha, leaves_one_out=folds is None)
                check_made(model, last, rows)
                last = model
                with compiled_model(model, free_points=is_own_training) as worker:
                    given = () if hasattr(model, "data") else (rows,)
                    result = uninterrupted(train(worker, *given))
                    results.append(model if result is worker else result)
                    if folds is None:
                        density[:] = worker.loo_log_predictive_density()
                    else:
                        unseen = (tf.constant(X[part]), tf.constant(Y[part]))
                        density[part] = worker.predict_log_density(unseen)
                bar.update()
            missing = np.isnan(density).sum()
            if missing:
                raise FloatingPointError(
                    f"the log densities of {missing} rows are NaN at alpha = {alpha:g}."
                )
            trainings.append(tuple(results))
    scores = densities.mean(axis=1)
    best = densities[np.argmax(scores)]
    # Rows of density -inf under both powers do not differ.
    differences = np.subtract(
        densities, best, out=np.zeros_like(densities), where=densities != best
    )
    return AlphaSelection(
        alphas=powers,
        scores=scores,
        errors=_error(densities),
        differences=differences.mean(axis=1),
        difference_errors=_error(differences),
        densities=densities,
        trainings=tuple(trainings),
    )


def _check_model(model: GPModel, alpha: float, *, leaves_one_out: bool) -> None:
    if leaves_one_out and not hasattr(model, "loo_log_predictive_density"):
        raise ValueError(
            "make must return a model with loo_log_predictive_density, "
            f"got {type(model).__name__}; or give folds."
        )
    powers = np.unique(np.asarray(getattr(model, "alpha", alpha)))
    if np.asarray(alpha, dtype=powers.dtype) not in powers:
        listed = ", ".join(f"{power:g}" for power in powers)
        raise ValueError(f"make(data, {alpha:g}) returned a model with alpha = {listed}.")


def _error(values: AnyNDArray) -> AnyNDArray:
    """Return standard errors of means over the last axis."""
    return values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])
