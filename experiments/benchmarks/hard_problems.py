"""
Generated problems whose signal a search from one start may miss: high frequency, few relevant
columns, clusters.
"""

from collections.abc import Callable

import numpy as np

from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats

_TEST_ROWS = 1000

Generate = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Generates X [n, D] and y [n]."""


def hard_problem(name: str) -> Dataset:
    """Generate training and test rows; the targets of regression are standardized."""
    num_rows, generate = PROBLEMS[name]
    X, y = generate(np.random.default_rng(0), num_rows + _TEST_ROWS)
    mean, scale = np.zeros(1), np.ones(1)
    if len(np.unique(y)) > 5:
        mean, scale = y[:num_rows].mean(keepdims=True), y[:num_rows].std(keepdims=True)
    Y = ((y - mean) / scale)[:, None]
    zero, one = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return Dataset(
        name, X[:num_rows], Y[:num_rows], X[num_rows:], Y[num_rows:], zero, one, mean, scale
    )


def _uniform(
    D: int,
    function: Callable[[Floats], Floats],
    noise: float = 0.0,
    low: float = -2.0,
    high: float = 2.0,
) -> Generate:
    """
    Return a generator of a noisy function of columns x [D, n], drawn from a uniform distribution.
    """

    def generate(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        X = rng.uniform(low, high, (n, D))
        f = function(X.T)
        return X, f + noise * rng.normal(size=n) if noise else f

    return generate


def _labels(generate: Generate) -> Generate:
    """Return a generator of the signs of targets, as labels 0 and 1."""

    def labeled(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        X, y = generate(rng, n)
        return X, (y > 0.0).astype(float)

    return labeled


def _rings(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    X = rng.normal(size=(n, 2))
    return X, np.sin(4.0 * np.linalg.norm(X, axis=1))


def _cluster_labels(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    cluster = rng.integers(8, size=n)
    center = rng.normal(size=(8, 2)) * 3.0
    return center[cluster] + 0.2 * rng.normal(size=(n, 2)), (cluster % 2).astype(float)


def _rare_class(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    X = rng.normal(size=(n, 3))
    return X, 0.5 - np.linalg.norm(X[:, :2] - np.array([1.0, 0.5]), axis=1)


def _spirals(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    label, radius = rng.integers(3, size=n), rng.uniform(0.1, 1.0, n)
    angle = 6.0 * radius + 2.0 * np.pi / 3.0 * label + 0.1 * rng.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), label.astype(float)


def _clusters(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    center = rng.normal(size=(6, 2)) * 10.0
    X = center[rng.integers(6, size=n)] + 0.5 * rng.normal(size=(n, 2))
    return X, np.sin(4.0 * X[:, 0]) + np.cos(4.0 * X[:, 1]) + 0.1 * rng.normal(size=n)


def _heavy_tails(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    X = rng.standard_t(1.5, (n, 3))
    return X, np.tanh(2.0 * X[:, 0]) + np.sin(X[:, 1]) + 0.1 * rng.normal(size=n)


PROBLEMS: dict[str, tuple[int, Generate]] = {
    "checkerboard": (350, _labels(_uniform(2, lambda x: np.sin(3.0 * x[0]) * np.cos(3.0 * x[1])))),
    "wiggly-labels": (300, _labels(_uniform(1, lambda x: np.sin(12.0 * x[0])))),
    "rings": (400, _labels(_rings)),
    "relevant-labels": (400, _labels(_uniform(10, lambda x: np.sin(3.0 * x[0]), 0.1))),
    "cluster-labels": (300, _cluster_labels),
    "rare-class": (400, _labels(_rare_class)),
    "spirals": (300, _spirals),
    "wave": (300, _uniform(1, lambda x: np.sin(20.0 * x[0]), 0.1)),
    "two-of-ten": (400, _uniform(10, lambda x: np.sin(3.0 * x[0]) + np.cos(3.0 * x[1]), 0.1)),
    "clusters": (500, _clusters),
    "heavy-tails": (400, _heavy_tails),
    "two-scales": (
        400,
        _uniform(1, lambda x: 0.3 * (x[0] - 5.0) ** 2 + np.sin(8.0 * x[0]), 0.1, 0.0, 10.0),
    ),
    "steps": (400, _uniform(2, lambda x: np.floor(2.0 * x[0]) + np.sign(x[1]), 0.1)),
    "noisy": (1000, _uniform(2, lambda x: np.sin(5.0 * x[0]), 2.0)),
}
"""Numbers of training rows, and generators."""
