"""Attacks on the estimators: parameters, rows, labels, streams and displays."""

from collections.abc import Callable
from typing import Any

import gpflow
import matplotlib
import numpy as np
import pandas as pd
import tensorflow as tf
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from campaign.attack_subjects import (
    Attack,
    Attacks,
    Numbers,
    Pair,
    Rows,
    drawn,
    masked,
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


def _classifier(rng: np.random.Generator) -> Estimator:
    return Estimator(rng, True)


def _again(*values: Any, method: str = "") -> Callable[[Estimator], None]:
    """Fit again to these rows, by `fit` or by `partial_fit`."""

    def act(s: Estimator) -> None:
        getattr(s.estimator, method or drawn(s, ["fit", "partial_fit"]))(*drawn(s, values))

    return act


def _with_option(name: str, *values: Any) -> Callable[[Estimator], None]:
    """Set a parameter and fit; the estimator predicts as before."""

    def act(s: Estimator) -> None:
        s.estimator.set_params(**{"optimizer": "lbfgs", name: drawn(s, values)})
        # Later batches keep the kernel and the likelihood.
        method = "fit" if name in ("kernel", "likelihood") else drawn(s, ["fit", "partial_fit"])
        getattr(s.estimator, method)(s.X, s.y)

    return act


def _predicting(*values: Any) -> Callable[[Estimator], None]:
    def act(s: Estimator) -> None:
        methods = ["predict", "predict_proba"] if s.classifies else ["predict", "sample_y"]
        getattr(s.estimator, drawn(s, methods))(drawn(s, values))

    return act


def _setting(**values: Any) -> Callable[[Estimator], None]:
    """Set one of these parameters, and `alpha` with it, which must not be set either."""

    def act(s: Estimator) -> None:
        before = repr(s.estimator.get_params())
        name = drawn(s, list(values))
        try:
            s.estimator.set_params(alpha=0.123, **{name: drawn(s, values[name])})
        finally:
            if repr(s.estimator.get_params()) != before:
                raise AssertionError("parameters were set by a call that failed")

    return act


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


def _odd_labels(s: Estimator) -> None:
    """Labels that are missing, of two types, or no labels."""
    labels: list[Any] = s.y.tolist()
    first = drawn(s, [None, np.nan, b"a", {}, object(), 1j, "text" if s.y.dtype.kind != "U" else 1])
    odd = [first, *labels[1:]]
    call = drawn(s, ["fit", "partial_fit", "classes"])
    if call == "classes":
        s.make().partial_fit(s.X, s.y, odd)
    getattr(s.estimator, call)(s.X, odd)


def _far_batch(s: Estimator) -> None:
    """The linear trend of the default kernel has a variance there whose rounding exceeds jitter."""
    first = {"classes": s.labels} if s.classifies else {}
    estimator = s.make(kernel=None, optimizer=None).partial_fit(s.X, s.y, **first)
    estimator.partial_fit(drawn(s, [1e9, 1e200]) * (2.0 + s.X), s.y)


def _column(s: Estimator) -> None:
    """Fit or predict with a column of categories or times, in a table or an array."""
    days = pd.date_range("2020", periods=len(s.X))
    other: Any = drawn(s, [["a"] * len(s.X), days, days - days[0], days.date, [b"a"] * len(s.X)])
    table = pd.DataFrame({0: s.X[:, 0], 1: other})
    X = drawn(s, [table, table.to_numpy(dtype=object)])
    call = drawn(s, ["fit", "partial_fit", "predict"])
    getattr(s.estimator, call)(*([X] if call == "predict" else [X, s.y]))


def _equal_names(s: Estimator) -> None:
    table = pd.DataFrame(np.column_stack([s.X, s.X[:, :1]]))
    table.columns = [*table.columns[:-1], table.columns[0]]
    s.make().fit(table, s.y)


def _sparse(s: Estimator) -> None:
    X = drawn(s, [csr_array, csr_matrix, coo_array])(s.X)
    call = drawn(s, ["fit", "partial_fit", "predict"])
    getattr(s.estimator, call)(*([X] if call == "predict" else [X, s.y]))


def _unfitted(s: Estimator) -> None:
    drawn(s, [s.make(), clone(s.estimator)]).predict(s.X)


def _missing_classes(s: Estimator) -> None:
    classes: Any = drawn(s, [None, [s.labels[0]]])
    s.make().partial_fit(s.X, s.y, classes)


def _display(s: Estimator) -> None:
    other = drawn(s, [np.array(["other"] * len(s.y)), np.full(len(s.y), 7), np.full(len(s.y), 0.5)])
    ClassDisplay.from_estimator(s.estimator, s.X, other)


def _display_of_model(s: Estimator) -> None:
    ClassDisplay.from_model(
        s.estimator.model_, (s.X, np.full([len(s.X), 1], drawn(s, [7.0, -1.0, 0.5])))
    )


def _display_of_other_inputs(s: Estimator) -> None:
    display: Any = ClassDisplay if s.classifies else PredictionDisplay
    wrong = [np.ones((len(s.y), 3)), s.X * np.nan, s.X[:, 0], np.full(s.X.shape, "a"), masked(s.X)]
    display.from_estimator(s.estimator, drawn(s, wrong), s.y)


def _display_of_none(s: Estimator) -> None:
    wrong: Any = drawn(s, [None, "model", 3])
    if drawn(s, [True, False]):
        PredictionDisplay.from_model(wrong, (s.X, s.f))
    drawn(s, [PredictionDisplay, ClassDisplay]).from_estimator(wrong, s.X, s.y)


def _display_with(name: str, *values: Any) -> Callable[[Estimator], None]:
    """Draw with one of these values of an option."""

    def act(s: Estimator) -> None:
        display: Any = ClassDisplay if s.classifies else PredictionDisplay
        display.from_estimator(s.estimator, s.X, s.y, **{name: drawn(s, values)})

    return act


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


def _category(s: Estimator) -> None:
    """A category of no output in a column of a `Coregion`."""
    X = np.column_stack([s.X[:, 0], np.arange(len(s.X)) % 2])
    kernel = gpflow.kernels.Matern32(active_dims=[0]) * gpflow.kernels.Coregion(
        2, 1, active_dims=[1]
    )
    estimator = s.make(kernel=kernel).fit(X, s.y)
    wrong = X.copy()
    wrong[1, 1] = drawn(s, [2.0, 0.5, -1.0])
    call = drawn(s, ["predict", "partial_fit", "fit"])
    getattr(estimator, call)(*([wrong] if call == "predict" else [wrong, s.y]))


ATTACKS: Attacks = {
    "set_params of the kernel": Attack(Estimator, _kernel_parameters),
    "cloned": Attack(Estimator, _cloned),
    "rows in other forms": Attack(Estimator, _other_forms),
    "other names and units of y": Attack(Estimator, _other_units),
    "drawn": Attack(Estimator, _drawn_numbers),
    "not fitted": Attack(Estimator, _unfitted, "not fitted"),
    "rows that are not finite": Attack(
        Estimator, _again(lambda s: (s.X * np.nan, s.y), lambda s: (s.X + np.inf, s.y)), r"\bX\b"
    ),
    "y that is not finite": Attack(
        _regressor, _again(lambda s: (s.X, s.y * np.nan), lambda s: (s.X, s.y + np.inf)), r"\by\b"
    ),
    "rows of another number": Attack(
        Estimator, _again(lambda s: (s.X, s.y[:2]), lambda s: (s.X[:0], s.y[:0])), "samples|sample"
    ),
    "another number of columns": Attack(
        Estimator, _again(lambda s: (np.hstack([s.X, s.X]), s.y), method="partial_fit"), "features"
    ),
    "rows of a mask": Attack(
        Estimator,
        _again(lambda s: (masked(s.X), s.y), lambda s: (s.X, masked(s.y))),
        r"\b[Xy]\b.*mask",
    ),
    "dates": Attack(
        Estimator,
        _again(
            lambda s: (s.X.astype("M8[s]"), s.y),
            lambda s: (pd.DataFrame({"date": pd.date_range("2020", periods=len(s.X))}), s.y),
        ),
        "X must hold numbers",
    ),
    "column of categories or times": Attack(
        Estimator, _column, r"^X must hold numbers, got .* in column .*(Encoder|number of days)"
    ),
    "equal names of columns": Attack(
        Estimator, _equal_names, "^X must have distinct column names, got .* more than once"
    ),
    "sparse matrix": Attack(Estimator, _sparse, r"^X .*\.toarray\(\)"),
    "no y": Attack(Estimator, _again(lambda s: (s.X, None)), r"\by\b"),
    "more outputs in a batch": Attack(
        _regressor,
        _again(lambda s: (s.X, np.column_stack([s.y, s.y])), method="partial_fit"),
        r"\by\b.*columns",
    ),
    "weights": Attack(
        Estimator,
        lambda s: s.make().fit(s.X, s.y, sample_weight=np.ones(len(s.y))),
        "sample_weight",
    ),
    "labels of no type": Attack(
        _classifier, _odd_labels, "^(y|classes) must (hold labels of one type|have labels)"
    ),
    "units of X and y": Attack(_regressor, _extreme_units),
    "columns out of range": Attack(
        Estimator,
        _again(lambda s: (1e304 * s.X, s.y), lambda s: (1e-304 * s.X, s.y), method="fit"),
        "^X must .*try another unit",
    ),
    "batch that is far away": Attack(
        Estimator, _far_batch, "^X must be nearer to the earlier batches"
    ),
    "booleans": Attack(
        _regressor,
        lambda s: drawn(
            s,
            [
                lambda s: s.make(normalize_y="no").fit(s.X, s.y),
                lambda s: s.estimator.predict(s.X, return_std="no"),
                lambda s: s.estimator.predict(s.X, return_cov=1),
            ],
        ),
        "must be True or False",
    ),
    "draws in vain": Attack(
        _regressor,
        lambda s: drawn(
            s,
            [
                lambda s: s.make(n_draws=2, optimizer=None).fit(s.X, s.y),
                lambda s: s.make(n_draws=2).partial_fit(s.X, s.y),
                lambda s: s.make(n_draws=3).partial_fit(s.X, s.y),
                lambda s: s.make(n_draws="many").partial_fit(s.X, s.y),
            ],
        ),
        "^n_draws must be",
    ),
    "label that is missing": Attack(
        _classifier,
        _again(
            lambda s: (s.X, np.array([None, *s.y[1:]], dtype=object)),
            lambda s: (s.X, np.where(np.arange(len(s.y)) == 1, np.nan, 1.0)),
            lambda s: (s.X, s.f[:, 0]),
        ),
        r"\by\b|label|NaN",
    ),
    "label of no class": Attack(
        _classifier,
        _again(
            lambda s: (s.X, np.full(len(s.y), "maybe" if s.y.dtype.kind == "U" else 5)),
            method="partial_fit",
        ),
        r"\by\b.*classes_",
    ),
    "one class": Attack(
        _classifier,
        _again(lambda s: (s.X, np.repeat(s.labels[:1], len(s.y))), method="fit"),
        r"\by\b",
    ),
    "classes that are missing": Attack(_classifier, _missing_classes, "classes"),
    "other classes": Attack(
        _classifier,
        _again(lambda s: (s.X, s.y, s.labels[:1].tolist() * 2), method="partial_fit"),
        "classes",
    ),
    "predictions of other columns": Attack(
        Estimator,
        _predicting(np.ones((4, 3)), lambda s: s.X[:, :0], lambda s: s.X[:, 0]),
        r"feature|\bX\b|1D array",
    ),
    "predictions at what is not finite": Attack(
        Estimator, _predicting(lambda s: s.X * np.nan), r"\bX\b"
    ),
    "predictions at a mask or dates": Attack(
        Estimator, _predicting(lambda s: masked(s.X), lambda s: s.X.astype("M8[s]")), r"\bX\b"
    ),
    "kernel": Attack(
        Estimator,
        _with_option(
            "kernel",
            "rbf",
            gpflow.kernels.Matern32,
            RBF(),
            ConstantKernel() * RBF(),
            lambda s: new_kernel(s.rng, 3),
        ),
        "kernel",
    ),
    "alpha": Attack(
        Estimator, _with_option("alpha", -1, 2, None, "x", np.nan, [0.5, 0.5], True), "alpha"
    ),
    "n_inducing": Attack(
        Estimator, _with_option("n_inducing", 0, -1, 2.5, "many", True), "n_inducing"
    ),
    "optimizer": Attack(
        Estimator, _with_option("optimizer", "sgd", 3, tf.keras.optimizers.Adam), "optimizer"
    ),
    "max_iterations": Attack(
        Estimator, _with_option("max_iterations", 0, 1.5, "2"), "max_iterations"
    ),
    "noise_variance": Attack(
        _regressor,
        lambda s: s.make(noise_variance=drawn(s, [0, -1.0, np.nan, "a"])).fit(s.X, s.y),
        "noise_variance",
    ),
    "likelihood": Attack(
        _classifier,
        _with_option(
            "likelihood", "probit", gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Softmax(3)
        ),
        "likelihood",
    ),
    "unknown parameter": Attack(
        Estimator,
        _setting(lengthscale=(1.0,), kernel__width=(1.0,), kernel__lengthscales__x=(1.0,)),
        "lengthscale|width",
    ),
    "value of a kernel's parameter": Attack(
        Estimator,
        _setting(kernel__lengthscales=(-1.0, np.nan, "a", [1.0, 2.0, 3.0], None)),
        "lengthscales",
    ),
    "category of no output": Attack(Estimator, _category, "Coregion"),
    "display of other labels": Attack(_classifier, _display, r"\by\b"),
    "display of a model with other labels": Attack(_classifier, _display_of_model, r"\by\b|labels"),
    "display of other inputs": Attack(Estimator, _display_of_other_inputs, r"\bX\b"),
    "display of no estimator": Attack(Estimator, _display_of_none, "model|estimator"),
    "display on no axes": Attack(Estimator, _display_with("ax", "here", [None], 1), r"\bax\b"),
    "display in no limits": Attack(
        Estimator,
        _display_with("limits", (5, 5), [[0, 0], [0, 1]], [[1, 0], [0, 1]], [[0, 1], [0, np.nan]]),
        "limits",
    ),
}
