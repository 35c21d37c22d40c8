"""Attacks on the estimators: parameters, rows, labels and displays."""

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from sklearn.base import clone

from campaign.attack_subjects import (
    Attack,
    Attacks,
    Numbers,
    Pair,
    Rows,
    drawn,
    new_kernel,
    one_of,
)
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.plotting import ClassDisplay, PredictionDisplay

matplotlib.use("Agg")


class Estimator(Rows):
    """A fitted estimator, or one after a second batch."""

    def __init__(self, rng: np.random.Generator, classifies: bool | None = None):
        super().__init__(rng)
        self.classifies = bool(rng.integers(2)) if classifies is None else classifies
        self.labels = drawn(
            self,
            [np.array(["no", "yes"]), np.array([0, 1]), np.array([-1, 1]), np.array([False, True])],
        )
        self.y = (
            self.labels[(self.f[:, 0] > np.median(self.f)).astype(int)]
            if self.classifies
            else self.f[:, 0]
        )
        self.options: dict[str, Any] = {
            "kernel": new_kernel(rng),
            "n_inducing": 4,
            "optimizer": one_of(rng, ["lbfgs", None, None, None]),
            "max_iterations": 2,
            "random_state": int(rng.integers(100)),
            "alpha": float(rng.uniform(0.0, 0.6)),
        }
        self.estimator = self.make().fit(self.X, self.y)
        if rng.uniform() < 0.3:
            self.estimator.partial_fit(self.X[::-1], self.y[::-1])

    def make(self, **options: Any) -> Any:
        """Return an estimator that is not fitted."""
        return (SparseGPClassifier if self.classifies else SparseGPRegressor)(
            **(self.options | options)
        )

    def numbers(self, estimator: Any = None) -> Numbers:
        """Predict, by default by the attacked estimator."""
        estimator = self.estimator if estimator is None else estimator
        predict = estimator.predict_proba if self.classifies else estimator.predict
        return {"predictions": predict(self.Xnew), "more": predict(np.repeat(self.Xnew, 3, axis=0))}


def _regressor(rng: np.random.Generator) -> Estimator:
    return Estimator(rng, False)


def _kernel_parameters(s: Estimator) -> Pair:
    """`set_params` of the kernel's parameters is a kernel of these."""
    lengthscale = s.rng.uniform(0.5, 2.0)
    kernel = type(s.options["kernel"])(
        s.options["kernel"].variance.numpy(), lengthscales=lengthscale
    )
    found = s.make(optimizer=None).set_params(kernel__lengthscales=lengthscale).fit(s.X, s.y)
    return s.numbers(found), s.numbers(s.make(optimizer=None, kernel=kernel).fit(s.X, s.y))


def _cloned(s: Estimator) -> Pair:
    """
    A clone fits as the estimator did, and neither setting nor fitting it changes the estimator.
    """
    before, other = s.numbers(), clone(s.estimator)
    other.fit(s.X, s.y)
    expected = s.numbers(s.make().fit(s.X, s.y))
    found = s.numbers(other)
    other.set_params(kernel__variance=3.0, alpha=0.9)
    return {**found, "unchanged": s.numbers()["more"]}, {**expected, "unchanged": before["more"]}


def _other_forms(s: Estimator) -> Pair:
    """Tables, lists and integers are the numbers that they hold."""
    X = np.round(3.0 * s.X)
    forms = [
        X.tolist(),
        X.astype(int),
        pd.DataFrame(X),
        X.astype(np.float32),
        X.astype(object),
        np.asfortranarray(X),
    ]
    y = drawn(s, [s.y, s.y.tolist(), lambda s: pd.Series(s.y, index=np.arange(len(s.y))[::-1])])
    found = s.make().fit(drawn(s, forms), y)
    return s.numbers(found), s.numbers(s.make().fit(X, s.y))


def _other_units(s: Estimator) -> Pair:
    """Labels by other names, or y in another unit, give the same."""
    if s.classifies:
        found = s.make().fit(s.X, np.where(s.y == s.labels[0], "a", "b"))
        return s.numbers(found), s.numbers(s.make().fit(s.X, s.y))
    scale = 2.0 ** s.rng.integers(-20, 20)
    found = s.numbers(s.make().fit(s.X, scale * s.y))
    return {name: value / scale for name, value in found.items()}, s.numbers(s.make().fit(s.X, s.y))


def _extreme_units(s: Estimator) -> Pair:
    """Units whose squares leave floating point range change nothing, also with averaged draws."""
    options: dict[str, Any] = {
        "kernel": None,
        "n_inducing": None,
        "optimizer": "lbfgs",
        "max_iterations": None,
    }
    x_unit, y_unit = drawn(
        s, [(2.0**-997, 1.0), (2.0**900, 1.0), (1.0, 2.0**-997), (1.0, 2.0**900)]
    )
    found = s.make(**options).fit(x_unit * s.X, y_unit * s.y)
    mean, std = found.predict(x_unit * s.Xnew, return_std=True)
    expected = s.make(**options).fit(s.X, s.y).predict(s.Xnew, return_std=True)
    return {"mean": mean / y_unit, "std": std / y_unit}, dict(
        zip(("mean", "std"), expected, strict=True)
    )


def _drawn_numbers(s: Estimator) -> Pair:
    """A display holds the estimator's predictions."""
    display: Any = (ClassDisplay if s.classifies else PredictionDisplay).from_estimator(
        s.estimator, s.X, s.y
    )
    places = np.stack([each.ravel() for each in np.meshgrid(*display.grid)], axis=1)
    matplotlib.pyplot.close("all")
    if s.classifies:
        return {"p": display.probabilities}, {"p": s.estimator.predict_proba(places)}
    mean, std = s.estimator.predict(places, return_std=True)
    return {"mean": display.mean[:, 0], "std": display.std[:, 0]}, {"mean": mean, "std": std}


ATTACKS: Attacks = {
    "set_params of the kernel": Attack(Estimator, _kernel_parameters),
    "cloned": Attack(Estimator, _cloned),
    "rows in other forms": Attack(Estimator, _other_forms),
    "other names and units of y": Attack(Estimator, _other_units),
    "drawn": Attack(Estimator, _drawn_numbers),
    "units of X and y": Attack(_regressor, _extreme_units),
}
