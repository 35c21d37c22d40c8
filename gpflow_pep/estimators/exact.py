"""
The exact model: if all rows are inducing points, a PEPR is, up to the jitter, GPflow's GPR for any
alpha. A training step of GPR takes half the time, and compiling it a quarter.
"""

from dataclasses import replace

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import MultioutputKernel, White

from ..maths.linalg import inverse_of_product
from ..models import PEPR
from ..models.gpr import ClosedFormGPR
from ..runtime import silent
from ..selection.reuse import compiled_model
from ..training import FitResult, uninterrupted
from ..training.coordinates import spreads
from ..training.fitting import train
from ..training.options import FitOptions

MOST_ROWS = 800  # GPR takes O(N³) time and O(N²) memory
_ROUNDING = 1e-9  # of a prior variance and of squared distances, relative


def is_exact(model: PEPR) -> bool:
    """
    Return whether the inducing points are all distinct rows, of at most 800 rows in one process,
    and determine f at them up to rounding. They do not if the kernel has a `White` part. Columns
    more than about 2,000 standard deviations from 0 (constant columns: 2,000) count as not exact:
    GPflow expands the squares of differences, which GPR would round.
    """
    X = model.data[0].numpy()
    if len(X) > MOST_ROWS or X.dtype != np.float64 or tf.distribute.has_strategy():
        return False
    distance = np.max(np.abs(X), axis=0) / spreads(X)
    if distance.max() ** 2 * np.finfo(X.dtype).eps > _ROUNDING:
        return False
    points = model.inducing_variable.Z.numpy()
    if not np.array_equal(np.unique(X, axis=0), np.unique(points, axis=0)):
        return False
    if isinstance(model.kernel, MultioutputKernel):
        return False
    if any(isinstance(part, White) for part in model.kernel.submodules):
        return False
    pair = model.kernel(np.repeat(X[:1], 2, axis=0))
    return np.allclose(pair[0, 0], pair[0, 1], rtol=_ROUNDING, atol=0.0)


def as_gpr(model: PEPR) -> ClosedFormGPR:
    """Return a GPR with the kernel, likelihood and mean function of this model."""
    data = tuple(values.numpy() for values in model.data)
    return ClosedFormGPR(data, model.kernel, model.mean_function, likelihood=model.likelihood)


def trained_as_gpr(model: PEPR, options: FitOptions) -> FitResult:
    """
    Train kernel, likelihood and mean function as parts of a GPR, whose failure is no failure of the
    model: it gives no warning.
    """
    options = replace(options, first_rows=None, train_inducing=None)
    with silent(), compiled_model(as_gpr(model), free_points=False) as worker:
        return uninterrupted(train(worker, options))


def exact_leave_one_out(model: PEPR) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Return y minus its mean given the other rows, [N, P], and the variance of this prediction, [N].

    With K the covariance of y, m its prior mean and A = K^-1, they are (A (y - m))_n / A_nn and
    1 / A_nn (Rasmussen and Williams 2006, sec. 5.4.2).
    """
    X, Y = (values.numpy() for values in model.data)
    K = model.kernel(X).numpy() + model.likelihood.variance_at(X).numpy() * np.eye(len(X))
    precision = inverse_of_product(tf.linalg.cholesky(K)).numpy()
    variances = 1.0 / np.diag(precision)
    residuals = Y - model.mean_function(X).numpy()
    return variances[:, None] * (precision @ residuals), variances
