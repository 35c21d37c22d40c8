"""Methods that `python -m experiments.benchmarks.tables` compares, and the record of one fit.

The estimators here get the columns as they are, all others standardized columns. `linear` and
`boosting` predict numbers with the spread of the residuals of five folds as standard deviation.
"""

import ast
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import Stationary
from gpflow.likelihoods import Likelihood
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler

import gpflow_pep
from experiments.benchmarks import estimators
from experiments.benchmarks.estimators import GPflow, cut_off, scores
from experiments.ingredients.initialization import Floats
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.training.coordinates import spreads

_GRACE = 60  # CPU seconds for predictions, and for a fit to stop at its limit
_FOLDS = 5


def default(X: Floats, classes: int, **options: Any) -> Any:
    """
    Return the estimator of this package. Kernel and likelihood are names; lengthscales start at
    their default.
    """
    if "kernel" in options:
        scales = spreads(X) * np.sqrt(X.shape[1])
        parts = []
        for name in options["kernel"].split("+"):
            kind = getattr(gpflow.kernels, name)
            if issubclass(kind, Stationary):
                parts.append(kind(lengthscales=scales))
            else:
                parts.append(kind())
        options["kernel"] = gpflow.kernels.Sum(parts)
    if "likelihood" in options:
        options["likelihood"] = _likelihood(options["likelihood"], classes)
    return SparseGPClassifier(**options) if classes else SparseGPRegressor(**options)


def _likelihood(name: str, classes: int) -> Likelihood | None:
    """
    Return a likelihood of more than two classes; for two classes None, the default of each method.
    """
    if classes == 2:
        return None
    kind = getattr(gpflow_pep, name, None) or getattr(gpflow.likelihoods, name)
    likelihood: Likelihood = kind(classes)
    return likelihood


def _gpflow(X: Floats, classes: int, variational: bool, M: int = 100, likelihood: str = "") -> Any:
    return GPflow(
        M,
        bool(classes),
        variational=variational,
        lengthscale=X.shape[1] ** 0.5,
        likelihood=_likelihood(likelihood, classes) if likelihood else None,
    )


class WithSpread:
    """
    A regressor whose predictive standard deviation is the spread of the residuals of its folds.
    """

    def __init__(self, regressor: Any):
        self._regressor = regressor

    def fit(self, X: Floats, y: Floats) -> None:
        """Train on the folds, and on all rows."""
        folds = KFold(min(_FOLDS, len(X)), shuffle=True, random_state=0)
        held_out = cross_val_predict(clone(self._regressor), X, y, cv=folds)
        self._std = np.sqrt(np.mean((y - held_out) ** 2))
        self._regressor.fit(X, y)

    def predict(self, X: Floats, return_std: bool) -> tuple[Floats, Floats]:
        """Predict mean and standard deviation."""
        mean = self._regressor.predict(X)
        return mean, np.full(len(X), self._std)


def _either(regressor: Any, classifier: Any) -> Callable[..., Any]:
    return lambda X, classes: clone(classifier) if classes else WithSpread(regressor)


METHODS: dict[str, Callable[..., Any]] = {
    "default": default,
    "sklearn-gp": lambda X, classes: estimators.made("scikit-learn", X, None, bool(classes)),
    "sgpr": partial(_gpflow, variational=False),
    "svgp": partial(_gpflow, variational=True),
    "linear": _either(RidgeCV(np.logspace(-3.0, 3.0, 13)), LogisticRegression(max_iter=1000)),
    "boosting": _either(
        HistGradientBoostingRegressor(random_state=0),
        HistGradientBoostingClassifier(random_state=0),
    ),
}


def made(method: str, X: Floats, classes: int) -> Any:
    """
    Return the unfitted estimator of a method or variant, such as
    "default:alpha=1.0,kernel=Matern52".
    """
    name, _, settings = method.partition(":")
    options = dict[str, Any]()
    for setting in filter(None, settings.split(",")):
        key, _, text = setting.partition("=")
        try:
            options[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            options[key] = text
    return METHODS[name](X, classes, **options)


def split(X: Floats, y: Any, seed: int) -> Any:
    """
    Return training and held-out rows of X, then of y: 7 of 10 rows train, at most 3,000 are in
    either part.
    """
    train = min(3000, int(0.7 * len(X)))
    return train_test_split(
        X,
        y,
        train_size=train,
        test_size=min(3000, len(X) - train),
        random_state=seed,
        stratify=None if y.dtype.kind == "f" else y,
    )


def send_record(
    sender: Connection, method: str, X: Floats, y: Any, seed: int, limit: int, again: bool
) -> None:
    """
    Send the record of a fit, or its error; the process is killed a minute of CPU time after the
    limit.
    """
    most = (1 + again) * limit + _GRACE
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    try:
        sender.send(measured(method, X, y, seed, limit, again))
    except Exception as error:
        found = {"seconds": time.process_time(), "status": f"{type(error).__name__}: {error}"}
        sender.send(found)


def measured(method: str, X: Floats, y: Any, seed: int, limit: int, again: bool) -> dict[str, Any]:
    """
    Fit and score a method; return scores, CPU seconds, warnings and status.

    :param limit: CPU seconds, after which GPflow's models are scored as they are, and others are
        not.
    :param again: also time a second fit by a new estimator.
    """
    X, X_test, y, y_test = split(X, y, seed)
    classes = 0 if y.dtype.kind == "f" else len(np.unique(y))
    unit = 1.0 if classes else float(spreads(y[:, None])[0])
    if not method.startswith("default"):
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
        if not classes:
            mean = y.mean()
            y = (y - mean) / unit
            y_test = (y_test - mean) / unit
            unit = 1.0
    estimator = made(method, X, classes)
    status = ""
    with warnings.catch_warnings(record=True) as shown:
        start = time.process_time()
        try:
            with cut_off(limit):
                estimator.fit(X, y)
        except TimeoutError:
            status = "cut off"
        record: dict[str, Any] = {"seconds": time.process_time() - start}
        if not status or isinstance(estimator, GPflow):
            nlpd, error = scores(estimator, (X_test, y_test), bool(classes))
            record |= {"nlpd": nlpd - np.log(unit), "error": error / unit}
    result = getattr(estimator, "result_", None)
    if again and not status:
        start = time.process_time()
        made(method, X, classes).fit(X, y)
        record["again"] = time.process_time() - start
    return record | {
        "status": status or getattr(result, "status", "completed"),
        "iterations": getattr(result, "iterations", None),
        "warnings": sorted({f"{each.category.__name__}: {each.message}" for each in shown}),
    }
