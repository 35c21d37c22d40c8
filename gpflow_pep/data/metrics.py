"""Scores of Gaussian predictions of held-out targets.

SMSE and SMLL follow Rasmussen and Williams, Gaussian Processes for Machine Learning, section 2.5.
Logarithms are natural. Targets y, predicted means and variances have the same shape, [N] or [N, P]:
[N] is never broadcast against [N, 1]. Arguments that are empty, not finite or of another shape
raise a ValueError.
"""

import numpy as np
import numpy.typing as npt

from .. import validation

Floats = npt.NDArray[np.float64]


def rmse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """
    Root mean squared error over all entries: sqrt(mean((y - mean)^2)), in the unit of ``y``.

    >>> metrics.rmse([1.0, 2.0], [1.0, 4.0]) == 2.0**0.5
    True
    """
    y, mean = _checked(y=y, mean=mean)
    return float(np.sqrt(np.mean(np.square(y - mean))))


def nlpd(y: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike) -> float:
    """
    Negative log predictive density, the mean over points and outputs, in nats.

    Each entry contributes -log N(y; mean, variance) = (log(2 pi variance) + (y - mean)^2 /
    variance) / 2. Outputs are scored one by one, without their correlations. Compare values only
    between targets in the same unit: with y, mean and the standard deviation c times as large the
    value grows by log c. Smaller is better.

    >>> round(metrics.nlpd([0.0], [0.0], [1.0]), 6)
    0.918939

    :param variance: predicted variances of the targets, noise included, positive.
    """
    y, mean, variance = _checked(y=y, mean=mean, variance=variance)
    bad = np.argwhere(variance <= 0.0)
    if len(bad):
        raise ValueError(
            f"variance must be positive, got {len(bad)} of {variance.size} entries that are not, "
            f"the first in row {bad[0, 0]}: {variance[tuple(bad[0])]}."
        )
    return _mean_loss(y, mean, variance)


def smse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """
    Standardized mean squared error: mean((y - mean)^2) / var(y), without unit.

    Each output's error is divided by the population variance of its test targets, then outputs are
    averaged. The score does not change if y and mean are rescaled together.

    >>> metrics.smse([1.0, 3.0], [2.0, 2.0])
    1.0

    :param y: test targets, without constant columns.
    :return: 0 at best; 1 for predicting the mean of the test targets everywhere.
    """
    y, mean = _checked(y=y, mean=mean)
    return float(np.mean(np.mean(np.square(y - mean), axis=0) / _variance(y, "y")))


def smll(
    y: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike, y_train: npt.ArrayLike
) -> float:
    """
    Standardized mean log loss: the ``nlpd`` of the predictions minus the ``nlpd`` of a trivial
    Gaussian, in nats.

    The trivial Gaussian has the mean and population variance of the training targets, output by
    output, and ignores the inputs. The score does not change if all arguments are rescaled
    together.

    >>> metrics.smll([1.0, 3.0], [2.0, 2.0], [1.0, 1.0], y_train=[1.0, 3.0])
    0.0

    :param y_train: training targets [N_train, P] or [N_train], without constant columns.
    :return: the mean difference per entry; 0 for the trivial Gaussian, negative is better.
    """
    loss = nlpd(y, mean, variance)
    targets = _matrix(y_train, "y_train")
    if np.shape(y_train)[1:] != np.shape(y)[1:]:
        raise ValueError(
            f"y_train must have the shape of y, {list(np.shape(y))} except for the number of rows, "
            f"got shape {list(np.shape(y_train))}."
        )
    return loss - _mean_loss(
        _matrix(y, "y"), np.mean(targets, axis=0), _variance(targets, "y_train")
    )


def _mean_loss(y: Floats, mean: Floats, variance: Floats) -> float:
    """Return the mean of -log N(y; mean, variance) over all entries."""
    return float(np.mean(0.5 * (np.log(2.0 * np.pi * variance) + np.square(y - mean) / variance)))


def _checked(**arrays: npt.ArrayLike) -> list[Floats]:
    """Return arrays of the shape of y, [N] or [N, P], as finite matrices."""
    matrices = [_matrix(values, name) for name, values in arrays.items()]
    shape = np.shape(arrays["y"])
    for name, values in arrays.items():
        if np.shape(values) != shape:
            raise ValueError(
                f"{name} must have the shape of y, {list(shape)}, got shape "
                f"{list(np.shape(values))}."
            )
    return matrices


def _matrix(values: npt.ArrayLike, name: str) -> Floats:
    """Return values [N] or [N, P] as a finite matrix of float64; [N] becomes one column."""
    return validation.matrix(
        np.reshape(values, [-1, 1]) if np.ndim(values) == 1 else values, name, "P", np.float64
    )


def _variance(y: Floats, name: str) -> Floats:
    """Return the variances of the columns [P]; raise an error if one is constant."""
    constant = np.flatnonzero(np.ptp(y, axis=0) == 0.0)
    if constant.size:
        raise ValueError(
            f"{name} must not be constant, since the score divides by the variance, got "
            f"{y[0, constant[0]]} in every row of column {constant[0]}."
        )
    return np.var(y, axis=0)
