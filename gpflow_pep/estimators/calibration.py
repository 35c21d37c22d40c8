r"""
Factors of predictive variances, by leave-one-out predictions.

.. math:: \frac{1}{N} \sum_n \frac{(y_n - \mu_{-n})^2}{\sigma_{-n}^2}

The mean and variance of y_n given the other rows are those at the trained hyperparameters. If the
model is right, the factor is about 1 (Cressie 1993, sec. 2.6.4). If the noise depends on the
inputs, or f is less smooth in some places, the variance with this factor predicts better than that
of maximum likelihood (Bachoc 2013).
"""

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float, default_jitter

from ..models import PEPR
from ..runtime.tracing import compiled, compiled_functions, structure_of
from ..selection.reuse import compiled_model


def variance_factors(model: PEPR) -> AnyNDArray:
    """Return the factor of each output, [P], but at least 1: few rows may fit by chance."""
    with compiled_model(model, free_points=True) as worker:
        settings = [default_jitter(), default_float()]
        functions = compiled_functions(worker, "_calibration", structure_of([worker], settings))
        if not functions:
            functions["errors"] = compiled(worker.loo_errors)
        errors, variances = functions["errors"]()
    factors = np.mean(np.square(errors) / np.expand_dims(variances, 1), axis=0)
    return np.maximum(factors, 1.0)
