"""A failed or interrupted fit leaves the estimator unchanged."""

import numpy as np
import pytest
from gpflow.utilities import read_values
from numpy.testing import assert_allclose, assert_equal
from quick import partly_slow
from refusals import refused

from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor, base

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regressor(**options):
    return SparseGPRegressor(**{"n_inducing": 6, "optimizer": None, "random_state": 0, **options})


def classifier(**options):
    return SparseGPClassifier(**{"n_inducing": 6, "optimizer": None, "random_state": 0, **options})


@partly_slow("make", [regressor, classifier], 1)
def test_a_fit_that_fails(X, y, make):
    """
    Attributes stay, also the number of columns, classes and normalization; before any fit there are
    none.
    """
    targets = y if make is regressor else y > 100.0
    others = 1e3 * y if make is regressor else np.digitize(y, [95.0, 110.0])
    estimator = make().fit(X, targets)
    before = dict(vars(estimator))
    with refused(r"alpha must be in \[0, 1\]"):
        estimator.set_params(alpha=7.0).fit(X[:, :1], others)
    assert vars(estimator) == before | {"alpha": 7.0}
    unfitted = make(alpha=7.0)
    before = dict(vars(unfitted))
    with refused("alpha"):
        unfitted.partial_fit(
            X, targets, **({} if make is regressor else {"classes": [False, True]})
        )
    assert vars(unfitted) == before


def interrupted_training(model, options):
    """Change all that training changes, and stop."""
    for variable in model.trainable_variables:
        variable.assign_add(0.5 * np.ones(variable.numpy().shape))
    if hasattr(model, "reset_sites"):
        model.reset_sites()
    raise KeyboardInterrupt


@pytest.mark.parametrize(("make", "number"), [(regressor, 6), (regressor, 12), (classifier, 12)])
def test_a_batch_whose_training_is_interrupted(X, y, make, number, monkeypatch):
    """
    The first batch of the stream and a further one, with points that move and with more of them.
    The model itself is as it was too, and absorbs the batch afterwards.
    """
    targets, method = (y, "predict") if make is regressor else (y > 100.0, "predict_proba")
    estimator = make().fit(X[:20], targets[:20]).set_params(n_inducing=number)
    for rows in (slice(20, 40), slice(40, 60)):
        model = estimator.model_
        kernel = estimator.kernel_
        values = read_values(estimator.model_)
        expected = getattr(estimator, method)(X)
        from_model, _ = model.predict_f(X)
        before = dict(vars(estimator))
        with monkeypatch.context() as patched:
            patched.setattr(base, "trained", interrupted_training)
            with pytest.raises(KeyboardInterrupt):
                estimator.partial_fit(X[rows] + 1.0, targets[rows])
        assert vars(estimator) == before
        assert estimator.model_ is model
        assert estimator.kernel_ is kernel
        assert_equal(read_values(model), values)
        assert_allclose(getattr(estimator, method)(X), expected, rtol=1e-12)
        assert_allclose(model.predict_f(X)[0], from_model, rtol=1e-12, atol=1e-12)
        estimator.partial_fit(X[rows], targets[rows])
