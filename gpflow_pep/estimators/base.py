"""Base class of the estimators: kernel, inducing points, training, streams and the posterior."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.kernels import Constant, Kernel, Matern52, Sum
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.utilities import multiple_assign, parameter_dict
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from .. import validation
from ..engine import checked_indices, index_columns
from ..inducing import k_means, uniform
from ..inducing.greedy_variance import greedy_choice
from ..inducing.rows import distinct
from ..kernels import CenteredLinear
from ..models import PEP
from ..models.kernels_and_inducing_variables import free_number_of_points
from ..models.stream import Stream
from ..runtime import atomic, silent, warn
from ..selection.alpha import AlphaSelection, select_alpha
from ..selection.num_inducing import NumInducingSelection, select_num_inducing
from ..selection.reuse import compiled_model
from ..training import FitResult, check_optimizer, weak_priors
from ..training.coordinates import spreads
from ..training.objectives import FAILURES
from ..training.options import FitOptions
from ..training.priors import give_weak_priors, locations, remove_weak_priors
from ..training.result import FAILED, LIMIT
from .columns import check_numbers, check_range
from .descriptions import with_descriptions
from .laplace import Draws
from .training import PosteriorValues, Training, joined, trained

_WORK = 1e8  # N M² of the default number of points: a fit of a few thousand rows takes seconds
_ALL_POINTS = 512  # largest number of rows that are all inducing points by default
MOST_FIRST_ROWS = 10_000
_MOST_POINTS = 512  # with n_inducing="auto": limit of a stream, as in `select_num_inducing`
# In units of the noise variance. A stream with n_inducing="auto" adds rows of larger conditional
# variance.
_NOTICED = 0.1
# With 5e-4 fits take twice the time. Held-out log densities of 15 splits of 13 tables, of 562 to
# 3,000 rows, differ by at most .006 nats, except on laser (2e-3 is better by up to .08), bike
# (better by .015), airfoil (.018) and pol (worse by .014). With 20,000 rows it is worse by .02 and
# .03.
_TOLERANCE_OF_POINTS = 2e-3  # if inducing points of this number of rows are trained
_ROWS_OF_POINTS = 3_000
# A finer model gains hundreds of nats: the last few hardly change predictions.
_FINER_TOLERANCE = 10.0  # in tolerances of the first model
_PREFIX = "kernel__"
_TREND = 0.1  # initial variance of slopes and constant, as a share of the variance of f
_OF_SKLEARN = {  # counterparts of scikit-learn's kernels
    "RBF": "gpflow.kernels.SquaredExponential",
    "Matern": "gpflow.kernels.Matern12, Matern32 or Matern52",
    "RationalQuadratic": "gpflow.kernels.RationalQuadratic",
    "ExpSineSquared": "gpflow.kernels.Periodic",
    "DotProduct": "gpflow.kernels.Linear",
    "ConstantKernel": "the variance of a kernel, or gpflow.kernels.Constant",
    "WhiteKernel": "noise_variance, which is trained",
    "Sum": "a sum of GPflow's kernels, without WhiteKernel",
    "Product": "a product of GPflow's kernels; the variance of a kernel replaces ConstantKernel",
}


class SparseGPEstimator(BaseEstimator):
    """
    Base class of the estimators. Subclasses construct models and convert y to the model's Y and
    back.
    """

    kernel: Kernel | None
    alpha: float | str | None
    n_inducing: int | str | None
    optimizer: str | None
    max_iterations: int | None
    learning_rate: float
    train_inducing: bool | None
    tolerance: float | None
    n_restarts: int | None
    random_state: Any
    priors: str | None
    calibrate: bool | None

    model_: GPModel
    result_: FitResult | None
    alpha_: float
    alpha_selection_: AlphaSelection
    num_inducing_selection_: NumInducingSelection
    _posterior_values: PosteriorValues
    _draws: Draws | None  # of the hyperparameters: predictions are averaged over them
    _only_x: AnyNDArray  # the value of each column of X in all rows so far, [D]; NaN once it varies
    _only_y: AnyNDArray  # the same for Y, [P]
    _first_parts: dict[str, object]  # kernel and likelihood at the first batch, by name
    _STREAM: Callable[..., Any]  # constructs the model from the second batch on

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """
        Return the parameters, with ``deep`` also the kernel's, such as "kernel__lengthscales".
        """
        of_kernel = _of_kernel(self.kernel) if deep and isinstance(self.kernel, Kernel) else {}
        return super().get_params(deep=deep) | {
            name: parameter.numpy() for name, parameter in of_kernel.items()
        }

    def set_params(self, **params: Any) -> Self:
        """
        Set parameters by name, all or none. Parameters of the kernel are set on a copy of it.
        """
        values = {name: params.pop(name) for name in list(params) if name.startswith(_PREFIX)}
        with atomic([self], ()):
            super().set_params(**params)
            self.kernel = deepcopy(self.kernel) if values else self.kernel
            parameters = _of_kernel(self.kernel) if isinstance(self.kernel, Kernel) else {}
            if unknown := sorted(values.keys() - parameters.keys()):
                known = ", ".join(parameters) or f"none, because kernel is {self.kernel!r}"
                raise ValueError(f"{', '.join(unknown)}: parameters of the kernel are {known}.")
            for name, value in values.items():
                _assign(name, parameters[name], value)
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return class and changed parameters, with the values of kernel and likelihood."""
        return str(super(SparseGPEstimator, with_descriptions(self)).__repr__(N_CHAR_MAX))

    def _get_params_html(self, *args: Any, **options: Any) -> Any:
        """Return the table of parameters that notebooks show (scikit-learn 1.7 or later)."""
        shown = with_descriptions(self)
        return super(SparseGPEstimator, shown)._get_params_html(*args, **options)

    def log_marginal_likelihood(self) -> float:
        """
        Return `log_marginal_likelihood_value_`. Other hyperparameters need a model of their own.
        """
        check_is_fitted(self)
        return self.log_marginal_likelihood_value_

    @property
    def kernel_(self) -> Kernel:
        """The trained kernel of `model_`."""
        check_is_fitted(self)
        return self.model_.kernel

    @property
    def n_inducing_(self) -> int:
        """The number of inducing points."""
        check_is_fitted(self)
        return int(self.model_.inducing_variable.num_inducing)

    def _initial_variance(self, Y: AnyNDArray) -> float:
        """Return the variance of f at the start of training, by default 1."""
        return 1.0

    @abstractmethod
    def _make_without_priors(self, data: RegressionData, Z: AnyNDArray, alpha: Any) -> GPModel:
        """
        Construct a model of all data X [N, D] and Y [N, P] with a new kernel, without weak priors.
        """

    def _make(self, data: RegressionData, Z: AnyNDArray, alpha: Any) -> GPModel:
        """
        Construct a model of all data X [N, D] and Y [N, P] with a new kernel and, if asked for,
        weak priors.
        """
        model = self._make_without_priors(data, Z, alpha)
        if self._has_weak_priors():
            weak_priors(model)
        return model

    def _has_weak_priors(self) -> bool:
        if self.priors not in ("auto", "weak", None):
            raise ValueError(f'priors must be "auto", "weak" or None, got {self.priors!r}.')
        return self.priors == "weak" or (self.priors == "auto" and self.kernel is None)

    def _is_calibrated(self) -> bool:
        """Return whether to calibrate; by default if parameters have weak priors and were trained."""
        if self.calibrate is None:
            return self.result_ is not None and bool(locations(self.model_))
        return self.calibrate

    def _finer(self, model: GPModel) -> GPModel | None:
        """
        Return a copy of a trained model with smaller bounds of noise and jitter; None if the data
        have noise.
        """
        return None

    def _refuse_new_parts(self) -> None:
        """Raise a ValueError if `model_` has a trained copy of another kernel or likelihood."""
        for name, part in self._first_parts.items():
            if getattr(self, name) is not part:
                raise ValueError(
                    f"{name} must stay the object of the first batch: the model has a trained copy "
                    "of it. fit trains a new model."
                )

    def _stream_likelihood(self, model: GPModel) -> Likelihood:
        """Return the likelihood of the stream that continues this model."""
        return deepcopy(model.likelihood)

    def _fit_model(
        self, X: AnyNDArray, Y: AnyNDArray, *, train: bool = True, refine: bool = True
    ) -> None:
        """
        Construct the model of X [N, D] and Y [N, P], and train it if `train`.

        :param refine: if the data have no noise, train again with smaller bounds of noise and
            jitter.
        """
        options = self._training_options(Y)
        if not train:
            options = None
        self._only_x = _only_values(X, X[0])
        self._only_y = _only_values(Y, Y[0])
        parts = {"kernel", "likelihood"} & vars(self).keys()
        self._first_parts = {name: getattr(self, name) for name in parts}
        for name in ("alpha_selection_", "num_inducing_selection_"):
            self.__dict__.pop(name, None)
        self.alpha_ = 0.5
        if self.alpha is not None and not isinstance(self.alpha, str):
            self.alpha_ = self.alpha
        if isinstance(self.n_inducing, str):
            make = partial(self._make, alpha=self.alpha_)
            found = select_num_inducing(make, (X, Y), train=lambda model: trained(model, options))
            self.num_inducing_selection_ = found
            model = found.model
            training = found.trainings[found.best]
        else:
            Z = self._initial_points(X)
            trains_points = False
            if options is not None:
                if self.train_inducing is None and len(Z) == len(distinct(X)):
                    options = replace(options, train_inducing=False)  # the model is exact
                trained_points = (None, True) if is_regressor(self) else (True,)
                trains_points = options.train_inducing in trained_points
                if trains_points and self.tolerance is None and len(X) <= _ROWS_OF_POINTS:
                    options = replace(options, tolerance=_TOLERANCE_OF_POINTS)
            if isinstance(self.alpha, str) and train and len(X) > 2:
                self.alpha_selection_ = select_alpha(
                    lambda data, alpha: self._make(data, Z, alpha),
                    (X, Y),
                    folds=3 if trains_points else None,  # leave-one-out favors alpha = 1
                    train=lambda model: trained(model, options)[0],
                )
                self.alpha_ = self.alpha_selection_.alpha
            model = self._make((X, Y), Z, self.alpha_)
            training = self._trained(model, options)
        if refine:
            model, training = self._refined(model, training, options)
        self._keep(model, training)

    def _trained(self, model: GPModel, options: FitOptions | None) -> Training:
        """Train the model on all rows."""
        with compiled_model(model, free_points=True) as worker:
            return trained(worker, options)

    def _refined(
        self, model: GPModel, training: Training, options: FitOptions | None
    ) -> tuple[GPModel, Training]:
        """
        Train the finer model from the end of this one. Return it if both trainings converge and its
        evidence is not lower; else this one.
        """
        first = training.result
        if options is None or first is None or not first.converged:
            return model, training
        finer = self._finer(model)
        if finer is None:
            return model, training
        options = replace(options, tolerance=_FINER_TOLERANCE * options.tolerance)
        with suppress(*FAILURES), silent():  # a finer model that fails is discarded
            with compiled_model(finer, free_points=True) as worker:
                second = trained(worker, options)
            last = second.result
            if last is not None and last.converged and second.evidence >= training.evidence:
                return finer, second._replace(result=joined(first, last))
        return model, training

    def _partial_fit_model(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """
        Train on the first batch, or absorb the posterior and train on the next batch; a failure
        changes nothing.
        """
        if not hasattr(self, "model_"):
            # While Y is constant, training would drive the noise or the correlation of f to its
            # limit. A stream keeps GPflow's bound of the noise: later batches may contradict a
            # first one without noise.
            self._fit_model(X, Y, train=bool(np.ptp(Y, axis=0).any()), refine=False)
            return
        self._refuse_new_parts()
        model = self.model_
        options = self._training_options(Y)
        earlier_x = self._only_x
        was_trained = np.isnan(self._only_y).any()
        self._only_x = _only_values(X, self._only_x)
        self._only_y = _only_values(Y, self._only_y)
        is_trained = np.isnan(self._only_y).any()
        new_columns = np.isnan(self._only_x) & ~np.isnan(earlier_x)
        if not is_trained:
            options = None
        if self.alpha is None:
            self.alpha_ = 0.0
        elif not isinstance(self.alpha, str):  # it may have changed since the last batch
            self.alpha_ = float(validation.power(self.alpha))
        if not isinstance(model, Stream):
            model = self._STREAM(
                model.data,
                kernel=deepcopy(model.kernel),
                likelihood=self._stream_likelihood(model),
                inducing_variable=model.inducing_variable.Z,
                alpha=self.alpha_,
                max_jitter=max_jitter(),
            )
        free_number_of_points(model.inducing_variable)
        starts_anew = is_trained and not was_trained
        starts_columns = self.kernel is None and new_columns.any()
        has_priors = self._has_weak_priors()
        known = (X, Y)
        if starts_anew or starts_columns or has_priors:  # else a prediction that nobody needs
            known = self._known_rows(model, X, Y)
        priors_undone = atomic(model.parameters, locations(model))
        with priors_undone, model._all_or_nothing():
            model.alpha = self.alpha_
            if starts_anew:
                self._start_anew(model, *known)
            elif starts_columns:
                self._start_columns(model, *known, new_columns)
            Z, is_limited = self._next_points(model, X)
            if Z is None:  # most points stay where earlier batches put them
                model.update((X, Y), fraction_to_move=0.2)
            else:
                model.update((X, Y), Z)
            if options is not None and options.train_inducing is None and not is_limited:
                options = replace(options, train_inducing=False)
            if has_priors:  # anew: a first batch of a single row has no spread
                give_weak_priors(model, *known)
            else:
                remove_weak_priors(model)
            self._keep(model, trained(model, options))

    def _start_anew(self, model: GPModel, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Assign initial values for known rows: earlier batches of equal y have another scale."""
        multiple_assign(model.kernel, parameter_dict(self._initial_kernel(X, Y)))

    def _start_columns(
        self, model: GPModel, X: AnyNDArray, Y: AnyNDArray, columns: AnyNDArray
    ) -> None:
        """Assign the initial kernel parameters of columns [D] that vary for the first time."""
        initial = parameter_dict(self._initial_kernel(X, Y))
        for path, parameter in parameter_dict(model.kernel).items():
            if parameter.shape.rank == 1:
                parameter.assign(np.where(columns, initial[path], parameter))

    def _known_rows(
        self, model: GPModel, X: AnyNDArray, Y: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Return the batch, and the inducing points for earlier rows, which a stream does not store.
        """
        Z = model.inducing_variable.Z.numpy()
        if is_regressor(self):  # priors of a classifier do not depend on y
            mean, _ = model.predict_f(Z)
            Y = np.concatenate([Y, mean])
        return np.concatenate([X, Z]), Y

    def _next_points(self, model: GPModel, X: AnyNDArray) -> tuple[AnyNDArray | None, bool]:
        """
        Return the inducing points with rows of the batch, and whether their number is at its limit.

        The points are None if no row is added. Training moves the points at the limit only: before,
        it would move them away from earlier rows.
        """
        Z = model.inducing_variable.Z.numpy()
        _check_rounding(model.kernel, X)
        selects = isinstance(self.n_inducing, str)
        limit = max(len(Z), _MOST_POINTS if selects else self._wanted_points())
        new = len(distinct(np.concatenate([Z, X]))) - len(distinct(Z))
        total = min(limit, len(Z) + new)
        if total == len(Z):
            return None, new > 0
        chosen, variances = greedy_choice(model.kernel, X, total, given=Z)
        if selects:  # only rows at which the points before leave f open
            matter = variances[len(Z) :] > _NOTICED * self._noise_variance(model)
            total = len(Z) + int(np.sum(matter))
        return chosen[:total], total == limit

    def _noise_variance(self, model: GPModel) -> float:
        """Return the noise variance in units of f², by default 1, as for labels."""
        return 1.0

    def _keep(self, model: GPModel, training: Training) -> None:
        """Set the fitted attributes; warn if training failed or reached its limit of iterations."""
        result = training.result
        self.model_ = model
        self.result_ = result
        self._posterior_values = training.values
        self._draws = None
        self.log_marginal_likelihood_value_ = training.evidence
        self.n_iter_ = 0 if result is None else result.iterations
        if result is not None and result.status == LIMIT and self.optimizer == "lbfgs":
            reached = f"{result.iterations} iterations, the limit"
            warn(
                f"L-BFGS stopped after {reached}: try a larger max_iterations.", ConvergenceWarning
            )
        if result is not None and result.status == FAILED:
            warn(f"Training failed: {result.reason}", ConvergenceWarning)
        # `fit` would have warned.
        if result is None and isinstance(model, PEP) and not model.sites_status.converged:
            message = (
                f"The sites have not converged: {model.sites_status}. Try a smaller alpha or "
                "another kernel."
            )
            warn(message, ConvergenceWarning)

    def _validated(self, X: Any, reset: bool, **options: Any) -> Any:
        """
        Check X, and y if given, by scikit-learn's `validate_data` with these options. Errors name
        the column.
        """
        check_numbers(X, "X")
        checked = validate_data(self, X, dtype=default_float(), reset=reset, **options)
        numbers = checked
        if isinstance(checked, tuple):
            numbers, _ = checked
            check_range(numbers)
        validation.check_integers(X, numbers, "X")
        return checked

    def _posterior_and_inputs(self, X: Any) -> tuple[PosteriorValues, AnyNDArray]:
        """Check the inputs X [n, D]; return the posterior at the end of the fit, and the inputs."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        inputs = checked_indices(self.model_.kernel, X, "X")
        return self._posterior_values, inputs

    def _initial_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> Kernel:
        if self.kernel is None:
            return self._default_kernel(X, Y)
        if not isinstance(self.kernel, Kernel):
            name = type(self.kernel).__name__
            hint = f": use {_OF_SKLEARN[name]}" if name in _OF_SKLEARN else ""
            raise ValueError(
                "kernel must be a gpflow.kernels.Kernel or None, got "
                f"{validation.kind(self.kernel)}{hint}."
            )
        return deepcopy(self.kernel)

    def _default_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> Kernel:
        """Return a Matern 5/2 plus a linear trend, for rows X [N, D] and Y [N, P]."""
        scales = spreads(X) * np.sqrt(X.shape[1])  # units in which two rows are about √2 apart
        center = X[0] + scales * np.ascontiguousarray((X - X[0]) / scales).mean(axis=0)
        variance = self._initial_variance(Y)
        trend = _TREND * variance
        slopes = CenteredLinear(center, np.full(len(scales), trend), scale=scales)
        return Sum([Matern52(variance, scales), slopes, Constant(trend)])

    def _initial_points(self, X: AnyNDArray) -> AnyNDArray:
        """
        Return k-means centers of the scaled columns, or all distinct rows if there are at most
        `n_inducing`.
        """
        wanted, rows, scales = self._wanted_points(len(X)), distinct(X), spreads(X)
        if wanted >= len(rows):
            return X[rows].copy()
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if self.kernel is not None and index_columns(self.kernel):
            return uniform(X, wanted, seed=seed)  # the mean of two indices is none
        return k_means(X / scales, wanted, seed=seed) * scales

    def _wanted_points(self, num_rows: int | None = None) -> int:
        """
        Return `n_inducing`; for None, all of few rows, then a number with which O(N M²) stays
        moderate, at least 100.
        """
        if self.n_inducing is None:
            if num_rows is None:
                return 100
            if num_rows <= _ALL_POINTS:
                return num_rows
            return max(100, int(np.sqrt(_WORK / num_rows)))
        return validation.positive_integer(self.n_inducing, "n_inducing")

    def _first_rows(self, Y: AnyNDArray) -> int:
        """Return the argument of `fit`: enough rows to find the hyperparameters."""
        return MOST_FIRST_ROWS

    def _training_options(self, Y: AnyNDArray) -> FitOptions | None:
        """Return the options of `fit`; None if `optimizer` is None."""
        if isinstance(self.n_inducing, str) and self.n_inducing != "auto":
            raise ValueError(
                'n_inducing must be a whole number of at least 1, or "auto", got '
                f"{self.n_inducing!r}."
            )
        if isinstance(self.alpha, str) and self.alpha != "auto":
            raise ValueError(f'alpha must be a number in [0, 1] or "auto", got {self.alpha!r}.')
        if isinstance(self.alpha, str) and isinstance(self.n_inducing, str):
            raise ValueError(
                f'n_inducing must be a number if alpha is "auto", got {self.n_inducing!r}.'
            )
        if self.optimizer is None:
            return None
        check_optimizer(self.optimizer)
        options = FitOptions(
            optimizer=self.optimizer,
            max_iterations=self.max_iterations,
            learning_rate=self.learning_rate,
            train_inducing=self.train_inducing,
            n_restarts=self.n_restarts,
        )
        if self.tolerance is not None:
            options = replace(options, tolerance=self.tolerance)
        if self.optimizer == "lbfgs":
            options = replace(options, first_rows=self._first_rows(Y))
        return options


def _of_kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        f"{_PREFIX}{path.lstrip('.')}": parameter
        for path, parameter in parameter_dict(kernel).items()
    }


def _assign(name: str, parameter: Parameter, value: Any) -> None:
    """
    Assign a value to a parameter of a kernel: an array of its shape, or one number for all entries.
    """
    numbers, shape = validation.inputs(value, name), parameter.shape.as_list()
    try:
        parameter.assign(np.broadcast_to(numbers, shape))
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"{name} must be one number or an array of shape {shape}, in the range of its "
            f"transform (mostly: positive), got {value!r}."
        ) from error


def _only_values(values: AnyNDArray, earlier: AnyNDArray) -> AnyNDArray:
    """Return the earlier value of each column of values [n, D], NaN where one differs, [D]."""
    return np.where(np.all(values == earlier, axis=0), earlier, np.nan)


def _check_rounding(kernel: Kernel, X: AnyNDArray) -> None:
    """
    Raise a ValueError if f has so large a variance at X [N, D] that rounding exceeds the largest
    jitter.
    """
    variances = kernel(X, full_cov=False).numpy()
    limit = max_jitter() / float(np.finfo(X.dtype).eps)
    if not np.all(variances <= limit):
        row = int(np.argmax(~(variances <= limit)))
        raise ValueError(
            f"X must be nearer to the earlier batches: in row {row} of this batch f has the prior "
            f"variance {variances[row]:.3g}, above {limit:.1g}, and rounding would exceed the "
            "jitter. Call fit on rows that span the new range, then continue with partial_fit."
        )


def max_jitter() -> float:
    """
    Return the largest jitter of Kuu, which is nearly singular if rows are duplicates or points move
    together.
    """
    # The default jitter may be larger in single precision.
    return max(1e-3, 10.0 * default_jitter())
