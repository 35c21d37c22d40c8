"""Dense EP of the experiments equals PEP with an inducing point at every input and alpha = 1."""

import numpy as np
from comparisons import assert_all_close
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from model_values import loss_and_gradient

from experiments.ingredients.dense_ep import DenseEP
from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit


def test_equals_pep_at_all_inputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    Y = (X[:, :1] + 0.5 * rng.normal(size=(30, 1)) > 0.0).astype(float)
    Xnew = rng.normal(size=(5, 2))
    dense = DenseEP((X, Y), SquaredExponential(20.0), Probit(), InducingPoints(X))
    sparse = PEPClassifier((X, Y), SquaredExponential(20.0), Probit(), X.copy(), alpha=1.0)

    found = []
    for model in (dense, sparse):
        loss, gradient = loss_and_gradient(model, variables=model.kernel.trainable_variables)
        found.append([loss, *gradient, *model.predict_f(Xnew)])

    # Jitter is added to Kuu alone, or to the covariance of f.
    assert_all_close(*found, rtol=1e-4, atol=1e-5)
