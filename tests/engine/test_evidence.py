"""The Gaussian integral against scipy's dense multivariate normal, of values and of derivatives.

Covariances with eigenvalues of at least 0.3 and below 10, N = 13: scipy's and our Cholesky err by
100 eps; 1e-12.
"""

import numpy as np
import pytest
import tensorflow as tf
from dense_sums import Collected, make_blocks, make_problem, values_of_sums
from refusals import stopped

from gpflow_pep.engine import log_gaussian, mahalanobis
from gpflow_pep.engine.sites import Powers

EXACT = 1e-12


@pytest.fixture(params=[1, 3], ids=["one output", "three outputs"])
def sums(request):
    problem = make_problem(seed=3, P=request.param)
    sums = values_of_sums(problem, make_blocks("unequal", 13), Powers(0.6, 0.6, 0.2), 1.3)
    return Collected(*(tf.constant(value) for value in sums))


def test_sums_that_are_not_finite_stop(sums):
    broken = sums._replace(A=sums.A * np.nan).split()
    for function in (lambda: log_gaussian(*broken, tf.constant(13)), lambda: mahalanobis(*broken)):
        with stopped("25 of its entries are not finite"):
            function()
