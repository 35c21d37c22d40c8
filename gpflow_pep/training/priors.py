"""Weak priors of kernel and noise. They shrink the lengthscales towards a common scale."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, PriorOn, RegressionData
from gpflow.kernels import Combination, Constant, Kernel, Linear, Product, Stationary, White
from gpflow.likelihoods import Gaussian, Likelihood, Softmax, StudentT, SwitchedLikelihood
from gpflow.models import GPModel

from .. import validation
from ..kernels import CenteredLinear
from ..maths.log_prior import LogPrior
from .coordinates import inputs_and_kernels, spreads

NOISE = -2.0
"""Mean of log(noise variance / variance of f)."""
COMMON = 1.5
"""Standard deviation of the mean of the logarithms of the lengthscales."""
SINGLE = 0.4
"""Scale of the deviations of single logarithms from this mean."""
NOISE_DF = 10.0
"""Degrees of freedom of the prior of the noise variance: simulators have hardly any noise."""


def weak_priors(
    model: GPModel, data: RegressionData | None = None, *, for_sampling: bool = False
) -> None:
    """
    Give the trainable parameters of kernel and noise weak priors, relative to the spreads of the
    data.

    Maximum likelihood with a lengthscale for each column overfits small and wide tables:
    lengthscales of irrelevant columns become short, and the noise vanishes. Weak priors prevent
    this; many rows outweigh them.

    ===============================================  ==================================
    lengthscale l of stationary kernels              log(l / (s √D)) ~ N(0, 1.5²)
    variance of stationary kernels and `Constant`    log(variance / v) ~ N(0, 1)
    variance of `Linear`                             log(variance D s² / v) ~ N(0, 2²)
    variance of `CenteredLinear`, over its scale²    log(variance D s² / v) ~ N(0, 2²)
    variance of `White`                              log(variance / v) ~ N(-2, 1)
    noise variance                                   log(variance / v) ~ t₁₀(-2, 1)
    ===============================================  ==================================

    Here s is the standard deviation of a column and D the number of columns of the kernel. v is the
    variance of Y if f is in the unit of Y (likelihoods `Gaussian` and `StudentT`), e^5 = 148 for
    `Softmax`, which adds noise of its own, else e = 2.72. With a kernel for each output, v is the
    variance of its column, else the mean over the columns that vary. The factors of a product of k
    kernels have v^(1/k) for v. If a parameter has an entry for each column (ARD), the table
    describes the mean of the logarithms, and N(0, 0.4²) the deviation of each one from this mean.

    t₁₀ is the density of Student's t with 10 degrees of freedom: its heavy tails leave room for
    data without noise. All are densities of logarithms: maximum a posteriori (MAP) estimates do not
    depend on units or transforms. Other parameters get no prior, and a parameter that has another
    prior keeps it. Call the function before training.

    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::5])
    >>> weak_priors(model)
    >>> bool(model.log_prior_density() < 0.0)
    True

    :param model: a model of this library or of GPflow.
    :param data: X [N, D] and Y [N, P], for a model that does not store its data.
    :param for_sampling: True for samplers (`gpflow.optimizers.SamplingHelper`), which need
        densities of the parameters; False for `fit` and optimizers.
    :raises ValueError: if the model stores no data and none are given, or if it stores data and
        others are given.
    """
    validation.boolean(for_sampling, "for_sampling")
    validation.gpflow_model(model)
    give_weak_priors(model, *_rows(model, data), for_sampling=for_sampling)


def give_weak_priors(
    model: GPModel, X: AnyNDArray, Y: AnyNDArray, *, for_sampling: bool = False
) -> None:
    """Give the model weak priors for data X [N, D] and Y [N, P], or move earlier ones."""
    for typical in _typical_logarithms(model, X, Y):
        parameter = typical.parameter
        if isinstance(parameter, Parameter) and parameter.trainable:
            _give(parameter, typical, for_sampling)


def remove_weak_priors(model: GPModel) -> None:
    """Remove the weak priors of the model; leave others."""
    for parameter in model.parameters:
        if isinstance(parameter.prior, LogPrior):
            parameter.prior = None


def locations(model: GPModel) -> list[tf.Variable]:
    """Return the variables of the model's weak priors."""
    priors = [parameter.prior for parameter in model.parameters]
    return [prior.location for prior in priors if isinstance(prior, LogPrior)]


class _Typical(NamedTuple):
    """The typical logarithm of a parameter, [D] or [], and how much it varies between data sets."""

    parameter: Any
    location: AnyNDArray
    common: float = 1.0
    df: float = math.inf


def _rows(model: GPModel, data: RegressionData | None) -> tuple[AnyNDArray, AnyNDArray]:
    """Return X [N, D] and Y [N, P], given or held by the model."""
    held = getattr(model, "data", None)
    if isinstance(held, tuple):
        if data is not None:
            raise ValueError(f"data must be None: {type(model).__name__} stores its data.")
        return np.asarray(held[0]), np.asarray(held[1])
    if data is None:
        raise ValueError(
            f"data must be given: {type(model).__name__} does not store X and Y as arrays."
        )
    return validation.regression_data(data)


def _typical_logarithms(model: GPModel, X: AnyNDArray, Y: AnyNDArray) -> Iterator[_Typical]:
    """Yield the parameters of kernels and likelihoods that may have a weak prior."""
    variances = _log_variances(model.likelihood, Y)  # log v, [P]
    mean_variance = np.logaddexp.reduce(variances) - np.log(len(variances))
    kernels = [kernel for _, kernel in inputs_and_kernels(model)]
    has_own_kernels = len(kernels) == len(variances)
    for number, whole in enumerate(kernels):
        log_v = variances[number] if has_own_kernels else mean_variance
        for kernel, share in _parts(whole):
            columns = X[:, kernel.active_dims]
            log_s = np.log(spreads(columns))  # [D]
            log_D = np.log(len(log_s))
            if isinstance(kernel, Stationary):
                yield _Typical(kernel.lengthscales, log_s + 0.5 * log_D, COMMON)
            if isinstance(kernel, Stationary | Constant):
                yield _Typical(kernel.variance, share * log_v)
            elif type(kernel) in (Linear, CenteredLinear):
                log_unit = np.log(getattr(kernel, "scale", 1.0))
                location = share * log_v - log_D - 2.0 * (log_s - log_unit)
                yield _Typical(kernel.variance, location, 2.0)
            elif isinstance(kernel, White):
                yield _Typical(kernel.variance, share * (log_v + NOISE))
    for likelihood in getattr(model.likelihood, "likelihoods", [model.likelihood]):
        if isinstance(likelihood, Gaussian):
            yield _Typical(likelihood.variance, mean_variance + NOISE, df=NOISE_DF)
        if isinstance(likelihood, Gaussian | StudentT):
            location = 0.5 * (mean_variance + NOISE)
            yield _Typical(likelihood.scale, location, 0.5, NOISE_DF)


def _log_variances(likelihood: Likelihood, Y: AnyNDArray) -> AnyNDArray:
    """Return log v of each output, [P]; a typical value, [1], if f is not in the unit of Y."""
    parts = getattr(likelihood, "likelihoods", [likelihood])
    if not all(isinstance(each, Gaussian | StudentT) for each in parts):
        return np.full(1, 5.0 if isinstance(likelihood, Softmax) else 1.0)
    if isinstance(likelihood, SwitchedLikelihood):
        Y = Y[:, :-1]  # the last column is the index of the likelihood
    log_variances = 2.0 * np.log(spreads(Y))
    varies = np.ptp(Y, axis=0) > 0.0
    if varies.any():  # the spread of a constant column is unknown
        log_variances[~varies] = np.mean(log_variances[varies])
    return log_variances


def _parts(kernel: Kernel, share: float = 1.0) -> Iterator[tuple[Kernel, float]]:
    """Yield the kernels of sums and products, each with its share of log v; factors divide it."""
    if not isinstance(kernel, Combination):
        yield kernel, share
        return
    if isinstance(kernel, Product):
        share /= len(kernel.kernels)
    for part in kernel.kernels:
        yield from _parts(part, share)


def _give(parameter: Parameter, typical: _Typical, for_sampling: bool) -> None:
    """Give a parameter the prior, or move the prior of an earlier call; keep any other prior."""
    prior = parameter.prior
    shape = parameter.shape.as_list()
    location = typical.location
    if not shape:  # one entry for all columns
        location = np.mean(location)
    location = np.broadcast_to(location, shape)
    if isinstance(prior, LogPrior) and prior.for_sampling == for_sampling:
        prior.location.assign(location)
    elif prior is None or isinstance(prior, LogPrior):
        variable = tf.Variable(location, trainable=False, dtype=parameter.dtype)
        parameter.prior = LogPrior(variable, typical.common, SINGLE, typical.df, for_sampling)
        parameter.prior_on = PriorOn.CONSTRAINED
