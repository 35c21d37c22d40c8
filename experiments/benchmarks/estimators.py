"""
Compare the estimators with scikit-learn's and GPflow's Gaussian processes: CPU seconds and held-out
scores.

The estimators have their default parameters, except M and alpha. `GaussianProcessRegressor` and
`GaussianProcessClassifier` optimize a squared exponential with a variance and a lengthscale for
each column, and the regressor noise too (a `WhiteKernel`), from the initial lengthscales of the
estimators, by L-BFGS without restarts. They take O(N^3) time and are left out for more than 3,000
rows. GPflow's `SGPR` and `SVGP` (`Bernoulli`, `MultiClass`) start at the same k-means points and
lengthscales of 1, and train by `gpflow.optimizers.Scipy`, all with GPflow's defaults.

The sets are those of `SETS`, by default, and of :mod:`.hard_problems`. The columns of the tables in
`RAW` are as published, all others are standardized; so are the targets. NLPD is in nats a row; the
error is the RMSE, or the fraction of wrong labels. "First" is the first fit in a process that has
imported everything, "again" a second fit by a new estimator, for which the estimators here do not
compile again; it is left out if the first takes longer than 20 s. A peer is cut off at the limit;
GPflow's is then scored as it is. One core, a process for each row.

    python -m experiments.benchmarks.estimators [--sets diabetes iris] [--rows 1500] [--inducing
    100] [--alphas 0 0.5]
"""

import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from experiments import datasets
from experiments.benchmarks.hard_problems import PROBLEMS, hard_problem
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats
from experiments.protocols.arguments import count, power
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.inducing import k_means
from gpflow_pep.inducing.rows import distinct
from gpflow_pep.training.coordinates import spreads

RAW = ("airfoil", "kin8nm", "power", "naval", "elevators", "bike", "protein")
SETS = ("iris", "wine", "breast-cancer", "digits-3-5", "digits", "diabetes", "housing-like", *RAW)
_SKLEARN, _GPFLOW = "scikit-learn", "GPflow"
_SKLEARN_ROWS = 3000
_BOUNDS = (1e-3, 1e5)  # bounds of scikit-learn's variances and lengthscales
_LONG = 20.0  # seconds of a fit that is not repeated


def main() -> None:
    """Print a row for each set and estimator."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", default=SETS, choices=[*SETS, *PROBLEMS]
    )
    parser.add_argument(
        "--rows", type=count, default=50_000, help="training rows, at most (%(default)s)"
    )
    parser.add_argument(
        "--inducing",
        type=count,
        help="number of inducing points; by default the estimators' own, and 100",
    )
    parser.add_argument("--alphas", nargs="+", type=power, default=[0.5])
    parser.add_argument(
        "--limit", type=count, default=600, help="CPU seconds of a peer's fit (%(default)s)"
    )
    arguments = parser.parse_args()
    print(machine())
    table = Table(
        f"fits of at most {arguments.rows} rows, M = {arguments.inducing or 'default'}",
        {
            "set": "<13",
            "N": "d",
            "D": "d",
            "classes": "d",
            "estimator": "<12",
            "status": "<9",
            "iterations": "d",
        }
        | {"first, s": ".2f", "again, s": ".2f", "NLPD": ".3f", "error": ".3f"},
    )
    size = arguments.rows, arguments.inducing, arguments.limit
    for name in arguments.sets:
        few = min(arguments.rows, len(loaded(name).X_train)) <= _SKLEARN_ROWS
        for method in (
            *(f"alpha {alpha:g}" for alpha in arguments.alphas),
            *[_SKLEARN] * few,
            _GPFLOW,
        ):
            table.add(*in_process(measured, name, method, *size, one_core=True))
    write([table], arguments.json)


def loaded(name: str) -> Dataset:
    """Return a data set of the catalog, two classes of the digits, or a generated set."""
    if name in PROBLEMS:
        return hard_problem(name)
    if name == "digits-3-5":
        digits = datasets.load("digits")
        train, test = (np.isin(Y[:, 0], (3.0, 5.0)) for Y in (digits.Y_train, digits.Y_test))
        return replace(
            digits.trained_on(train), X_test=digits.X_test[test], Y_test=digits.Y_test[test]
        )
    if name == "housing-like":
        return housing_like()
    dataset = datasets.load(name)
    if name not in RAW:
        return dataset
    published = datasets.load(name, standardize=False)
    return replace(dataset, X_train=published.X_train, X_test=published.X_test)


def housing_like(num_rows: int = 20_000, num_test: int = 2_000) -> Dataset:
    """
    Generate a table like California's housing: skewed columns, places in clusters, and a capped,
    noisy price.
    """
    rng = np.random.default_rng(0)
    n = num_rows + num_test
    place = rng.normal(size=(12, 2))[rng.integers(12, size=n)] + 0.2 * rng.normal(size=(n, 2))
    skewed = np.exp(rng.normal(size=(n, 6)) @ np.diag([0.5, 0.5, 0.4, 0.3, 0.8, 0.6]))
    X = np.column_stack([skewed, place])
    waves = np.sin(2.0 * place[:, 0]) + np.cos(3.0 * place[:, 1]) * np.sin(place[:, 0])
    price = (
        np.log(skewed[:, 0]) + 0.3 * np.log(skewed[:, 1]) * waves + 0.5 * waves - 0.2 * skewed[:, 5]
    )
    Y = np.exp(np.minimum(price + 0.3 * rng.normal(size=n), 1.0))[:, None]
    (x_mean, x_scale), (y_mean, y_scale) = (
        (part.mean(0), part.std(0)) for part in (X[:num_rows], Y[:num_rows])
    )
    X, Y = (X - x_mean) / x_scale, (Y - y_mean) / y_scale
    scales = (x_mean, x_scale, y_mean, y_scale)
    return Dataset("housing-like", X[:num_rows], Y[:num_rows], X[num_rows:], Y[num_rows:], *scales)


def measured(name: str, method: str, rows: int, num_inducing: int | None, limit: int) -> list[Any]:
    """Fit twice, and score; return a row of the table."""
    dataset = loaded(name)
    chosen = np.random.default_rng(0).permutation(len(dataset.X_train))[:rows]
    X, y = dataset.X_train[chosen], dataset.Y_train[chosen, 0]
    classes = len(np.unique(y)) if dataset.y_scale == 1.0 else 0  # labels are not standardized
    seconds, status = list[float](), ""
    while not status and len(seconds) < 2 and sum(seconds) < _LONG:
        estimator = made(method, X, num_inducing, bool(classes))
        start = time.process_time()
        try:
            with warnings.catch_warnings(), cut_off(limit if method in (_SKLEARN, _GPFLOW) else 0):
                warnings.simplefilter("ignore", ConvergenceWarning)
                estimator.fit(X, y)
        except TimeoutError:
            status = "cut off"
        except tf.errors.InvalidArgumentError:  # a Cholesky decomposition failed
            status = "failed"
        seconds.append(time.process_time() - start)
    is_fitted = not status or (status, method) == ("cut off", _GPFLOW)
    nlpd = error = None
    if is_fitted:
        nlpd, error = scores(estimator, (dataset.X_test, dataset.Y_test[:, 0]), bool(classes))
    result = getattr(estimator, "result_", None)
    ended = status or getattr(result, "status", ""), getattr(result, "iterations", None)
    first, again, *_ = [*seconds, None]
    return [name, *X.shape, classes or None, method, *ended, first, again, nlpd, error]


@contextmanager
def cut_off(limit: int) -> Iterator[None]:
    """Raise a `TimeoutError` after this many CPU seconds; 0: never."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)  # again, if a library swallows the first error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def made(method: str, X: Floats, num_inducing: int | None, is_classifier: bool) -> Any:
    """Return an unfitted estimator."""
    if method == _GPFLOW:
        return GPflow(num_inducing or 100, is_classifier)
    if method != _SKLEARN:
        kind = SparseGPClassifier if is_classifier else SparseGPRegressor
        points: dict[str, Any] = {"n_inducing": num_inducing} if num_inducing else {}
        return kind(alpha=float(method.split()[1]), random_state=0, **points)
    kernel = ConstantKernel(1.0, _BOUNDS) * RBF(spreads(X) * np.sqrt(X.shape[1]), _BOUNDS)
    if is_classifier:
        return GaussianProcessClassifier(kernel, random_state=0)
    return GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True, random_state=0)


class GPflow:
    """GPflow's `SGPR` of normalized targets, or `SVGP`, trained by GPflow's `Scipy`."""

    def __init__(
        self,
        num_inducing: int,
        is_classifier: bool,
        *,
        variational: bool = False,
        lengthscale: float = 1.0,
        likelihood: gpflow.likelihoods.Likelihood | None = None,
    ):
        """
        :param variational: use `SVGP` in regression, too.
        :param lengthscale: initial value for every column.
        :param likelihood: None: `Bernoulli` for two classes, `MultiClass` for more; `Gaussian` in
            regression.
        """
        self._num_inducing, self._is_classifier = num_inducing, is_classifier
        self._variational, self._lengthscale = variational, lengthscale
        self._likelihood = likelihood

    def fit(self, X: Floats, y: Floats) -> None:
        """Train kernel, likelihood, inducing points and q(u)."""
        scales, self.classes_ = spreads(X), np.unique(y)
        num_inducing = min(self._num_inducing, len(distinct(X)))
        Z = k_means(X / scales, num_inducing, seed=0) * scales
        kernel = gpflow.kernels.SquaredExponential(
            lengthscales=np.full(X.shape[1], self._lengthscale)
        )
        likelihood, latents = self._likelihood, 1
        if self._is_classifier:
            targets = np.searchsorted(self.classes_, y)[:, None].astype(float)
            C = len(self.classes_)
            latents = 1 if C == 2 else C
            default = gpflow.likelihoods.Bernoulli() if C == 2 else gpflow.likelihoods.MultiClass(C)
            likelihood = likelihood or default
        else:
            self._mean, self._std = y.mean(), y.std()
            targets = ((y - self._mean) / self._std)[:, None]
        if self._is_classifier or self._variational:
            likelihood = likelihood or gpflow.likelihoods.Gaussian()
            self.model = gpflow.models.SVGP(
                kernel, likelihood, Z, num_latent_gps=latents, num_data=len(X)
            )
            loss = self.model.training_loss_closure((X, targets))
        else:
            self.model = gpflow.models.SGPR((X, targets), kernel, Z)
            loss = self.model.training_loss
        result = gpflow.optimizers.Scipy().minimize(loss, self.model.trainable_variables)
        self.result_ = SimpleNamespace(
            status="converged" if result.success else "limit", iterations=result.nit
        )

    def predict(self, X: Floats, return_std: bool = False) -> Any:
        """Predict labels, or mean and standard deviation."""
        if self._is_classifier:
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        mean, variance = (value.numpy()[:, 0] for value in self.model.predict_y(X))
        return mean * self._std + self._mean, np.sqrt(variance) * self._std

    def predict_proba(self, X: Floats) -> Floats:
        """Predict the probabilities of the classes."""
        found = self.model.predict_y(X)[0].numpy()
        return np.concatenate([1.0 - found, found], axis=1) if found.shape[1] == 1 else found


def scores(estimator: Any, rows: tuple[Floats, Any], is_classifier: bool) -> tuple[float, float]:
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


if __name__ == "__main__":
    main()
