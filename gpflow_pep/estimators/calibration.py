r"""
Calibration of predictions by leave-one-out predictions at the trained hyperparameters.

Variances of a regression are multiplied by the mean square of standardized errors,

.. math:: \frac{1}{N} \sum_n \frac{(y_n - \mu_{-n})^2}{\sigma_{-n}^2},

if that is above 1. If the model is right, it is about 1 (Cressie 1993, sec. 2.6.4). If it is larger,
the covariance function does not suit the data, and variances times this factor predict better
(Bachoc 2013).

Probabilities of classes are raised to the power 1/T, and normalized. The temperature T maximizes

.. math:: \sum_n \log \frac{p_{-n}(y_n)^{1/T}}{\sum_c p_{-n}(c)^{1/T}} - \frac{(\log T)^2}{2 s^2}

This is the scaling of Guo et al. (2017), with leave-one-out predictions in place of a validation
set. The prior keeps T above 0 if all labels are predicted correctly.
"""

from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ..models import PEP, PEPR
from ..tilted.predictive import predicted_moments
from .exact import exact_leave_one_out, is_exact

_SPREAD = 0.5  # s: with 0.3 and 1 the mean log loss of 11 tables is .331 and .329, with 0.5 .330
_LIMIT = 2.0  # largest |log T|


def check(calibrate: object) -> None:
    """Raise a ValueError if an estimator has another argument than None, True or False."""
    if not (calibrate is None or isinstance(calibrate, bool | np.bool_)):
        raise ValueError(f"calibrate must be None, True or False, got {calibrate!r}.")


def check_stream(calibrate: object) -> None:
    """Raise a ValueError if the argument of an estimator asks for a calibrated stream."""
    check(calibrate)
    if calibrate:
        raise ValueError(
            "calibrate must be None or False for partial_fit, got True: a stream does not store "
            "the rows. Use fit."
        )


def mean_squares(model: PEPR) -> AnyNDArray:
    """Return the mean square of standardized errors of each output, [P]."""
    leave_one_out = exact_leave_one_out if is_exact(model) else PEPR._leave_one_out
    errors, variances = map(np.asarray, leave_one_out(model))
    return np.mean(np.square(errors) / variances[:, None], axis=0)


def leave_one_out_probabilities(model: PEP, cache: Iterable[AnyNDArray]) -> AnyNDArray:
    """
    Return the probabilities of the classes of every row given the other rows, [N, C], from the
    cache of the posterior.
    """
    f = model._leave_one_out_moments(cache)
    mean, _ = predicted_moments(model.likelihood, model.data[0], *f)
    return of_all_classes(mean.numpy())


def of_all_classes(probabilities: AnyNDArray) -> AnyNDArray:
    """
    Return the probabilities of all classes, [N, C], from [N, C] or from [N, 1], the probability of
    the second class.
    """
    if probabilities.shape[1] == 1:
        return np.hstack([1.0 - probabilities, probabilities])
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def tempered(probabilities: AnyNDArray, temperature: float) -> AnyNDArray:
    """Return the normalized powers 1/T of probabilities [N, C]."""
    powers = probabilities ** (1.0 / temperature)  # of at most e²: the largest do not underflow
    return powers / powers.sum(axis=1, keepdims=True)


def best_temperature(probabilities: AnyNDArray, labels: AnyNDArray) -> float:
    """
    Return the temperature of probabilities [N, C], given the indices of the labels [N]; NaN if a
    probability is not finite.
    """
    if not np.isfinite(probabilities).all():
        return np.nan
    # Below eps, 1 - p of two classes has no digits: one row shall not determine T by rounding.
    logs = np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).eps))

    def loss(log_temperature: float) -> float:
        tempered_logs = log_softmax(logs * np.exp(-log_temperature), axis=1)
        log_likelihood = np.sum(tempered_logs[np.arange(len(labels)), labels])
        return float(0.5 * (log_temperature / _SPREAD) ** 2 - log_likelihood)

    found = minimize_scalar(loss, bounds=(-_LIMIT, _LIMIT), method="bounded")
    return float(np.exp(found.x))
