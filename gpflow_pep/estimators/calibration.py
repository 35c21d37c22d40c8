r"""
The mean square of standardized leave-one-out errors.

.. math:: \frac{1}{N} \sum_n \frac{(y_n - \mu_{-n})^2}{\sigma_{-n}^2}

The mean and variance of y_n given the other rows are those at the trained hyperparameters. If the
model is right, this is about 1 (Cressie 1993, sec. 2.6.4). If it is larger, the covariance function
does not suit the data, and variances times this factor predict better (Bachoc 2013).
"""

import numpy as np
from gpflow.base import AnyNDArray

from ..models import PEPR
from .exact import exact_leave_one_out, is_exact


def mean_squares(model: PEPR) -> AnyNDArray:
    """Return the mean square of each output, [P]."""
    leave_one_out = exact_leave_one_out if is_exact(model) else PEPR._leave_one_out
    errors, variances = map(np.asarray, leave_one_out(model))
    return np.mean(np.square(errors) / variances[:, None], axis=0)
