"""SparseGPRegressor against the model, against scikit-learn's GP, and in pipelines and searches."""

import warnings
from copy import deepcopy
from dataclasses import replace

import gpflow
import numpy as np
import pandas as pd
import pytest
import sklearn
from comparisons import assert_all_close
from configuration import configured
from default_parts import default_parts
from gpflow.kernels import Matern32, Matern52, SquaredExponential, White
from gpflow.utilities import read_values
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from quick import partly_slow
from refusals import refused
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils.validation import has_fit_parameter
from waves import line

from gpflow_pep import PEPR, StreamingSGPR, fit, weak_priors
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor, base, exact, training
from gpflow_pep.training.fitting import train

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Both run the same operations in order; sums may be rounded in another order, which Kuu's condition
# number (its jitter is 1e-6) takes from 1e-16 to 1e-10.
SAME = {"rtol": 1e-9, "atol": 1e-9}


def small(kernel=None, **options):
    """A regressor of six points."""
    return SparseGPRegressor(kernel, n_inducing=6, random_state=0, **options)


@partly_slow(("outputs", "alpha"), [(1, 0.5), (2, 0.0)], quick=[(2, 0.0)])
def test_predictions_are_those_of_the_model(X, y, outputs, alpha):
    Y = np.stack([y, y**2], axis=1)[:, :outputs]
    estimator = small(alpha=alpha, max_iterations=5).fit(X, Y)
    mean = Y.mean(axis=0)
    scale = Y.std(axis=0)
    kernel, Z = default_parts(X)
    model = PEPR(
        (X, (Y - mean) / scale), kernel, Z, alpha=alpha, noise_variance=0.1, max_jitter=1e-3
    )
    weak_priors(model)
    fit(model, max_iterations=5)
    expected, variance = (values.numpy() for values in model.predict_y(X[:7]))
    predicted, std = estimator.predict(X[:7], return_std=True)
    _, covariance = estimator.predict(X[:7], return_cov=True)
    with pytest.raises(RuntimeError, match="At most one of return_std or return_cov"):
        estimator.predict(X, return_std=True, return_cov=True)
    assert predicted.shape == std.shape == ((7,) if outputs == 1 else (7, 2))
    assert_allclose(predicted.reshape(7, -1), expected * scale + mean, **SAME)
    assert_allclose(std.reshape(7, -1), np.sqrt(variance) * scale, **SAME)
    assert_allclose(np.diagonal(covariance).T.reshape(7, -1), variance * scale**2, rtol=1e-7)
    assert_allclose(
        estimator.log_marginal_likelihood_value_,
        model.maximum_log_likelihood_objective(),
        rtol=1e-9,
    )
    assert estimator.n_inducing_ == 6 and estimator.result_.iterations == estimator.n_iter_ == 5
    noise = np.sqrt(model.likelihood.variance) * scale
    assert isinstance(estimator.noise_std_, float if outputs == 1 else np.ndarray)
    assert_allclose(np.atleast_1d(estimator.noise_std_), noise, **SAME)
    assert_all_close(estimator.kernel_.parameters, model.kernel.parameters, **SAME)
    assert_allclose(estimator.model_.predict_f(X[:7])[0], model.predict_f(X[:7])[0], **SAME)


@pytest.mark.parametrize("normalize", [True, False])
def test_all_rows_as_inducing_points_are_the_exact_gp(X, y, normalize):
    """
    scikit-learn's GP, with joint covariances; the jitter, 1e-6 of variances of 1 and noise of 0.1,
    changes 1e-4.
    """
    y = y if normalize else (y - y.mean()) / y.std()
    ours = SparseGPRegressor(
        SquaredExponential(1.5, [2.0, 20.0]),
        noise_variance=0.1,
        optimizer=None,
        normalize_y=normalize,
    ).fit(X, y)
    kernel = ConstantKernel(1.5) * RBF([2.0, 20.0]) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=normalize, alpha=0.0).fit(
        X, y
    )
    new = X[:8] + 0.3
    for option in ("return_std", "return_cov"):
        (mean, spread), (expected_mean, expected_spread) = (
            estimator.predict(new, **{option: True}) for estimator in (ours, theirs)
        )
        assert_allclose(mean, expected_mean, atol=1e-4 * y.std())
        assert_allclose(spread, expected_spread, rtol=1e-3, atol=1e-4 * y.var())
    assert_allclose(
        ours.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, rtol=1e-3
    )
    assert ours.result_ is None and ours.n_iter_ == 0 and ours.n_inducing_ == len(X)
    assert_allclose(ours.kernel_.variance, 1.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "most", "expected"),
    [
        ({"n_inducing": 6}, 3_000, 2e-3),
        ({"n_inducing": 6}, 10, 5e-4),
        ({}, 3_000, 5e-4),
        ({"n_inducing": 6, "tolerance": 1e-3}, 3_000, 1e-3),
    ],
)
def test_tolerance_by_default(X, y, monkeypatch, options, most, expected):
    """It is larger if inducing points of not too many rows are trained."""
    found = []

    def recorded(model, options):
        found.append(options.tolerance)
        return train(model, replace(options, max_iterations=1))

    monkeypatch.setattr(base, "_ROWS_OF_POINTS", most)
    monkeypatch.setattr(training, "train", recorded)
    monkeypatch.setattr(exact, "train", recorded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        SparseGPRegressor(**options, random_state=0).fit(X, y)
    assert found == [expected]


def test_missing_values_of_y_are_named():
    with refused("y must be finite, got 1 values that are NaN or infinite, the first in row 1"):
        SparseGPRegressor().fit([[0.0], [1.0], [2.0]], [0.5, None, 0.7])


def test_a_few_rows_without_noise():
    """The priors leave room for small noise: ten rows of a parabola suffice."""
    x = np.linspace(0.0, 10.0, 10)
    xnew = np.linspace(0.0, 10.0, 101)
    fitted = SparseGPRegressor(random_state=0).fit(x[:, None], x**2)
    errors = fitted.predict(xnew[:, None]) - xnew**2
    assert np.sqrt(np.mean(errors**2)) < 5e-3 * np.std(
        xnew**2
    )  # 2e-2 with a normal prior of the noise


@pytest.mark.parametrize(("bound", "noise"), [(1e-8, 5e-7), (1e-3, 2e-3)])
def test_a_stream_keeps_the_bound_of_the_noise(X, y, bound, noise):
    """
    A noise above the user's bound is kept; one that training has driven to the bound becomes twice
    as large.
    """
    options = {"n_inducing": 6, "noise_variance": 1.5 * bound, "optimizer": None}
    with configured(likelihood_positive_minimum=bound):
        estimator = SparseGPRegressor(SquaredExponential(), **options).partial_fit(X, y)
        variance = estimator.model_.likelihood.variance
        if noise > 2.0 * bound:
            variance.assign(noise)
        else:
            variance.unconstrained_variable.assign(-60.0)  # exp(-60) vanishes beside the bound
        estimator.partial_fit(X, y)
        assert_allclose(estimator.model_.likelihood.variance, noise, rtol=1e-12)


def test_a_finer_model_with_a_lower_evidence_is_discarded(X, y):
    class Worse(SparseGPRegressor):
        def _finer(self, model):
            finer = deepcopy(model)
            finer.likelihood.variance.assign(50.0)  # of a y of variance 1
            gpflow.set_trainable(finer.likelihood, False)
            return finer

    fitted = Worse(n_inducing=6, random_state=0).fit(X, y)
    assert fitted.result_.converged
    assert fitted.model_.likelihood.variance.numpy() < 2.0


def test_a_stream_gets_the_points_that_it_lacks(X, y):
    estimator = SparseGPRegressor(n_inducing=12, max_iterations=3, random_state=0)
    estimator.partial_fit(X[:5], y[:5])
    assert estimator.n_inducing_ == 5
    first = estimator.score(X[30:], y[30:])
    estimator.partial_fit(X[5:30], y[5:30])
    assert estimator.n_inducing_ == 12
    assert estimator._next_points(estimator.model_, X[30:]) == (None, True)
    estimator.partial_fit(X[30:], y[30:])
    assert estimator.n_inducing_ == 12 and estimator.score(X[30:], y[30:]) > max(first, 0.8)


def test_a_column_that_varies_in_a_later_batch_for_the_first_time(X, y):
    """The default kernel takes its center and its scale from there, in any unit."""
    found = []
    for unit in (1.0, 2.0**30):
        rows = X * [1.0, unit]
        rows[:20, 1] = 0.0
        estimator = SparseGPRegressor(optimizer=None)
        estimator.partial_fit(rows[:20], y[:20]).partial_fit(rows[20:], y[20:])
        _, linear, _ = estimator.kernel_.kernels
        found.append(estimator.predict(rows))
        known = np.concatenate([rows[20:], rows[:20]])  # the second part are the inducing points
        assert_allclose(linear.center[1], known[:, 1].mean(), rtol=1e-12)
        assert_allclose(linear.scale[1], np.sqrt(2.0) * known[:, 1].std(), rtol=1e-12)
    assert_allclose(*found, rtol=1e-6)


def test_a_stream_in_given_units_keeps_them(X, y):
    """
    Without training, with exact inducing points and without normalization it is the GP of all rows.
    """
    kernel = Matern32(variance=1e4, lengthscales=30.0)
    estimator = SparseGPRegressor(
        kernel, noise_variance=4.0, normalize_y=False, optimizer=None, alpha=0.0
    )
    targets = np.where(np.arange(len(y)) < 3, 5.0, y)
    expected = clone(estimator).fit(X, targets).predict(X, return_std=True)
    for rows, kind in ((slice(0, 3), PEPR), (slice(3, None), StreamingSGPR)):
        estimator.partial_fit(X[rows], targets[rows])
        assert isinstance(estimator.model_, kind)
    with refused("y must keep 1 columns, got 2"):
        estimator.partial_fit(X, np.stack([y, y], axis=1))
    with refused("kernel must stay the object of the first batch"):
        deepcopy(estimator).set_params(kernel__variance=2.0).partial_fit(X, y)
    # Both have the jitter 1e-6 of a kernel of 1e4, 1e-10 of it.
    assert_allclose(estimator.predict(X, return_std=True), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "scale", "n_inducing", "unit"),
    [(1, 1.0, "auto", 1e-6), (20, 1e-3, None, 1e9), (20, 0.0, "auto", 1e9)],
)
def test_a_stream_ends_near_a_fit_on_all_rows(rows, scale, n_inducing, unit):
    """
    A first batch of one row, or with targets of another scale, is forgotten: noise and scales
    follow from all rows, in any unit.
    """
    local = np.random.default_rng(3)
    t = np.sort(local.uniform(0.0, 10.0, 100))
    values = 5.0 + np.sin(t) + 0.1 * local.normal(size=100)
    values[:rows] = values[0] + scale * (values[:rows] - values[0])
    X = unit * np.stack([t, np.cos(7.0 * t)], axis=1)
    y = unit * values
    estimator = SparseGPRegressor(n_inducing=n_inducing, random_state=0)
    for part in np.split(np.arange(100), [rows, 40, 70]):
        estimator.partial_fit(X[part], y[part])
    expected = SparseGPRegressor(random_state=0).fit(X, y).predict(X)
    # Two thirds of the noise: optima differ by less than the 0.05 of a nat per row that a tenth of
    # its variance costs.
    assert np.sqrt(np.mean(np.square(estimator.predict(X) - expected))) < 0.067 * unit


def test_a_stream_whose_y_jumps_warns_once_a_batch():
    """
    The first batch of y has mean 2 and standard deviation 3, which count without normalization too.
    """
    first = 2.0 + 3.0 * np.tile([-1.0, 1.0], 10)
    X = line(0.0, 1.0, 40)
    estimator = SparseGPRegressor(optimizer=None, random_state=0, normalize_y=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.partial_fit(X[:20], first)
        estimator.partial_fit(X[20:], 2.0 + 0.999e3 * (first - 2.0))
        assert not [each for each in caught if "first batch" in str(each.message)]
        estimator.partial_fit(X[20:], 2.0 + 1.001e3 * (first - 2.0))
    messages = [str(each.message) for each in caught if "first batch" in str(each.message)]
    assert len(messages) == 1
    assert "got y up to 1e+03 standard deviations away from its mean, more than 1000" in messages[0]
    assert "call fit on rows that span the new range" in messages[0]


def test_a_stream_whose_y_shrinks_warns():
    """Not if a batch has few rows, or equal y: these say little about the scale."""
    first = 2.0 + 3.0 * np.tile([-1.0, 1.0], 10)
    X = line(0.0, 1.0, 20)
    estimator = SparseGPRegressor(optimizer=None, random_state=0).partial_fit(X, first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.partial_fit(X, 2.0 + 3.1e-3 * (first - 2.0))
        estimator.partial_fit(X[:9], 2.0 + 1e-3 * (first[:9] - 2.0))
        estimator.partial_fit(X, np.full(20, 2.0))
    with pytest.warns(UserWarning, match="a standard deviation 1e[+]03 times smaller.*call fit"):
        estimator.partial_fit(X, 2.0 + 1e-3 * (first - 2.0))


def test_a_stream_in_extreme_units():
    """No square of X is needed: powers of the unit would leave floating point range."""
    X = np.random.default_rng(5).uniform(0.0, 5.0, [20, 1])
    y = np.sin(X[:, 0])
    found = []
    for each in (1.0, 1e-300, 1e200):
        estimator = SparseGPRegressor(optimizer=None)
        for rows in (slice(10), slice(10, 20)):
            estimator.partial_fit(each * X[rows], y[rows])
        found.append(estimator.predict(each * X))
    # Kernel matrices differ by rounding, which a condition number up to 1/jitter = 1e6 amplifies.
    assert_allclose(found[1:], found[:1] * 2, atol=1e-8)


def test_a_batch_too_far_away_is_refused(X, y):
    """The variance of the linear trend is so large that the Cholesky decomposition of Kuu fails."""
    estimator = SparseGPRegressor(optimizer=None).partial_fit(X[:20], y[:20])
    expected = estimator.predict(X)
    for further in (X[20:] + 1e9, 1e200 * X[20:]):
        with refused(r"X must be nearer to the earlier batches.*Call fit"):
            estimator.partial_fit(further, y[20:])
    assert_array_equal(estimator.predict(X), expected)


def test_rows_that_are_copies(X, y):
    """All four distinct rows are inducing points, and fewer if fewer are asked for."""
    rows = np.tile(X[:4], (5, 1))
    estimator = SparseGPRegressor(n_inducing=10, optimizer=None).fit(rows, y[:20])
    assert estimator.n_inducing_ == 4
    assert_array_equal(
        np.sort(estimator.model_.inducing_variable.Z, axis=0), np.sort(X[:4], axis=0)
    )
    assert estimator.set_params(n_inducing=3).fit(rows, y[:20]).n_inducing_ == 3


def test_auto(X, y):
    """
    The estimator uses the selected number and stores the selection; a fit with a given number
    removes it.
    """
    estimator = SparseGPRegressor(n_inducing="auto", alpha=0.0, max_iterations=15).fit(X, y)
    found = estimator.num_inducing_selection_
    assert found.num_inducing == estimator.n_inducing_ in (16, 32, 60)
    assert found.numbers[0] == 16 and estimator.model_ is found.model
    objective = found.objectives[found.numbers == found.num_inducing] * len(X)
    assert_allclose(estimator.log_marginal_likelihood_value_, objective[0], rtol=1e-9)
    assert estimator.score(X, y) > 0.9
    again = estimator.set_params(optimizer=None).partial_fit(X[:20], y[:20])  # keeps the number
    assert again.n_inducing_ == found.num_inducing
    assert not hasattr(estimator.set_params(n_inducing=6).fit(X, y), "num_inducing_selection_")


def test_given_kernels_are_copied(X, y):
    kernel = Matern52(lengthscales=3.0) + White(0.1)
    before = read_values(kernel)
    estimator = small(kernel, max_iterations=3).fit(X, y)
    assert estimator.kernel is kernel and estimator.kernel_ is not kernel
    assert_equal(read_values(kernel), before)
    assert estimator.kernel_.kernels[0].lengthscales.numpy() != 3.0


def test_tables_of_pandas(X, y):
    """
    Column names are kept, and their order checked; nullable columns are numbers, missing values
    refused.
    """
    table = pd.DataFrame(X, columns=["width", "height"], index=np.arange(60)[::-1])
    estimator = small(max_iterations=3)
    expected = estimator.fit(X, y).predict(X)
    for nullable in (table, table.astype("Float64")):
        estimator.fit(nullable, pd.Series(y, dtype=nullable.dtypes.iloc[0]))
        assert_array_equal(estimator.predict(nullable), expected)
    missing = table.astype("Float64")
    missing.iloc[3, 1] = pd.NA
    with refused("X must hold no missing values, got 1 in column 'height'"):
        estimator.fit(missing, y)
    infinite = table.assign(height=np.inf)
    match = f"X must hold no infinite values, got {len(table)} in column 'height': drop these rows"
    with refused(match):
        estimator.predict(infinite)
    wide = pd.DataFrame(np.full((60, 7), np.nan))
    with refused(r"60 in column 4 and some in 2 more columns: .*Imputer"):
        estimator.fit(wide, y)
    with refused(r"y must .* got 1 in column 'height': drop these rows\.$"):
        estimator.fit(X, missing[["height"]])
    with refused("Input y contains NaN"):
        estimator.fit(X, missing["height"])


def test_weights_are_refused(X, y):
    """`fit` has no `sample_weight`, for scikit-learn and for Python; `score` has."""
    estimator = small(max_iterations=3)
    assert not has_fit_parameter(estimator, "sample_weight")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weight'"):
        estimator.fit(X, y, sample_weight=np.ones(60))
    with sklearn.config_context(enable_metadata_routing=True):
        assert not hasattr(estimator, "set_fit_request")
    assert estimator.fit(X, y).score(X, y, sample_weight=np.arange(60)) > 0.5


def test_rejects_invalid_parameters(X, y):
    for parameters, message in [
        ({"kernel": "rbf"}, r"kernel must be a gpflow\.kernels\.Kernel or None, got str"),
        (
            {"kernel": Matern52},
            r"kernel must be .* or None, got the class Matern52: construct it, Matern52\(\)",
        ),
        (
            {"n_inducing": "some"},
            "n_inducing must be a whole number of at least 1, or \"auto\", got 'some'",
        ),
        ({"n_inducing": 0}, "n_inducing must be a whole number from 1"),
        ({"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1.5"),
        ({"alpha": "best"}, r'^alpha must be a number in \[0, 1\] or "auto", got \'best\'\.$'),
        (
            {"alpha": "auto", "n_inducing": "auto"},
            r'^n_inducing must be a number if alpha is "auto", got \'auto\'\.$',
        ),
        (
            {"optimizer": "fmin_l_bfgs_b"},
            """"adam" or None, got 'fmin_l_bfgs_b': give optimizer="lbfgs".""",
        ),
        ({"optimizer": 3}, "optimizer must be"),
        ({"max_iterations": 0}, "max_iterations must be a whole number from 1"),
        ({"noise_variance": -1.0}, "noise_variance must be a positive number, got -1.0"),
        ({"normalize_y": "no"}, "normalize_y must be True or False, got 'no'"),
        ({"train_inducing": "no"}, "train_inducing must be True, False or None, got 'no'"),
    ]:
        with refused(message):
            SparseGPRegressor(**parameters).fit(X, y)


def test_attributes_before_a_fit():
    estimator = SparseGPRegressor()
    for attribute in ("kernel_", "n_inducing_"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(estimator, attribute)


def test_targets_whose_normalization_is_out_of_range(X, y):
    """The sum of the targets is out of range; if only squares are, they are normalized."""
    for factor in (1e-170, 1e160):
        estimator = small(optimizer=None).fit(X, factor * y)
        assert np.corrcoef(estimator.predict(X) / factor, y)[0, 1] > 0.4
    in_ones = small(optimizer=None).fit(X, y)
    expected = in_ones.sample_y(X, 3, random_state=0)
    for factor in (1e-170, 1e160):
        estimator = clone(in_ones).fit(X, factor * y)
        with refused(r"squares of y, .* not within floating point range"):
            estimator.predict(X, return_cov=True)
        samples = estimator.sample_y(X, 3, random_state=0)
        # A root of the covariance, whose rounding of 1e-16 becomes one of 1e-8.
        assert_allclose(samples / factor, expected, atol=1e-6 * y.std())
    factor = 1e306
    message = r"y must have mean and standard deviation within .* got values up to 1\.\d+e"
    with refused(message):
        small(optimizer=None).fit(X, factor * y)


@pytest.mark.filterwarnings("ignore:Stopped, and the last good parameters restored")
@pytest.mark.parametrize("make", [SparseGPRegressor, SparseGPClassifier])
@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (1e304, "X must be at most 2e[+]302 in absolute value"),
        (1e-304, "deviation of at least 2e-302"),
    ],
)
def test_columns_out_of_range_are_refused(X, y, make, unit, message):
    rows = np.column_stack([X, unit * X[:, 0], np.full(60, 3.0)])
    with refused(f"{message}.* in column 2: try another unit"):
        make().fit(rows, y > 100.0)


def test_a_first_step_that_fails(X, y):
    """The initial parameters are restored, and the warning gives the reason."""
    estimator = small(optimizer="adam", learning_rate=1e5, max_iterations=5)
    with pytest.warns(ConvergenceWarning, match="Training failed: ") as warned:
        estimator.fit(X, y)
    assert estimator.result_.status == "failed" and not estimator.result_.objective
    assert any(estimator.result_.reason in str(each.message) for each in warned)
    start = small(optimizer=None).fit(X, y)
    assert_allclose(estimator.predict(X), start.predict(X), **SAME)
    assert_allclose(
        estimator.log_marginal_likelihood_value_, start.log_marginal_likelihood_value_, rtol=1e-9
    )


def test_a_large_default_jitter(X, y):
    """The largest jitter, 1e-3, exceeds the default jitter."""
    for jitter, largest in ((1e-6, 1e-3), (1e-2, 0.1)):
        with configured(jitter=jitter):
            estimator = small(optimizer=None).fit(X, y)
        assert_allclose(estimator.model_.max_jitter, largest, rtol=1e-12)


def test_masks_are_refused(X, y):
    """scikit-learn would ignore masks."""
    masked = np.ma.masked_greater(X, 5.0)
    estimator = small(optimizer=None).fit(X, y)
    for name, call in (
        ("X", lambda: estimator.fit(masked, y)),
        ("y", lambda: estimator.fit(X, np.ma.masked_greater(y, 5.0))),
        ("X", lambda: estimator.predict(masked)),
    ):
        with refused(f"{name} must be an array without a mask, got a mask"):
            call()


def test_constant_columns_and_targets(X):
    """Their scale is 1."""
    rows = np.stack([X[:, 0], np.full(60, 7.0)], axis=1)
    estimator = small(max_iterations=3).fit(rows, np.full(60, 40.0))
    assert_allclose(estimator.predict(rows), 40.0, rtol=1e-6)


def test_noise_of_a_stream_with_few_points_is_the_noise_of_its_rows():
    """
    Eight batches of 60 rows of 3 sin(x), with noise of standard deviation 1: 480 rows determine it
    to 3 %, and ten points represent the function to a few percent of it. At 0.5 it is 10 % larger.
    """
    rng = np.random.default_rng(0)
    estimator = SparseGPRegressor(n_inducing=10, random_state=0)
    for _ in range(8):
        X = rng.uniform(0.0, 10.0, (60, 1))
        estimator.partial_fit(X, 3.0 * np.sin(X[:, 0]) + rng.normal(size=60))
    _, std = estimator.predict(X, return_std=True)
    assert estimator.alpha_ == 0.0
    assert 0.93 < std.mean() < 1.07
