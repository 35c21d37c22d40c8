"""
Habits from scikit-learn: kernel parameters in a search, samples, noise given as alpha, rows one at
a time.
"""

import re

import numpy as np
import pandas as pd
import pytest
from comparisons import assert_near
from gpflow.kernels import Coregion, Linear, Matern32, Periodic, SquaredExponential, White
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from gpflow_pep import likelihoods
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.models.posteriors import ROWS_PER_CHUNK

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (60, 2))
Y = np.stack([np.sin(X[:, 0]), np.cos(X[:, 1])], axis=1) + 0.1 * RNG.normal(size=(60, 2))


def untrained(kernel=None, **options):
    return SparseGPRegressor(kernel, n_inducing=10, optimizer=None, random_state=0, **options)


def test_a_search_over_parameters_of_the_kernel():
    kernel = SquaredExponential()
    search = GridSearchCV(untrained(kernel), {"kernel__lengthscales": [0.01, 2.0]}, cv=3).fit(
        X, Y[:, 0]
    )
    assert search.best_params_ == {"kernel__lengthscales": 2.0}
    assert_allclose(search.best_estimator_.kernel_.lengthscales, 2.0, rtol=1e-6)
    assert kernel.lengthscales.numpy() == 1.0  # the user's kernel


def test_parameters_of_a_kernel_by_name():
    estimator = untrained(SquaredExponential(lengthscales=[1.0, 2.0]) + White(0.5))
    assert estimator.get_params()["kernel__kernels[1].variance"] == pytest.approx(0.5)
    estimator = clone(estimator).set_params(
        **{"kernel__kernels[0].lengthscales": 3.0, "alpha": 0.2}
    )
    assert_allclose(estimator.kernel.kernels[0].lengthscales, [3.0, 3.0])
    assert estimator.alpha == 0.2
    with refused(r"^kernel__length_scale: parameters of the kernel are kernel__kernels"):
        estimator.set_params(kernel__length_scale=1.0)
    before = dict(vars(estimator))
    lengthscales = "kernel__kernels[0].lengthscales"
    must = "must be one number or an array of shape [2]"
    for name, value, message in (
        ("no_such", 1, "Invalid parameter 'no_such'"),
        ("kernel__kernels[0].variance", -1.0, "kernel__kernels[0].variance must be one number"),
        (lengthscales, [1.0] * 3, f"{lengthscales} {must}"),
        (
            lengthscales,
            0.0,
            f"{lengthscales} {must}, in the range of its transform (mostly: positive), got 0.0.",
        ),
        (lengthscales, np.nan, f"{lengthscales} must be finite"),
        (lengthscales, "long", f"{lengthscales} must hold real numbers"),
        (lengthscales, None, f"{lengthscales} must hold real numbers"),
    ):
        with refused(f"^{re.escape(message)}"):
            estimator.set_params(**{"alpha": 0.9, name: value})
        assert vars(estimator) == before  # all or none


def test_samples_have_the_predicted_moments():
    estimator = untrained().fit(X, Y)
    mean, covariance = estimator.predict(X[:3], return_cov=True)
    samples = estimator.sample_y(X[:3], n_samples=20_000, random_state=1)
    assert samples.shape == (3, 2, 20_000)
    # The standard error is 0.003.
    assert_near(samples.mean(axis=2), mean, 0.02)
    assert_near(np.cov(samples[:, 1]), covariance[:, :, 1], 0.02)
    of_one = untrained().fit(X, Y[:, 0])
    assert_array_equal(of_one.sample_y(X[:3], 4), of_one.sample_y(X[:3], 4, random_state=0))
    assert of_one.sample_y(X[:3], 4).shape == (3, 4)
    assert of_one.log_marginal_likelihood() == of_one.log_marginal_likelihood_value_


@pytest.mark.parametrize(
    ("kernel", "hint"), [(RBF(), "SquaredExponential"), (RBF() + WhiteKernel(), "without White")]
)
def test_kernels_of_scikit_learn_are_refused_with_their_counterpart(kernel, hint):
    with refused(rf"^kernel must be a gpflow\.kernels\.Kernel or None, got .*{hint}"):
        untrained(kernel).fit(X, Y)


@pytest.mark.parametrize("alpha", [1e-10, np.full(60, 0.1)])
def test_a_noise_variance_as_alpha_is_refused(alpha):
    with refused(r"alpha must be the power, .* not a noise variance as in scikit-learn"):
        untrained(alpha=alpha).fit(X, Y)


DAYS = pd.date_range("2020", periods=60)
TABLES = {
    "datetime64[ns] in column 'day': convert times": pd.DataFrame({"a": Y[:, 0], "day": DAYS}),
    "a date in column 'b': convert": pd.DataFrame({"a": 1.0, "b": DAYS.date}),
    "a Timestamp in column 1: convert": np.array([[1.0, day] for day in DAYS], dtype=object),
    "'x' in column 'b': encode categories with OneHotEncoder": pd.DataFrame(
        {"a": 1.0, "b": ["x"] * 60}
    ),
    "'x' in column 1: encode categories": [[1.0, "1"]] * 59 + [[1.0, "x"]],
}


def test_columns_without_numbers_are_named_with_a_remedy():
    labels = SparseGPClassifier(optimizer=None, n_inducing=5).fit(X, Y[:, 0] > 0.0)
    for message, table in TABLES.items():
        numbers = X
        if hasattr(table, "columns"):
            numbers = pd.DataFrame(X, columns=table.columns)
        fitted = untrained().fit(numbers, Y[:, 0])
        for use, *targets in (
            (untrained().fit, Y[:, 0]),
            (fitted.partial_fit, Y[:, 0]),
            (fitted.predict,),
            (labels.predict_proba,),
        ):
            with refused(f"^{re.escape(f'X must hold numbers, got {message}')}"):
                use(table, *targets)


def test_equal_names_of_columns_are_refused():
    twice = pd.DataFrame(X, columns=["a", "a"])
    fitted = untrained().fit(pd.DataFrame(X, columns=["a", "b"]), Y[:, 0])
    for name, call in (
        ("X", lambda: untrained().fit(twice, Y[:, 0])),
        ("X", lambda: fitted.predict(twice)),
        ("y", lambda: untrained().fit(X, twice)),
    ):
        with refused(f"^{name} must have distinct column names, got 'a' more than once"):
            call()


def test_sparse_matrices_and_labels_are_refused_with_a_remedy():
    sparse = csr_array(X)
    fitted = untrained().fit(X, Y[:, 0])
    for call in (lambda: untrained().fit(sparse, Y[:, 0]), lambda: fitted.predict(sparse)):
        with refused(r"^X must be a dense array, .* use \.toarray\(\)\.$"):
            call()
    with refused(r"^y must hold numbers, got 'a': SparseGPClassifier"):
        untrained().fit(X, ["a"] * 60)


def test_columns_of_numbers_in_other_forms_are_read():
    """
    Text, categories and missing-value types of pandas that hold numbers, as scikit-learn reads
    them.
    """
    table = pd.DataFrame(
        {
            "text": [f"{value:.3f}" for value in X[:, 0]],
            "category": pd.Categorical(np.round(X[:, 1])),
            "integer": pd.array([1, 2] * 30, dtype="Int64"),
            "flag": [True, False] * 30,
        }
    )
    found = untrained().fit(table, Y[:, 0]).predict(table)
    numbers = table.astype(float)
    assert_array_equal(found, untrained().fit(numbers, Y[:, 0]).predict(numbers))


def test_another_alpha_is_that_of_the_next_batch():
    estimator = untrained(alpha=0.5).partial_fit(X, Y[:, 0])
    for shift, alpha in ((0.1, 0.9), (0.2, 0.1)):
        estimator.set_params(alpha=alpha).partial_fit(X + shift, Y[:, 0])
        assert estimator.model_.alpha == alpha


@pytest.mark.parametrize("classes", [0, 2])
def test_rows_one_at_a_time(classes):
    """Two calls run without a graph; then one graph predicts any number of rows, in chunks."""
    if classes:
        estimator = SparseGPClassifier(n_inducing=10, optimizer=None, random_state=0)
        estimator.fit(X, np.digitize(Y[:, 0], [0.0, 0.5][: classes - 1]))
        predict = estimator.predict_proba
    else:
        estimator = untrained().fit(X, Y)
        predict = estimator.predict
    assert_allclose(
        [predict(X[n : n + 1])[0] for n in range(20)], predict(X[:20]), rtol=1e-10, atol=1e-12
    )
    many = np.tile(X, (ROWS_PER_CHUNK // len(X) + 2, 1))
    assert_allclose(predict(many)[-60:], predict(X), rtol=1e-10, atol=1e-12)
    assert estimator.model_._compiled_predict_y_of_chunk.func.experimental_get_tracing_count() == 1


def test_points_of_an_index_are_rows():
    groups = np.repeat([0.0, 1.0], 30)
    estimator = SparseGPRegressor(
        SquaredExponential(active_dims=[0]) * Coregion(2, rank=1, active_dims=[1]),
        n_inducing=12,
        max_iterations=20,
    ).fit(np.stack([X[:, 0], groups], axis=1), Y[:, 0])
    Z = estimator.model_.inducing_variable.Z.numpy()
    assert set(Z[:, 1]) == {0.0, 1.0}  # also after training has moved the points
    with refused(r"^X must hold whole numbers from 0 to 1 in column 1, .* got 2\.0 in row 0"):
        estimator.predict([[0.3, 2.0]])


def test_few_rows_have_more_points():
    assert SparseGPRegressor(optimizer=None).fit(X, Y).n_inducing_ == 60
    many = np.random.default_rng(0).normal(size=(5000, 1))
    assert SparseGPRegressor(optimizer=None).fit(many, many[:, 0]).n_inducing_ == 141  # √20,000
    assert SparseGPClassifier(optimizer=None).fit(X, Y[:, 0] > 0.0).n_inducing_ == 60


def test_alpha_auto_of_a_first_batch_that_is_not_trained():
    estimator = SparseGPRegressor(alpha="auto").partial_fit(X[:1], Y[:1, 0])
    assert estimator.alpha_ == 0.5 and not hasattr(estimator, "alpha_selection_")


def test_alpha_auto_is_the_power_of_the_best_leave_one_out_predictions():
    estimator = untrained(alpha="auto").fit(X, Y[:, 0])
    found = estimator.alpha_selection_
    assert estimator.alpha_ == found.alpha == estimator.model_.alpha
    assert len(found.alphas) == 5
    expected = untrained(alpha=found.alpha).fit(X, Y[:, 0])
    assert_array_equal(estimator.predict(X), expected.predict(X))
    assert estimator.partial_fit(X, Y[:, 0]).model_.alpha == found.alpha
    assert not hasattr(estimator.set_params(alpha=0.5).fit(X, Y[:, 0]), "alpha_selection_")


def test_estimators_show_kernel_and_likelihood():
    kernel = (SquaredExponential(2.0, [1.0, 0.12345]) + Linear()) * (
        Periodic(Matern32(active_dims=[1]), period=7.0)
    )
    text = (
        "(SquaredExponential(variance=2, lengthscales=[1, 0.123]) + Linear(variance=1)) * "
        "Periodic(base_kernel=Matern32(variance=1, lengthscales=1, active_dims=[1]), period=7, "
        "active_dims=[1])"
    )
    estimator = SparseGPRegressor(kernel, n_inducing=10)
    assert repr(estimator) == f"SparseGPRegressor(kernel={text}, n_inducing=10)"
    assert estimator.kernel is kernel
    assert "lengthscales=[1, 0.123]" in estimator._repr_html_()
    wide = SparseGPRegressor(SquaredExponential(lengthscales=np.ones(700)))
    assert "lengthscales=[1, 1, 1, 1, 1, 1, ...])" in repr(wide)
    classifier = SparseGPClassifier(likelihood=likelihoods.Logit())
    assert repr(classifier) == "SparseGPClassifier(likelihood=Logit())"
    assert repr(make_pipeline(SparseGPRegressor())).count("SparseGPRegressor()") == 1
