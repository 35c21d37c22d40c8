"""Attacks on the choice of alpha, inducing points, minibatches and scores."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from campaign.attack_subjects import (
    Attack,
    Attacks,
    Rows,
    drawn,
    masked,
    new_kernel,
)
from gpflow_pep import PEPR, fit, select_alpha, select_num_inducing
from gpflow_pep.data import metrics
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.inducing import greedy_variance, k_means, neighbor_blocks, uniform


def _train(model: Any) -> Any:
    return fit(model, max_iterations=1)


def _pepr(s: Rows, data: Any, alpha: Any, Z: Any = None) -> PEPR:
    return PEPR(data, new_kernel(s.rng), s.X[:3] if Z is None else Z, alpha=alpha)


_CHOICE_OF_ALPHA: dict[str, Callable[[Rows], Any]] = {
    "alpha": lambda s: select_alpha(
        lambda data, alpha: _pepr(s, data, 0.3), (s.X, s.Y), [0.5], train=_train
    ),
    "data": lambda s: select_alpha(
        lambda data, alpha: _pepr(s, (s.X, s.Y), alpha), (s.X, s.Y), [0.5], folds=2, train=_train
    ),
    "other data": lambda s: select_alpha(
        lambda data, alpha: _pepr(s, (s.X[:4], s.Y[:4]), alpha), (s.X, s.Y), [0.5], train=_train
    ),
    "nothing": lambda s: select_alpha(lambda data, alpha: None, (s.X, s.Y), [0.5], train=_train),  # type: ignore[arg-type, return-value]
}


def _shared_parts(s: Rows) -> None:
    kernel = new_kernel(s.rng)
    select_alpha(
        lambda data, alpha: PEPR(data, kernel, s.X[:3], alpha=alpha),
        (s.X, s.Y),
        [0.0, 0.5],
        train=_train,
    )


def _alphas(s: Rows) -> None:
    given: Any = drawn(s, [[], [0.5, 0.5], ["auto"], [np.nan], [[0.0, 0.5]], [1.5]])
    select_alpha(lambda data, alpha: _pepr(s, data, alpha), (s.X, s.Y), given, train=_train)


def _points_ignored(s: Rows) -> None:
    Z: Any = drawn(s, [s.X[:4], s.X[:1] + 0.1])
    select_num_inducing(
        lambda data, given: _pepr(s, data, 0.0, Z), (s.X, s.Y), [2, 3], train=_train
    )


def _data_ignored(s: Rows) -> None:
    other = s.X + 1.0, s.Y
    select_num_inducing(lambda data, Z: _pepr(s, other, 0.0, Z), (s.X, s.Y), [2, 3], train=_train)


def _numbers(s: Rows) -> None:
    given: Any = drawn(s, [[], [5, 3], [5.0], [0], ["5"], [True]])
    select_num_inducing(lambda data, Z: _pepr(s, data, 0.0, Z), (s.X, s.Y), given, train=_train)


def _choosing(*calls: Callable[[Any], Any]) -> Callable[[Rows], None]:
    """Make one of these calls."""

    def act(s: Rows) -> None:
        calls[int(s.rng.integers(len(calls)))](s)

    return act


ATTACKS: Attacks = {
    "make that ignores alpha or data": Attack(Rows, _choosing(*_CHOICE_OF_ALPHA.values()), "make"),
    "make that shares a kernel": Attack(Rows, _shared_parts, "make"),
    "alphas": Attack(Rows, _alphas, "alpha"),
    "make that ignores points": Attack(Rows, _points_ignored, "make"),
    "make that ignores its data": Attack(Rows, _data_ignored, "make"),
    "numbers of points": Attack(Rows, _numbers, "numbers"),
    "number of inducing points": Attack(
        Rows,
        _choosing(
            lambda s: k_means(s.X, 0),
            lambda s: k_means(s.X, 100),
            lambda s: k_means(s.X, 2.5),  # type: ignore[arg-type]
            lambda s: uniform(s.X, -1),
            lambda s: uniform(s.X, 100),
            lambda s: greedy_variance(new_kernel(s.rng), s.X, 0),
            lambda s: greedy_variance(new_kernel(s.rng), s.X, True),
        ),
        r"\bM\b",
    ),
    "rows for inducing points": Attack(
        Rows,
        _choosing(
            lambda s: k_means(s.X * np.nan, 2),
            lambda s: k_means(s.X[:, 0], 2),
            lambda s: k_means("a", 2),
            lambda s: uniform(masked(s.X), 2),
            lambda s: greedy_variance(new_kernel(s.rng), s.X + np.inf, 2),
            lambda s: neighbor_blocks(s.X * np.nan, 2),
            lambda s: neighbor_blocks(s.X[:, 0], 2),
        ),
        r"\bX\b",
    ),
    "kernel for inducing points": Attack(
        Rows,
        _choosing(
            lambda s: greedy_variance(None, s.X, 2),  # type: ignore[arg-type]
            lambda s: greedy_variance(gpflow.kernels.Matern32(lengthscales=np.ones(3)), s.X, 2),
            lambda s: greedy_variance(
                gpflow.kernels.SeparateIndependent([new_kernel(s.rng)]), s.X, 2
            ),
        ),
        "kernel",
    ),
    "minibatches": Attack(
        Rows,
        _choosing(
            lambda s: Minibatches(0, 5),
            lambda s: Minibatches(5, 0),
            lambda s: Minibatches(50, 10, seed=-1),
            lambda s: next(iter(Minibatches(50, 10).dataset((s.X, s.Y)))),
            lambda s: next(iter(Minibatches(len(s.X), 2).dataset((s.X, s.Y[:2])))),
        ),
        "num_data|size|seed|data|rows",
    ),
    "scores": Attack(
        Rows,
        _choosing(
            lambda s: metrics.rmse(s.Y, s.Y[:2]),
            lambda s: metrics.rmse(s.Y, s.Y * np.nan),
            lambda s: metrics.rmse([], []),
            lambda s: metrics.rmse(masked(s.Y), s.Y),
            lambda s: metrics.nlpd(s.Y, s.Y, -np.ones_like(s.Y)),
            lambda s: metrics.nlpd(s.Y, s.Y, np.zeros_like(s.Y)),
            lambda s: metrics.smse(np.ones(3), np.zeros(3)),
            lambda s: metrics.rmse(s.Y, s.Y.astype(str)),
        ),
        r"\by\b|mean|variance",
    ),
}
