"""
Methods that `python -m experiments.benchmarks.tables` and `.estimators` compare, and the record of
one fit.

`linear` and `boosting` predict numbers with the spread of the residuals of five folds as standard
deviation.
"""

import ast
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler

from experiments.benchmarks.rankings import Record, Rows, num_classes
from experiments.cells.processes import THREADS
from experiments.datasets import Floats
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.estimators.calibration import of_all_classes
from gpflow_pep.inducing import k_means
from gpflow_pep.inducing.rows import distinct
from gpflow_pep.training.coordinates import spreads

_GRACE = 60  # CPU seconds for predictions, and for a fit to stop at its limit
_FOLDS = 5
_LONG = 20.0  # seconds of a fit that is not repeated
_BOUNDS = (1e-3, 1e5)  # bounds of scikit-learn's variances and lengthscales


class GPflow:
    """
    GPflow's `SGPR` of standardized targets, or `SVGP`, with `Bernoulli` or `MultiClass`, trained by
    GPflow's `Scipy`.
    """

    def __init__(
        self,
        X: Floats,
        classes: int,
        *,
        variational: bool,
        M: int = 100,
        lengthscale: float | None = None,
    ):
        """
        :param variational: use `SVGP`.
        :param lengthscale: of each column; None: the square root of their number.
        """
        self._M, self._classes, self._variational = M, classes, variational
        self._kernel = gpflow.kernels.SquaredExponential(
            lengthscales=np.full(X.shape[1], lengthscale or X.shape[1] ** 0.5)
        )

    def fit(self, X: Floats, y: Any) -> None:
        """Train kernel, likelihood, inducing points and q(u)."""
        scales = spreads(X)
        Z = k_means(X / scales, min(self._M, len(distinct(X))), seed=0) * scales
        likelihood: Likelihood = Gaussian()
        if self._classes:
            self.classes_, y = np.unique(y, return_inverse=True)
            likelihood = MultiClass(self._classes)
            if self._classes == 2:
                likelihood = Bernoulli()
        data = X, y[:, None].astype(float)
        if self._variational:
            latents = likelihood.latent_dim or 1
            self.model = gpflow.models.SVGP(
                self._kernel, likelihood, Z, num_latent_gps=latents, num_data=len(X)
            )
            loss = self.model.training_loss_closure(data)
        else:
            self.model = gpflow.models.SGPR(data, self._kernel, Z)
            loss = self.model.training_loss
        found = gpflow.optimizers.Scipy().minimize(loss, self.model.trainable_variables)
        status = "converged" if found.success else "limit"
        self.result_ = SimpleNamespace(status=status, iterations=found.nit)

    def predict(self, X: Floats, return_std: bool = False) -> Any:
        """Predict labels, or mean and standard deviation."""
        if self._classes:
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        mean, variance = (value.numpy()[:, 0] for value in self.model.predict_y(X))
        return mean, np.sqrt(variance)

    def predict_proba(self, X: Floats) -> Floats:
        """Predict the probabilities of the classes."""
        return of_all_classes(self.model.predict_y(X)[0].numpy())


def _default(X: Floats, classes: int, **options: Any) -> Any:
    return SparseGPClassifier(**options) if classes else SparseGPRegressor(**options)


def _sklearn(X: Floats, classes: int) -> Any:
    kernel = ConstantKernel(1.0, _BOUNDS) * RBF(spreads(X) * np.sqrt(X.shape[1]), _BOUNDS)
    if classes:
        return GaussianProcessClassifier(kernel, random_state=0)
    return GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True, random_state=0)


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
    "default": _default,
    "sklearn-gp": _sklearn,
    "sgpr": partial(GPflow, variational=False),
    "svgp": partial(GPflow, variational=True),
    "linear": _either(RidgeCV(np.logspace(-3.0, 3.0, 13)), LogisticRegression(max_iter=1000)),
    "boosting": _either(
        HistGradientBoostingRegressor(random_state=0),
        HistGradientBoostingClassifier(random_state=0),
    ),
}


def made(method: str, X: Floats, classes: int) -> Any:
    """
    Return the unfitted estimator of a method or variant, such as "default:alpha=1.0"; words are
    quoted: "default:n_inducing='auto'".
    """
    name, _, settings = method.partition(":")
    pairs = (setting.partition("=") for setting in filter(None, settings.split(",")))
    options = {key: ast.literal_eval(text) for key, _, text in pairs}
    return METHODS[name](X, classes, **options)


def split(X: Floats, y: Any, seed: int) -> Any:
    """
    Return training and held-out rows of X, then of y: 7 of 10 rows train, at most 3,000 are in
    either part.
    """
    train = min(3000, int(0.7 * len(X)))
    test = min(3000, len(X) - train)
    classes = y if num_classes(y) else None
    return train_test_split(
        X, y, train_size=train, test_size=test, random_state=seed, stratify=classes
    )


def fit_alone(limit: int, function: Callable[..., Record], *arguments: Any) -> Record:
    """
    Return the record that a function of this module makes in a process of its own, whose server has
    imported TensorFlow, but never run it.
    """
    os.environ.update(dict.fromkeys(THREADS, "1"), TF_CPP_MIN_LOG_LEVEL="3")
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    given = (sender, limit, function, *arguments)
    process = context.Process(target=_send, args=given, daemon=True)
    process.start()
    sender.close()
    record = {}
    with suppress(EOFError):
        record = receiver.recv()
    process.join()
    return record or {"status": f"ended with {process.exitcode}"}


def _send(sender: Connection, limit: int, function: Callable[..., Record], *arguments: Any) -> None:
    """
    Send the record that a function returns, or its error; the process is killed a minute of CPU
    time after two limits, of a first and a second fit.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (2 * limit + _GRACE, 2 * limit + _GRACE))
    try:
        sender.send(function(limit, *arguments))
    except Exception as error:
        found = {"seconds": time.process_time(), "status": f"{type(error).__name__}: {error}"}
        sender.send(found)


def of_table(limit: int, method: str, X: Floats, y: Any, seed: int) -> Record:
    """
    Split a table, fit and score; `default` gets the columns as they are, all others standardized
    columns, and scores are of y over the standard deviation of its training rows.
    """
    X, X_test, y, y_test = split(X, y, seed)
    is_number = not num_classes(y)
    unit = float(spreads(y[:, None])[0]) if is_number else 1.0
    if not method.startswith("default"):
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
        if is_number:
            mean = y.mean()
            y, y_test = ((part - mean) / unit for part in (y, y_test))
            unit = 1.0
    record = measured(limit, method, (X, y), (X_test, y_test))
    if "nlpd" in record:
        record |= {"nlpd": record["nlpd"] - np.log(unit), "error": record["error"] / unit}
    return record


def measured(limit: int, method: str, rows: Rows, held_out: Rows, again: bool = False) -> Record:
    """
    Fit and score a method; return scores, CPU seconds, iterations, warnings and status.

    :param limit: CPU seconds, after which GPflow's models are scored as they are, and others are
        not.
    :param again: also time a second fit by a new estimator, if the first is short.
    """
    X, y = rows
    classes = num_classes(y)
    estimator = made(method, X, classes)
    status = ""
    with warnings.catch_warnings(record=True) as shown:
        start = time.process_time()
        try:
            with cut_off(limit):
                estimator.fit(X, y)
        except TimeoutError:
            status = "cut off"
        record = {"seconds": time.process_time() - start}
        if not status or isinstance(estimator, GPflow):
            record["nlpd"], record["error"] = scores(estimator, held_out, bool(classes))
    if again and not status and record["seconds"] < _LONG:
        start = time.process_time()
        made(method, X, classes).fit(X, y)
        record["again"] = time.process_time() - start
    result = getattr(estimator, "result_", None)
    return record | {
        "status": status or getattr(result, "status", "completed"),
        "iterations": getattr(result, "iterations", None),
        "M": getattr(estimator, "n_inducing_", None),
        "warnings": sorted({f"{each.category.__name__}: {each.message}" for each in shown}),
    }


@contextmanager
def cut_off(limit: int) -> Iterator[None]:
    """Raise a `TimeoutError` after this many CPU seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)  # again, if a library swallows the first error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def scores(estimator: Any, rows: Rows, is_classifier: bool) -> tuple[float, float]:
    """
    Return NLPD and error of held-out rows X [n, D] and y [n]; probabilities are at least 1e-15.
    """
    X, y = rows
    if is_classifier:
        probabilities = estimator.predict_proba(X)  # [n, C]
        own = np.sum(probabilities * (y[:, None] == estimator.classes_), axis=1)  # [n]
        nlpd = -float(np.mean(np.log(np.maximum(own, 1e-15))))
        return nlpd, float(np.mean(estimator.predict(X) != y))
    mean, std = estimator.predict(X, return_std=True)
    return -float(np.mean(norm.logpdf(y, mean, std))), float(np.sqrt(np.mean((y - mean) ** 2)))
