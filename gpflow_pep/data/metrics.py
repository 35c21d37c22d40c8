"""Scores of Gaussian predictions of held-out targets.

SMSE and SMLL follow Rasmussen and Williams, Gaussian Processes for Machine Learning, section 2.5. Logarithms are
natural. All arrays have the same shape, [N] or [N, P]: [N] is never broadcast against [N, 1].
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def rmse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """
    Root mean squared error over all entries: sqrt(mean((y - mean)^2)), in the unit of ``y``.

    >>> metrics.rmse([1.0, 2.0], [1.0, 4.0]) == 2.0**0.5
    True

    :param y: targets [N, P] or [N].
    :param mean: predicted means, the shape of ``y``.
    :return: the error, 0 at best; it scales with ``y``.
    :raises ValueError: if an argument is empty, not finite or of another shape.
    """
    y, mean = _checked(y=y, mean=mean)
    return float(np.sqrt(np.mean(np.square(y - mean))))


def nlpd(y: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike) -> float:
    """
    Negative log predictive density, the mean over points and outputs, in nats.

    Each entry contributes -log N(y; mean, variance) = (log(2 pi variance) + (y - mean)^2 / variance) / 2. Outputs are
    scored one by one, without their correlations. With y, mean and the standard deviation c times as large
    the value grows by log c, so compare it only between targets in the same unit.

    >>> round(metrics.nlpd([0.0], [0.0], [1.0]), 6)
    0.918939

    :param y: targets [N, P] or [N].
    :param mean: predicted means, the shape of ``y``.
    :param variance: predicted variances of the targets, noise included, the shape of ``y``.
    :return: the mean negative log density per entry; smaller is better.
    :raises ValueError: if an argument is empty, not finite or of another shape, or a variance is not positive.
    """
    y, mean, variance = _checked(y=y, mean=mean, variance=variance)
    _check_all("variance", variance, variance > 0.0, "positive numbers")
    return float(np.mean(_negative_log_density(y, mean, variance)))


def smse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """
    Standardized mean squared error: mean((y - mean)^2) / var(y), without unit.

    Each output's error is divided by the population variance of its test targets, then outputs are averaged. The score
    does not change if y and mean are rescaled together.

    >>> metrics.smse([1.0, 3.0], [2.0, 2.0])
    1.0

    :param y: test targets [N, P] or [N], without constant columns.
    :param mean: predicted means, the shape of ``y``.
    :return: 0 at best; 1 for predicting the mean of the test targets everywhere.
    :raises ValueError: if an argument is empty, not finite or of another shape, or a column of ``y`` is constant.
    """
    y, mean = _checked(y=y, mean=mean)
    _check_varies("y", y)
    return float(np.mean(np.mean(np.square(y - mean), axis=0) / np.var(y, axis=0)))


def smll(y: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike, y_train: npt.ArrayLike) -> float:
    """
    Standardized mean log loss: the ``nlpd`` of the predictions minus the ``nlpd`` of a trivial Gaussian, in nats.

    The trivial Gaussian has the mean and population variance of the training targets, output by output, and ignores
    the inputs. The score does not change if all arguments are rescaled together.

    >>> metrics.smll([1.0, 3.0], [2.0, 2.0], [1.0, 1.0], y_train=[1.0, 3.0])
    0.0

    :param y: test targets [N, P] or [N].
    :param mean: predicted means, the shape of ``y``.
    :param variance: predicted variances of the targets, noise included, the shape of ``y``.
    :param y_train: training targets [N_train, P] or [N_train], without constant columns.
    :return: the mean difference per entry; 0 for the trivial Gaussian, negative is better.
    :raises ValueError: if an argument is empty, not finite or of another shape, a variance is not positive, or a
        column of ``y_train`` is constant.
    """
    loss = nlpd(y, mean, variance)
    y, y_train = _finite("y", y), _finite("y_train", y_train)
    if y_train.shape[1:] != y.shape[1:]:
        raise ValueError(
            f"y_train has shape {y_train.shape}; any number of rows of the shape of y, {y.shape}, is accepted"
        )
    _check_varies("y_train", y_train)
    trivial = _negative_log_density(y, np.mean(y_train, axis=0), np.var(y_train, axis=0))  # [N, P]
    return loss - float(np.mean(trivial))


def _negative_log_density(y: Floats, mean: Floats, variance: Floats) -> Floats:
    """Return -log N(y; mean, variance) of each entry."""
    density: Floats = 0.5 * (np.log(2.0 * np.pi * variance) + np.square(y - mean) / variance)
    return density


def _checked(*, y: npt.ArrayLike, **predictions: npt.ArrayLike) -> list[Floats]:
    """Return finite arrays of one shape, [N] or [N, P]."""
    arrays = [_finite("y", y)]
    for name, values in predictions.items():
        arrays.append(_finite(name, values))
        if arrays[-1].shape != arrays[0].shape:
            raise ValueError(f"{name} has shape {arrays[-1].shape}; the shape of y, {arrays[0].shape}, is accepted")
    return arrays


def _finite(name: str, values: npt.ArrayLike) -> Floats:
    """Return values as float64 [N] or [N, P] with at least one entry, all finite."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {values!r}; an array of numbers is accepted") from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; [N] and [N, P] with at least one entry are accepted")
    _check_all(name, array, np.isfinite(array), "finite numbers")
    return array


def _check_all(name: str, array: Floats, accepted: npt.NDArray[np.bool_], kind: str) -> None:
    """Raise an error that gives the number of entries not accepted, and the first of them."""
    if not accepted.all():
        first = tuple(int(index) for index in np.argwhere(~accepted)[0])
        raise ValueError(
            f"{name} has {np.count_nonzero(~accepted)} of {array.size} entries that are not {kind}, the first in row "
            f"{first[0]}: {array[first]}; only {kind} are accepted"
        )


def _check_varies(name: str, array: Floats) -> None:
    constant = np.flatnonzero(np.ptp(array, axis=0) == 0.0)
    if constant.size:
        value = array.reshape(len(array), -1)[0, constant[0]]
        raise ValueError(
            f"{name} is {value} in every row of column {constant[0]}; at least two different values are accepted, "
            "since the score divides by their variance"
        )
