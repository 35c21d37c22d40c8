"""SparseGPClassifier: PEPClassifier and StreamingPEP as a scikit-learn estimator."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, Softmax
from gpflow.models import GPModel
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from typing_extensions import override

from ..likelihoods import Logit, Probit
from ..models import PEPClassifier, StreamingPEP
from ..runtime import atomic, warn
from ..training.objectives import FAILURES
from . import calibration
from .base import MOST_FIRST_ROWS, SparseGPEstimator, max_jitter
from .columns import checked_labels
from .training import Training

# Argument of `fit`. With 10,000 in place of 1,000 rows, fits of 4,000 to 20,000 rows of five sets
# take 1.04 to 1.9 times the seconds; held-out log losses differ by at most .001.
_FIRST_ROWS = 1_000
_OF_EACH_CLASS = 100  # rows of the rarest class among the first, on average


class SparseGPClassifier(ClassifierMixin, SparseGPEstimator):
    """
    Sparse GP classification by power EP, :class:`gpflow_pep.PEPClassifier`, as an estimator of
    scikit-learn.

    It differs from scikit-learn's `GaussianProcessClassifier`: the kernel is a GPflow kernel;
    several classes share one model with a latent function per class, not a binary model per class;
    fitting takes O(N M²) time for M inducing points and N rows, not O(N³); `sample_weight` is not
    supported.

    After an error or Ctrl-C in `fit` or `partial_fit` the estimator is unchanged.

    >>> from gpflow_pep.estimators import SparseGPClassifier
    >>> X = np.linspace(-3.0, 3.0, 60)[:, None]
    >>> labels = np.where(np.sin(2.0 * X[:, 0]) > 0.0, "up", "down")
    >>> classifier = SparseGPClassifier(n_inducing=10, random_state=0).fit(X, labels)
    >>> print(classifier.predict([[0.8], [-0.8]]))
    ['up' 'down']
    >>> classifier.predict_proba([[0.8]]).shape  # in the order of classes_
    (1, 2)

    .. rubric:: Fitted attributes

    `classes_` : array [C]
        The labels, in ascending order.
    `model_` : :class:`gpflow_pep.PEPClassifier` or :class:`gpflow_pep.StreamingPEP`
        The trained model, whose labels are indices of `classes_`; a stream from the second batch
        on. Its probabilities are not tempered.
    `temperature_` : float
        The temperature T: the probabilities are raised to the power 1/T and normalized. T minimizes
        the log loss of leave-one-out predictions at the trained hyperparameters, plus a penalty
        that shrinks it toward 1 (Guo et al. 2017). 1 if probabilities are not calibrated.

    The other attributes are as in :class:`SparseGPRegressor`.

    """

    _STREAM = StreamingPEP

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: Likelihood | None = None,
        alpha: float | str = 0.5,
        n_inducing: int | str | None = 100,
        optimizer: str | None = "lbfgs",
        max_iterations: int | None = None,
        learning_rate: float = 0.01,
        train_inducing: bool | None = None,
        tolerance: float | None = None,
        n_restarts: int | None = 0,
        priors: str | None = "auto",
        calibrate: bool | None = None,
        random_state: Any = None,
    ):
        """
        The other arguments are as in :class:`SparseGPRegressor`.

        :param kernel: a GPflow kernel; a copy is trained. None: as in
            :class:`SparseGPRegressor`, with 1 for the variance of y.
        :param alpha: the power, in [0, 1], also of later batches, or "auto".
        :param likelihood: a likelihood of labels 0, 1, ..., C - 1 (indices of `classes_`); a copy
            is trained. None: :class:`gpflow_pep.likelihoods.Probit` for two classes,
            :class:`gpflow.likelihoods.Softmax` for more.
        :param calibrate: whether to temper probabilities by `temperature_`. None: if the kernel has
            weak priors and was trained. `temperature_` stays 1 if the sites have not converged, or
            if a leave-one-out prediction fails; True: `fit` warns then. `partial_fit` does not
            calibrate: it needs None or False.
        """
        self.kernel = kernel
        self.likelihood = likelihood
        self.alpha = alpha
        self.n_inducing = n_inducing
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.train_inducing = train_inducing
        self.tolerance = tolerance
        self.n_restarts = n_restarts
        self.priors = priors
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "SparseGPClassifier":
        """
        Train on rows X [N, D] and labels y [N] of at least two classes.

        Labels are text, whole numbers or booleans, all of one type.
        """
        calibration.check(self.calibrate)
        with atomic([self], ()):
            X, y = self._validated_rows(X, y, reset=True)
            classes = np.unique(y)
            if len(classes) < 2:
                raise ValueError(
                    f"y must have labels of two classes or more, got 1 class: {classes.tolist()}."
                )
            self.classes_ = classes
            self._fit_model(X, self._encoded(y))
            self._calibrate(np.searchsorted(classes, y))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "SparseGPClassifier":
        """
        Train on another batch, as :meth:`SparseGPRegressor.partial_fit` does, by
        :class:`gpflow_pep.StreamingPEP`.

        Hyperparameters stay while all rows are of one class. The first batch after :meth:`fit` sets
        `temperature_` to 1.

        :param X: inputs [N, D] of the batch.
        :param y: labels [N] of the batch, not necessarily of all classes.
        :param classes: all labels of the stream; required in the first call, and fixed from then
            on.
        """
        calibration.check_stream(self.calibrate)
        first = not hasattr(self, "model_")
        if first and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit.")
        with atomic([self], ()):
            X, y = self._validated_rows(X, y, reset=first)
            if classes is not None:
                labels = unique_labels(np.atleast_1d(checked_labels(classes, "classes")))
                if len(labels) < 2:
                    raise ValueError(
                        f"classes must be two labels or more, got {len(labels)} class: "
                        f"{labels.tolist()}."
                    )
                if not (first or np.array_equal(labels, self.classes_)):
                    raise ValueError(
                        f"classes must stay {self.classes_.tolist()}, got {labels.tolist()}."
                    )
                self.classes_ = labels
            self._partial_fit_model(X, self._encoded(y))
        return self

    def predict(self, X: Any) -> AnyNDArray:
        """Predict the most probable labels [n] at inputs X [n, D]."""
        largest = np.argmax(self.predict_proba(X), axis=1)  # raises an error before a fit
        return self.classes_[largest]

    def predict_proba(self, X: Any) -> AnyNDArray:
        """
        Predict the probabilities of all classes, [n, C], in the order of `classes_`, at inputs X
        [n, D], tempered by `temperature_`.
        """
        posterior_and_inputs = self._posterior_and_inputs(X)  # checks that there is a model
        probabilities, _ = self.model_._predict_y_by(*posterior_and_inputs)
        return calibration.tempered(calibration.of_all_classes(probabilities), self.temperature_)

    def _validated_rows(self, X: Any, y: Any, reset: bool) -> tuple[AnyNDArray, AnyNDArray]:
        X, y = self._validated(X, reset, y=checked_labels(y, "y"))
        check_classification_targets(y)
        return X, y

    def _encoded(self, y: AnyNDArray) -> AnyNDArray:
        """Return indices of the labels y [N] in `classes_`, [N, 1]."""
        known = np.isin(y, self.classes_)
        if not known.all():
            # A message of one line.
            unknown = ", ".join(map(repr, np.unique(y[~known])[:5].tolist()))
            raise ValueError(
                f"y must have labels of classes_, {self.classes_.tolist()}, got {unknown}."
            )
        return np.searchsorted(self.classes_, y).astype(default_float())[:, None]

    def _initial_likelihood(self) -> Likelihood:
        count = len(self.classes_)
        if self.likelihood is None:
            return Probit() if count == 2 else Softmax(count)
        is_binary = isinstance(self.likelihood, Bernoulli | Logit | Probit)
        expected = 2 if is_binary else getattr(self.likelihood, "num_classes", count)
        if expected != count:
            raise ValueError(
                f"likelihood must have {count} classes, as classes_ has, got "
                f"{type(self.likelihood).__name__} with {expected}."
            )
        return deepcopy(self.likelihood)

    @override
    def _keep(self, model: GPModel, training: Training) -> None:
        super()._keep(model, training)
        self.temperature_ = 1.0

    def _calibrate(self, labels: AnyNDArray) -> None:
        """Set the temperature, if asked for; keep 1 if a prediction is not finite."""
        if not self._is_calibrated():
            return
        temperature = np.nan
        if self.model_.sites_status.converged:
            with suppress(*FAILURES):
                probabilities = calibration.leave_one_out_probabilities(
                    self.model_, self._posterior_values
                )
                temperature = calibration.best_temperature(probabilities, labels)
        if np.isfinite(temperature):
            self.temperature_ = temperature
        elif self.calibrate:
            warn(
                "Probabilities are not calibrated: the sites have not converged, or a leave-one-out "
                "prediction is not finite. Try a smaller alpha."
            )

    @override
    def _first_rows(self, Y: AnyNDArray) -> int:
        """Return few rows, since sweeps of all rows take long, but enough of a rare class."""
        of_rarest = int(np.unique(Y, return_counts=True)[1].min())
        return min(max(_FIRST_ROWS, _OF_EACH_CLASS * len(Y) // of_rarest), MOST_FIRST_ROWS)

    @override
    def _make_without_priors(self, data: RegressionData, Z: AnyNDArray, alpha: Any) -> GPModel:
        parts = self._initial_kernel(*data), self._initial_likelihood(), Z
        return PEPClassifier(data, *parts, alpha=alpha, max_jitter=max_jitter())
