"""SparseGPRegressor: PEPR and StreamingSGPR as a scikit-learn estimator."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float, default_jitter, default_likelihood_positive_minimum
from gpflow.kernels import Kernel, SquaredExponential, Sum
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel
from gpflow.utilities import multiple_assign, read_values
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from .. import validation
from ..inducing.rows import distinct
from ..models import PEPR, StreamingSGPR
from ..runtime import assign_all, atomic, warn
from ..selection.reuse import compiled_model
from ..training.coordinates import spreads
from ..training.objectives import FAILURES
from ..training.options import FitOptions
from ..training.priors import locations, remove_weak_priors, weak_priors
from ..training.result import FAILED
from . import calibration
from .base import SparseGPEstimator, max_jitter
from .columns import check_numbers
from .exact import MOST_ROWS, as_gpr, is_exact, trained_as_gpr
from .laplace import averaged, hyperparameters, laplace_draws
from .training import Training, ended, joined

_FEW_ROWS = 100  # largest number of rows for which predictions are averaged by default
_DRAWS = 8  # default number: more draws change held-out densities by less than .005 nats
_MAX_COORDINATES = 64  # largest number of hyperparameters by default: each takes two gradients
# Nats per value of y by which the evidence of the exact model must be higher. On nine splits of
# eight tables it is in three, by .025 or more: all rows predict better by .02 to .14. In the
# others, by .007 or less, they predict worse.
_CLEARLY = 0.02
_SMALLEST_POWER = 1e-6  # smaller ones are noise variances: scikit-learn's default is 1e-10
_JUMP = 1e3  # standard deviations of the first batch: `partial_fit` warns of y beyond
# In these units the least noise of a stream has a standard deviation of 1e-3, GPflow's bound, and
# hides y that vary less.
_HIDDEN = 3e-3
_FEWEST_ROWS = 10  # of a batch that may be hidden: neighbors may have nearly the same y
_GPFLOW_BOUND = 1e-6  # GPflow's default lower bound of a noise variance
# Times the default bounds of noise and jitter. With smaller ones rounding exceeds the gain, or
# factorizations fail.
_FINER_BOUNDS = 1e-2


class SparseGPRegressor(MultiOutputMixin, RegressorMixin, SparseGPEstimator):
    """
    Sparse GP regression by power EP, :class:`gpflow_pep.PEPR`, as an estimator of scikit-learn.

    It differs from scikit-learn's `GaussianProcessRegressor`: `alpha` is the power, and the noise
    variance is learned; the kernel is a GPflow kernel; standard deviations and covariances are for
    new observations, noise included; fitting takes O(N M²) time for M inducing points and N rows,
    not O(N³); `sample_weight` is not supported.

    Predictions use the posterior at the end of `fit`: changing `model_` afterwards is not
    supported. After an error or Ctrl-C in `fit` or `partial_fit` the estimator is unchanged.

    >>> from gpflow_pep.estimators import SparseGPRegressor
    >>> X = np.linspace(0.0, 6.0, 60)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> regressor = SparseGPRegressor(n_inducing=10, random_state=0).fit(X, y)
    >>> mean, std = regressor.predict(X[:5], return_std=True)
    >>> np.allclose(mean, y[:5], atol=0.01)
    True

    .. rubric:: Fitted attributes

    `model_` : :class:`gpflow_pep.PEPR` or :class:`gpflow_pep.StreamingSGPR`
        The trained model of the normalized y; a stream from the second batch on. Its variances are
        without `variance_factor_`.
    `kernel_` : :class:`gpflow.kernels.Kernel`
        The trained kernel, of the normalized y.
    `noise_std_` : float or array [P]
        The standard deviation of the noise, in units of y, one for each column of y; without
        `variance_factor_`.
    `variance_factor_` : float or array [P]
        The factor by which predictive variances are multiplied, one for each column of y: the mean
        of squared leave-one-out errors, each divided by its variance (Cressie 1993, sec. 2.6.4;
        Bachoc 2013), but at least 1.
    `n_inducing_` : int
        The number of inducing points of the model.
    `alpha_` : float
        The power of the model.
    `result_` : :class:`gpflow_pep.FitResult` or None
        The result of training; None if nothing was trained.
    `log_marginal_likelihood_value_` : float
        The objective in nats, of the normalized y and without priors; at alpha = 0 a lower bound on
        the log evidence.
    `n_iter_` : int
        The number of iterations of training.
    `n_features_in_` : int
        The number of columns of X.
    `feature_names_in_` : array of strings
        The names of the columns, if X was a table whose columns have names.
    `alpha_selection_` : :class:`gpflow_pep.AlphaSelection`
        The comparison of powers, with ``alpha="auto"``.
    `num_inducing_selection_` : :class:`gpflow_pep.NumInducingSelection`
        The comparison of numbers of inducing points, with ``n_inducing="auto"``.

    """

    _STREAM = staticmethod(partial(StreamingSGPR, shared_noise=True))

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        alpha: float | str | None = None,
        n_inducing: int | str | None = None,
        noise_variance: float | None = None,
        normalize_y: bool = True,
        optimizer: str | None = "lbfgs",
        max_iterations: int | None = None,
        learning_rate: float = 0.01,
        train_inducing: bool | None = None,
        tolerance: float | None = None,
        n_restarts: int | None = 0,
        priors: str | None = "auto",
        n_draws: int | None = None,
        calibrate: bool | None = None,
        random_state: Any = None,
    ):
        """
        :param kernel: a GPflow kernel; a copy is trained. None: a Matern 5/2 with a lengthscale per
            column, a linear function with a variance per column
            (:class:`gpflow_pep.CenteredLinear`) and a constant. Lengthscales start at the column's
            standard deviation (1 for a constant column) times the square root of the number of
            columns: the correlation of two rows is about 1/3. The variance of the Matern kernel
            starts at the variance of y, the variances of the linear function and of the constant at
            a tenth of it.
        :param alpha: the power, in [0, 1]: 0 is the variational bound (SGPR), 1 FITC. None: 0.5 in
            `fit` and in the first batch, then 0: batches share one noise variance, which larger
            powers overestimate if there are few inducing points. "auto": chosen on the first batch
            by :func:`gpflow_pep.select_alpha`: by three-fold cross-validation (16 trainings) if the
            inducing points are trained, otherwise by leave-one-out densities (six trainings); 0.5
            if y is constant.
        :param n_inducing: the number of inducing points. They start at k-means centers of the rows,
            with columns scaled to standard deviation 1, and training moves them. If there are at
            most this many distinct rows, the rows are the points and stay fixed. None: all rows up
            to 512, then √(10⁸ / N), but at least 100; 100 from the second batch on. With 513 to 800
            rows `fit` also trains the model with all rows as points, unless `train_inducing` is
            given, or training ends without noise and alpha is at most 0.5. It keeps that model if
            its log evidence is higher by more than 0.02 nats per value of y. "auto": the number
            that :func:`gpflow_pep.select_num_inducing` selects, from 16 to 512.
        :param noise_variance: the initial noise variance of the normalized y. None: a tenth of the
            variance of y. If training ends below 1e-5, `fit` trains again with a jitter and a lower
            bound of 1e-8 instead of 1e-6, and with a squared exponential in place of the default
            Matern 5/2. It keeps the model of higher evidence.
        :param normalize_y: before training, subtract the mean of y and divide by its standard
            deviation. The prior mean of the normalized y is 0. Predictions are in the units of y.
            False: nothing is subtracted; y is divided by its root mean square if both `kernel` and
            `noise_variance` are None.
        :param optimizer: "lbfgs" or "adam" (see :func:`gpflow_pep.fit`). None: keep the initial
            parameters.
        :param max_iterations: the largest number of iterations; None: 2000 for L-BFGS, 5000 for
            Adam.
        :param learning_rate: the learning rate of Adam.
        :param train_inducing: whether inducing points are trained. None: the regressor trains them,
            in `partial_fit` only once their number has reached its limit; the classifier does not.
        :param tolerance: L-BFGS ends after 20 iterations that gained less than this together, in
            nats per row, or 5 that gained still less (see :func:`gpflow_pep.fit`). None: 2e-3 if
            `fit` trains the inducing points of at most 3,000 rows, but not with
            ``n_inducing="auto"``; else 5e-4.
        :param n_restarts: the number of further starts of L-BFGS, or None to compare no starts (see
            :func:`gpflow_pep.fit`). With 513 to 800 rows the model with all rows as points starts
            from the end of the other one only.
        :param priors: "auto": with the default kernel, kernel and noise get weak priors
            (:func:`gpflow_pep.weak_priors`); a given kernel keeps its own. "weak": parameters of
            any kernel and the noise get one if they have none. None: no prior is added, as in
            maximum likelihood.
        :param n_draws: the number of draws of the hyperparameters over which predictions are
            averaged, an even number. Draws are from Laplace's approximation of the posterior of the
            hyperparameters; `fit` draws if training has converged, and warns if it cannot. 0:
            predictions are those of `model_`, and faster for a few rows. None: 8 if there are
            priors, at most 100 rows, which leave the hyperparameters uncertain, and at most 64
            hyperparameters; else 0. `partial_fit`, and `fit` with ``optimizer=None``, do not draw:
            they need None or 0.
        :param calibrate: whether predictive variances are multiplied by `variance_factor_`,
            averages over draws included. True: `fit` warns if leave-one-out predictions are not
            finite. None: if kernel or noise have weak priors and were trained. `partial_fit` does
            not calibrate: it needs None or False.
        :param random_state: k-means seed: an integer, a ``numpy.random.RandomState``, or None
            (NumPy's global state).
        """
        self.kernel = kernel
        self.alpha = alpha
        self.n_inducing = n_inducing
        self.noise_variance = noise_variance
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.train_inducing = train_inducing
        self.tolerance = tolerance
        self.n_restarts = n_restarts
        self.priors = priors
        self.n_draws = n_draws
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "SparseGPRegressor":
        """
        Train on rows X [N, D] and y [N] or [N, P], whose columns share kernel, noise and inducing
        points.
        """
        calibration.check(self.calibrate)
        if self._checked_num_draws() and self.optimizer is None:
            raise ValueError(
                f"n_draws must be None or 0 with optimizer=None, got {self.n_draws}: draws are "
                "centered at trained hyperparameters."
            )
        with atomic([self], ()):
            X, Y = self._validated_rows(X, y, reset=True)
            self._set_normalization(Y)
            self._fit_model(X, self._normalized(Y))
            self._draw_hyperparameters(len(X))
            self._calibrate()
        return self

    def partial_fit(self, X: Any, y: Any) -> "SparseGPRegressor":
        """
        Train on another batch X [N, D] and y [N] or [N, P], by :class:`gpflow_pep.StreamingSGPR`,
        which stores the posterior of all earlier rows, but not the rows. The first call equals
        :meth:`fit`, except that the lower bound of the noise variance stays 1e-6, and predictions
        are neither averaged over draws of the hyperparameters nor calibrated. :meth:`fit` may also
        come first; the next batch sets `variance_factor_` to 1.

        The first batch sets the normalization of y; a column of y that is constant in it gets its
        scale from the first batch in which it varies. Rows of a batch are added to the inducing
        points, up to `n_inducing` points ("auto": rows at which the points do not determine f, up
        to 512 points). After that, up to a fifth of the points move to rows of the batch, and
        training moves all of them. Hyperparameters are trained on each batch, given the earlier
        batches, but not while all rows have had the same y. The noise variance is trained on all
        rows so far. A `UserWarning` says if y is more than 1,000 standard deviations of the first
        batch away from its mean, or varies so little that the smallest noise hides it.
        """
        if self._checked_num_draws():
            raise ValueError(
                f"n_draws must be None or 0 for partial_fit, got {self.n_draws}: predictions of a "
                "stream are not averaged. Use fit."
            )
        calibration.check_stream(self.calibrate)
        first = not hasattr(self, "model_")
        with atomic([self], ()):
            X, Y = self._validated_rows(X, y, reset=first)
            if first:
                self._set_normalization(Y)
            elif Y.shape[1] != len(self._y_mean):
                raise ValueError(f"y must keep {len(self._y_mean)} columns, got {Y.shape[1]}.")
            else:
                self._set_scale_of_first_spread(Y)
                self._warn_of_other_scale(Y)
            self._partial_fit_model(X, self._normalized(Y))
        return self

    @property
    def noise_std_(self) -> Any:
        """The standard deviation of the noise of `model_`, in units of y."""
        check_is_fitted(self)
        deviations = np.sqrt(self._noise_variance(self.model_)) * self._y_scale  # [P]
        return _squeezed(deviations)[()]  # a number, not an array [], of one output

    @property
    def variance_factor_(self) -> Any:
        """The factor of predictive variances, for each column of y."""
        check_is_fitted(self)
        return _squeezed(self._variance_factors)[()]

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """
        Predict new observations.

        :param X: inputs [n, D].
        :param return_std: also return standard deviations, in the shape of the mean.
        :param return_cov: also return the covariance of all n rows, [n, n] or [n, n, P].
        :return: the mean, [n] or, for several outputs, [n, P], and the requested spread.
        :raises RuntimeError: if both are requested.
        """
        validation.boolean(return_std, "return_std")
        validation.boolean(return_cov, "return_cov")
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        normalized, spread = self._normalized_predictions(X, full_cov=return_cov)
        mean = _squeezed(normalized * self._y_scale + self._y_mean)
        if return_cov:
            return mean, _squeezed(self._covariance(spread))
        if return_std:
            return mean, _squeezed(np.sqrt(spread) * self._y_scale)
        return mean

    def _normalized_predictions(self, X: Any, *, full_cov: bool) -> tuple[AnyNDArray, AnyNDArray]:
        """Return mean [n, P] and variance [n, P] or covariance [n, n, P] of the normalized y."""
        values, inputs = self._posterior_and_inputs(X)
        model = self.model_
        if self._draws is not None:
            mean, spread = averaged(model, self._draws, inputs, full_cov=full_cov)
        elif full_cov:
            posterior = model._posterior(lambda: tuple(map(tf.constant, values)))
            mean, covariance = map(np.asarray, posterior.fused_predict_f(inputs, full_cov=True))
            noise = self._noise_variance(model) * np.eye(len(inputs))
            spread = np.moveaxis(covariance, 0, -1) + noise[:, :, None]
        else:
            mean, spread = model._predict_y_by(values, inputs)
        return mean, spread * self._variance_factors

    def _covariance(self, normalized: AnyNDArray) -> AnyNDArray:
        """Return the covariance of y [n, n, P], given the covariance of the normalized y."""
        with np.errstate(over="ignore", under="ignore"):
            square = self._y_scale**2
            covariance: AnyNDArray = normalized * square
        if not np.isfinite(covariance).all() or np.any(square < np.finfo(square.dtype).tiny):
            raise ValueError(
                "return_cov must be False: squares of y, whose standard deviation is "
                f"{self._y_scale.max():.3g}, are not within floating point range. Use return_std, "
                "or another unit of y."
            )
        return covariance

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """
        Draw S = `n_samples` samples of new observations at X [n, D], jointly: [n, S], or of P
        outputs [n, P, S].
        """
        mean, covariance = self._normalized_predictions(X, full_cov=True)
        generator = check_random_state(random_state)
        outputs = zip(mean.T, np.moveaxis(covariance, -1, 0), strict=True)
        normalized = [generator.multivariate_normal(*output, n_samples) for output in outputs]
        samples = np.stack(normalized, axis=-1) * self._y_scale + self._y_mean  # [S, n, P]
        samples = np.moveaxis(samples, 0, -1)
        return samples[:, 0] if samples.shape[1] == 1 else samples

    def _draw_hyperparameters(self, num_rows: int) -> None:
        """
        Draw the hyperparameters of a trained model; keep the maximum if a matrix cannot be
        factorized.
        """
        is_converged = self.result_ is not None and self.result_.converged
        num_draws = self.n_draws
        if num_draws is None:
            num_coordinates = sum(each.numpy().size for each in hyperparameters(self.model_))
            is_cheap = num_rows <= _FEW_ROWS and num_coordinates <= _MAX_COORDINATES
            num_draws = _DRAWS if is_cheap and locations(self.model_) else 0
        if num_draws and is_converged:
            model = as_gpr(self.model_) if is_exact(self.model_) else self.model_
            with suppress(*FAILURES, np.linalg.LinAlgError):
                self._draws = laplace_draws(model, num_draws // 2)
        if self.n_draws and self._draws is None:
            warn(
                f"Predictions are not averaged over n_draws = {self.n_draws} draws: training has "
                "not converged, or a matrix of its posterior cannot be factorized."
            )

    @override
    def _trained(self, model: GPModel, options: FitOptions | None) -> Training:
        if options is not None and options.train_inducing is False and is_exact(model):
            initial = read_values(model)
            training = _trained_exactly(model, options)
            if training is not None:
                return training
            multiple_assign(model, initial)  # PEPR may raise its jitter
        return super()._trained(model, options)

    @override
    def _refined(
        self, model: GPModel, training: Training, options: FitOptions | None
    ) -> tuple[GPModel, Training]:
        options_of_exact = self._training_options(model.data[1])
        if options is not None and options.train_inducing is None and options_of_exact is not None:
            exact = self._exact_if_better(model, training, options_of_exact)
            if exact is not None:
                model, training = exact
                options = replace(options_of_exact, train_inducing=False)
        return super()._refined(model, training, options)

    def _exact_if_better(
        self, model: PEPR, training: Training, options: FitOptions
    ) -> tuple[PEPR, Training] | None:
        """
        Return the model with all rows as inducing points, trained from the end of this one, if its
        evidence is higher. None without noise, to save time: it would hardly predict better.
        """
        first = training.result
        if first is None or not first.converged:
            return None
        # With larger powers the noise of fewer points may vanish although the data have some.
        if self._is_without_noise(model) and self.alpha_ <= 0.5:
            return None
        if self.n_inducing is not None or model.num_data > MOST_ROWS:
            return None
        X, Y = (values.numpy() for values in model.data)
        exact = self._make((X, Y), X[distinct(X)], self.alpha_)
        if not is_exact(exact):
            return None
        assign_all(hyperparameters(exact), hyperparameters(model))
        second = _trained_exactly(exact, replace(options, n_restarts=None))
        if second is None or second.evidence <= training.evidence + _CLEARLY * Y.size:
            return None
        last = second.result
        if last is None or not last.converged:
            return None
        return exact, second._replace(result=joined(first, last))

    @override
    def _keep(self, model: GPModel, training: Training) -> None:
        super()._keep(model, training)
        self._variance_factors = np.ones(len(self._y_mean), self._y_mean.dtype)

    def _calibrate(self) -> None:
        """Set the factors of variances, if asked for; keep 1 if a prediction is not finite."""
        if not self._is_calibrated():
            return
        squares = np.full(len(self._y_mean), np.nan)
        with suppress(*FAILURES):
            squares = calibration.mean_squares(self.model_)
        if np.isfinite(squares).all():
            self._variance_factors = np.maximum(squares, 1.0)
        elif self.calibrate:
            warn("Predictions are not calibrated: a leave-one-out prediction is not finite.")

    def _checked_num_draws(self) -> int | None:
        if self.n_draws is None:
            return None
        number = validation.whole_number(self.n_draws, "n_draws", 0, None)
        if number % 2:
            raise ValueError(f"n_draws must be None or an even number, got {number}.")
        return number

    def _validated_rows(self, X: Any, y: Any, reset: bool) -> tuple[AnyNDArray, AnyNDArray]:
        check_numbers(y, "y")
        X, numbers = self._validated(X, reset, y=y, multi_output=True, y_numeric=True)
        Y: AnyNDArray = np.asarray(numbers, dtype=default_float())
        if found := validation.not_finite(Y[:, None] if Y.ndim == 1 else Y):
            raise ValueError(f"y must be finite, got {found}.")
        validation.check_integers(y, Y, "y")
        return X, Y[:, None] if Y.ndim == 1 else Y

    def _set_normalization(self, Y: AnyNDArray) -> None:
        validation.boolean(self.normalize_y, "normalize_y")
        with np.errstate(over="ignore", invalid="ignore"):
            # Equal values are their mean without rounding.
            self._first_mean = np.where(np.ptp(Y, axis=0) > 0.0, Y.mean(axis=0), Y[0])
            self._first_spread = spreads(Y)
            self._y_scale = self._scales(Y)
        self._y_mean = self._first_mean if self.normalize_y else np.zeros(Y.shape[1])
        if not (np.isfinite([self._y_mean, self._y_scale]).all() and self._y_scale.all()):
            raise ValueError(
                "y must have mean and standard deviation within floating point range, got values "
                f"up to {np.abs(Y).max():g} in absolute value: try another unit."
            )

    def _set_scale_of_first_spread(self, Y: AnyNDArray) -> None:
        """Set the scale of columns of Y [N, P] that vary for the first time: earlier ones are 0."""
        varies_now = (self._only_y == 0.0) & np.any(self._normalized(Y) != 0.0, axis=0)
        rows = np.concatenate([self._first_mean[None], Y])
        self._y_scale = np.where(varies_now, self._scales(rows), self._y_scale)
        self._first_spread = np.where(varies_now, spreads(rows), self._first_spread)

    def _scales(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the numbers [P] by which the columns of Y [N, P] are divided."""
        if self.normalize_y:
            return spreads(Y)
        if self.kernel is None and self.noise_variance is None:
            return spreads(np.concatenate([Y, -Y]))
        return np.ones(Y.shape[1])

    def _warn_of_other_scale(self, Y: AnyNDArray) -> None:
        """
        Warn if y is far from the first batch, or hardly varies, in units of its standard deviation
        (or 1).
        """
        units = self._first_spread
        remedy = "call fit on rows that span the new range, then continue with partial_fit."
        with np.errstate(over="ignore"):
            distance = np.max(np.abs(Y / units - self._first_mean / units))
            deviations = np.std(Y / units, axis=0)
        if distance > _JUMP:
            warn(
                "y must be near the first batch, which set normalization and prior, got y up to "
                f"{distance:.3g} standard deviations away from its mean, more than {_JUMP:g}. "
                f"Predictions may be far off: {remedy}"
            )
        is_hidden = (np.ptp(Y, axis=0) > 0.0) & (deviations < _HIDDEN)
        if len(Y) >= _FEWEST_ROWS and np.any(is_hidden):
            warn(
                "y must vary as in the first batch, which set normalization and prior, got a "
                f"standard deviation {1.0 / np.min(deviations[is_hidden]):.3g} times smaller. "
                f"The smallest possible noise hides such differences: {remedy}"
            )

    def _normalized(self, Y: AnyNDArray) -> AnyNDArray:
        return ((Y - self._y_mean) / self._y_scale).astype(Y.dtype, copy=False)

    @override
    def _initial_variance(self, Y: AnyNDArray) -> float:
        return float(Y.var(axis=0).mean()) or 1.0

    @override
    def _make_without_priors(self, data: RegressionData, Z: AnyNDArray, alpha: Any) -> GPModel:
        if np.ndim(alpha) or 0.0 < validation.power(alpha) < _SMALLEST_POWER:
            found = f"an array of shape {np.shape(alpha)}" if np.ndim(alpha) else f"{alpha:g}"
            raise ValueError(
                "alpha must be the power, one number in [0, 1], not a noise variance as in "
                f"scikit-learn, got {found}: use noise_variance, or a PEPR with "
                "Gaussian(scale=...) for the noise of each row."
            )
        noise, kernel = self._initial_noise(data[1]), self._initial_kernel(*data)
        return PEPR(data, kernel, Z, alpha=alpha, noise_variance=noise, max_jitter=max_jitter())

    def _initial_noise(self, Y: AnyNDArray) -> float:
        if self.noise_variance is not None:
            return self.noise_variance
        # At least 10 times GPflow's bound: training can lower it.
        return max(0.1 * self._initial_variance(Y), 10.0 * default_likelihood_positive_minimum())

    @override
    def _start_anew(self, model: GPModel, X: AnyNDArray, Y: AnyNDArray) -> None:
        super()._start_anew(model, X, Y)
        model.likelihood.variance.assign(self._initial_noise(Y))

    @override
    def _noise_variance(self, model: GPModel) -> float:
        return float(model.likelihood.variance.numpy())

    @override
    def _finer(self, model: GPModel) -> GPModel | None:
        if not self._is_without_noise(model):
            return None
        kernel = deepcopy(model.kernel)
        if self.kernel is None:  # functions without noise are mostly smooth
            matern, *trend = kernel.kernels
            smooth = SquaredExponential(matern.variance.numpy(), matern.lengthscales.numpy())
            kernel = Sum([smooth, *trend])
        finer = PEPR(
            model.data,
            kernel,
            model.inducing_variable.Z,
            alpha=model.alpha,
            likelihood=Gaussian(
                self._noise_variance(model), variance_lower_bound=_FINER_BOUNDS * _GPFLOW_BOUND
            ),
            max_jitter=max_jitter(),
        )
        finer.jitter = _FINER_BOUNDS * default_jitter()
        if self._has_weak_priors() and model.num_data <= _FEW_ROWS:
            weak_priors(finer)
        else:
            remove_weak_priors(finer)  # many rows without noise determine the kernel
        return finer

    def _is_without_noise(self, model: GPModel) -> bool:
        """Return whether training ended without noise, at bounds that can be made smaller."""
        is_default = default_likelihood_positive_minimum() == _GPFLOW_BOUND
        is_least = self._noise_variance(model) <= 10.0 * _GPFLOW_BOUND
        return is_least and is_default and default_float() == np.float64

    @override
    def _stream_likelihood(self, model: GPModel) -> Likelihood:
        smallest = 2.0 * default_likelihood_positive_minimum()  # at the bound a noise cannot move
        return Gaussian(max(self._noise_variance(model), smallest))


def _trained_exactly(model: PEPR, options: FitOptions) -> Training | None:
    """Train an exact model as a GPR; None if that fails."""
    with suppress(*FAILURES):
        result = trained_as_gpr(model, options)
        if result.status != FAILED:
            with compiled_model(model, free_points=True) as worker:
                return ended(worker, result, options)
    return None


def _squeezed(values: AnyNDArray) -> AnyNDArray:
    """Leave out the last axis if there is one output."""
    return values[..., 0] if values.shape[-1] == 1 else values
