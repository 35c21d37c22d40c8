"""What PEPClassifier keeps: sites that go stale, data, compiled functions, copies, checkpoints; and what it refuses."""

import copy
import dataclasses
import inspect
import math
import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import HeteroskedasticTFPConditional, MultiClass

from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(11)
X = rng.uniform(-2.0, 2.0, (14, 2))
Y = np.where(X[:, :1] * X[:, 1:] + 0.3 * rng.normal(size=(14, 1)) > 0.0, 1.0, 0.0)
XNEW = rng.uniform(-2.0, 2.0, (5, 2))
Z = X[:5] + 0.1
COMPILED = tf.function(tf.identity)


def make(**options):
    parts = {"mean_function": gpflow.functions.Constant(0.1), **options}
    return PEPClassifier((X, Y), SquaredExponential(2.0, lengthscales=[0.8, 1.1]), Probit(), Z.copy(), **parts)


@pytest.fixture(scope="module")
def _shared():
    model = make()
    model.update_sites(tol=1e-8)
    return model


@pytest.fixture
def model(_shared):
    """Always the same, compiled once, as it was in the beginning: its sites have converged and are not stale."""
    values = gpflow.utilities.read_values(_shared)
    yield _shared
    _shared.data = (X, Y)
    _shared.alpha = 0.5
    _shared.when_stale = "warn"
    gpflow.utilities.multiple_assign(_shared, values)
    _shared.reset_sites()
    _shared.update_sites(tol=1e-8)
    assert not _shared.is_stale


def sites(model):
    return np.stack([model.sites.precision, model.sites.linear])


CHANGES = {
    "variance": lambda model: model.kernel.variance.assign(2.5),
    "lengthscales": lambda model: model.kernel.lengthscales.assign([0.8, 1.2]),
    "Z": lambda model: model.inducing_variable.Z.assign(Z + 0.01),
    "mean": lambda model: model.mean_function.c.assign(0.2),
    "alpha": lambda model: setattr(model, "alpha", 0.6),
    "alpha by assign": lambda model: model.alpha.assign(0.6),
    "data": lambda model: setattr(model, "data", (X, 1.0 - Y)),
    "more data": lambda model: setattr(model, "data", (X[:9], Y[:9])),
    "reset": lambda model: model.reset_sites(),
    "one update": lambda model: model.update_sites_once(),
    "minibatches": lambda model: list(model.minibatches(7)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_is_stale(model, change):
    assert not model.is_stale
    CHANGES[change](model)
    assert model.is_stale
    model.update_sites()
    assert not model.is_stale


def test_a_new_model_is_stale():
    assert make().is_stale


def test_predictions_do_not_make_it_stale(model):
    for predict in (model.predict_f, model.predict_y):
        predict(XNEW)
    model.loo_log_predictive_density()
    model.maximum_log_likelihood_objective()
    assert not model.is_stale


@pytest.mark.filterwarnings("error")
def test_no_warning_while_it_is_fresh(model, capfd):
    model.predict_f(XNEW), model.posterior(), model.compute_qu()
    tf.function(model.predict_f)(XNEW)
    assert "gpflow_pep" not in capfd.readouterr().err


def test_predictions_warn_once():
    stale = make()  # what warned once is quiet ever after, so it is a new one
    with pytest.warns(UserWarning, match=r"changed since the sites were last updated.*update_sites\(\)"):
        first = stale.predict_f(XNEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = stale.predict_f(XNEW)
    for actual, expected in zip(again, first, strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_allclose(first[0], 0.1, rtol=1e-15)  # sites that say nothing: the prior
    assert stale.is_stale


def test_a_compiled_prediction_prints(model, capfd):
    predict = tf.function(model.predict_f)
    predict(XNEW)
    assert "gpflow_pep" not in capfd.readouterr().err
    model.kernel.variance.assign(2.5)
    predict(XNEW)
    assert "changed since the sites were last updated" in capfd.readouterr().err
    model.update_sites()
    predict(XNEW)
    assert "gpflow_pep" not in capfd.readouterr().err
    assert predict.experimental_get_tracing_count() == 1


def test_refresh(model):
    """Predictions converge the sites first: with those of a model that was updated by hand."""
    model.when_stale = "refresh"
    model.kernel.variance.assign(2.5)
    mean, variance = model.predict_f(XNEW)
    assert not model.is_stale
    model.when_stale = "warn"
    model.update_sites(tol=1e-9)  # the default is 1e-6 of a standard deviation, about 1 here
    expected = model.predict_f(XNEW)
    np.testing.assert_allclose(mean, expected[0], rtol=0.0, atol=1e-5)
    np.testing.assert_allclose(variance, expected[1], rtol=0.0, atol=1e-5)


def test_data_of_another_size_reset_the_sites(model):
    model.data = (X[:9], Y[:9])
    assert sites(model).shape == (2, 9, 1) and not sites(model).any()
    assert model.update_sites().converged
    assert model.loo_log_predictive_density().shape == [9]
    with pytest.raises(ValueError, match=r"data \(X\) must keep 2 columns, got 1"):
        model.data = (X[:, :1], Y)
    with pytest.raises(ValueError, match=r"data \(Y\) must keep 1 columns, got 2"):
        model.data = (X, np.hstack([Y, Y]))
    assert sites(model).shape == (2, 9, 1) and sites(model).all()


def test_reset_sites(model):
    """Without sites q is the prior, and the energy at them, for alpha = 1, the product of what the prior predicts."""
    model.alpha = 1.0
    model.reset_sites()
    assert not sites(model).any()
    z = (2.0 * Y - 1.0) * 0.1 / np.sqrt(1.0 + 2.0)
    expected = np.sum(np.log(0.5 + 0.5 * np.vectorize(math.erf)(z / np.sqrt(2.0))))
    assert float(model.maximum_log_likelihood_objective()) == pytest.approx(expected, rel=1e-12)


# --- compiled functions ---------------------------------------------------------------------------------------------


def traces(model):
    """How often any function that belongs to the model was traced."""
    kind, of = type(COMPILED), type(model)
    functions = [getattr(model, name) for name in dir(of) if isinstance(inspect.getattr_static(of, name), kind)]
    return sum(function.experimental_get_tracing_count() for function in functions)


def test_nothing_is_traced_again(model):
    def use():
        model.update_sites()
        model.update_sites_once()
        model.update_sites(batch_size=4)
        list(model.minibatches(7))
        model.update_sites()
        model.loo_log_predictive_density()

    use()
    model.data = (X[:11], Y[:11])  # sizes of minibatches may be relaxed once
    use()
    before = traces(model)
    assert before >= 5
    for change in ("variance", "Z", "mean", "alpha", "data", "more data"):
        CHANGES[change](model)
        use()
    assert traces(model) == before


def test_replaced_parts_are_seen():
    """By compiled updates, as the energy, computed eagerly, sees them: a parameter, the kernel, the likelihood."""
    model = make()

    def replaced(part, name, value):
        before = model.update_sites(tol=1e-8).log_evidence
        setattr(part, name, value)
        assert abs(float(model.maximum_log_likelihood_objective()) - before) > 1e-4
        now = model.update_sites(tol=1e-8).log_evidence
        assert now == pytest.approx(float(model.maximum_log_likelihood_objective()), rel=1e-12)
        return now

    model.kernel.variance.assign(3.0)
    expected = model.update_sites(tol=1e-8).log_evidence
    model.kernel.variance.assign(2.0)
    # The energy is stationary, so that sites off by 1e-8 leave 1e-14; but rounding.
    parameter = gpflow.Parameter(3.0, transform=gpflow.utilities.positive())
    assert replaced(model.kernel, "variance", parameter) == pytest.approx(expected, rel=1e-10)
    replaced(model, "kernel", Matern52(0.7))
    replaced(model, "likelihood", gpflow.likelihoods.Bernoulli())


def test_settings_that_are_no_parameters_are_seen():
    """By staleness and by compiled updates: jitter, projection, plain attributes of a likelihood."""
    likelihood = gpflow.likelihoods.StudentT(scale=0.4, df=3.0)
    model = PEPClassifier((X, X[:, :1] * X[:, 1:]), SquaredExponential(2.0), likelihood, Z.copy())
    structures = {model._current_structure()}
    fingerprints = [model._parameter_values().numpy()]
    with gpflow.config.as_context(dataclasses.replace(gpflow.config.config(), jitter=1e-2)):
        structures.add(model._current_structure())
        fingerprints.append(model._parameter_values().numpy())
        # The energy, eagerly, is that of a sweep with the jitter.
        now = model.update_sites(tol=1e-8).log_evidence
        assert now == pytest.approx(float(model.maximum_log_likelihood_objective()), rel=1e-12)
        assert not model.is_stale
    assert model.is_stale
    likelihood.df = 30.0
    structures.add(model._current_structure())
    fingerprints.append(model._parameter_values().numpy())
    model.projection = "wasserstein"
    structures.add(model._current_structure())
    fingerprints.append(model._parameter_values().numpy())
    assert len(structures) == 4
    assert len({tuple(values) for values in fingerprints}) == 4
    assert model._current_structure() in structures  # and it stays


def test_a_replaced_likelihood_makes_it_stale(model):
    before, model.likelihood = model.likelihood, gpflow.likelihoods.Bernoulli()
    is_stale = model.is_stale
    model.likelihood = before
    assert is_stale


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [gpflow.utilities.deepcopy, copy.deepcopy], ids=["gpflow", "copy"])
def test_a_copy_has_sites_of_its_own(model, duplicate):
    before, predictions = sites(model), model.predict_f(XNEW)
    other = duplicate(model)
    assert not other.is_stale
    np.testing.assert_array_equal(sites(other), before)
    other.kernel.variance.assign(5.0)
    other.alpha = 1.0
    assert other.update_sites().converged
    assert np.abs(sites(other) - before).max() > 0.01
    np.testing.assert_array_equal(sites(model), before)
    assert not model.is_stale
    for actual, expected in zip(model.predict_f(XNEW), predictions, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_a_checkpoint_restores_the_sites(model, tmp_path):
    model.kernel.variance.assign(3.0)
    model.update_sites()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "sites"))
    fresh = make()
    tf.train.Checkpoint(model=fresh).restore(path).assert_consumed()
    np.testing.assert_array_equal(sites(fresh), sites(model))
    assert not fresh.is_stale
    for actual, expected in zip(fresh.predict_f(XNEW), model.predict_f(XNEW), strict=True):
        np.testing.assert_array_equal(actual, expected)


def exported(model, path):
    model.predict = tf.function(
        lambda Xnew: model.predict_y(Xnew), input_signature=[tf.TensorSpec([None, 2], tf.float64)]
    )
    tf.saved_model.save(model, str(path))
    return tf.saved_model.load(str(path))


def test_an_export_predicts(tmp_path):
    """Sites, kernel and likelihood go with it: probabilities are those of the model, to rounding."""
    model = make()
    model.update_sites()
    expected = model.predict_y(XNEW)
    loaded = exported(model, tmp_path)
    for actual, value in zip(loaded.predict(XNEW), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=0.0, atol=1e-13)


def test_an_export_after_minibatches(model, tmp_path):
    list(model.minibatches(7))
    model.update_sites()
    expected = model.predict_y(XNEW)
    try:
        loaded = exported(model, tmp_path)
    finally:
        del model.predict
    for actual, value in zip(loaded.predict(XNEW), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=0.0, atol=1e-13)


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.1}, "alpha must be in"),
        ({"alpha": -1e-9}, "alpha must be in"),
        ({"alpha": np.nan}, "alpha must be in"),
        ({"alpha": [0.5, 0.5]}, "alpha must be one number"),
        ({"alpha": "much"}, "alpha must be"),
        ({"projection": "Wasserstein"}, "projection must be one of 'kl', 'wasserstein', got 'Wasserstein'"),
        ({"when_stale": "ignore"}, 'when_stale must be "warn" or "refresh", got \'ignore\''),
        ({"num_latent_gps": 2}, "num_latent_gps must be 1 for these data and likelihood, got 2"),
        ({"chunk_size": 0}, "chunk_size must be a whole number"),
        ({"max_jitter": -1.0}, "max_jitter must be a positive number"),
        ({"mean_function": 3.0}, "mean_function must be a gpflow function"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize(
    "likelihood", [HeteroskedasticTFPConditional(), "probit", None], ids=lambda v: type(v).__name__
)
def test_likelihoods_without_a_rule(likelihood):
    message = f"likelihood must be a gpflow ScalarLikelihood, .*Softmax: .* of {type(likelihood).__name__} are"
    with pytest.raises(ValueError, match=message):
        PEPClassifier((X, Y), SquaredExponential(), likelihood, Z)


def test_no_quantile_propagation_of_several_classes():
    with pytest.raises(ValueError, match='projection must be "kl" for MultiClass, got'):
        PEPClassifier((X, Y), SquaredExponential(), MultiClass(3), Z, projection="wasserstein")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tol": 0.0}, "tol"),
        ({"tol": np.nan}, "tol"),
        ({"max_sweeps": 0}, "max_sweeps"),
        ({"max_sweeps": 2.5}, "max_sweeps"),
        ({"damping": 1.5}, "damping"),
        ({"damping": 0.0}, "damping"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 3.0}, "batch_size"),
    ],
)
def test_refused_by_updates(model, options, name):
    before = sites(model)
    with pytest.raises(ValueError, match=f"^{name} must be"):
        model.update_sites(**options)
    np.testing.assert_array_equal(sites(model), before)
    assert not model.is_stale


@pytest.mark.parametrize(
    "update",
    [
        lambda model: model.update_sites_once(damping=50.0),
        lambda model: model.minibatches(5, damping=-1.0),
        lambda model: model.minibatches(-5),
        lambda model: model.minibatches(2.5),
    ],
)
def test_refused_by_single_updates(model, update):
    """At the door, before anything is computed."""
    with pytest.raises(ValueError, match=r"^(damping|batch_size) must be"):
        update(model)
    assert not model.is_stale


def test_sites_survive_what_cannot_be_updated(model):
    before = sites(model)
    model.mean_function.c.unconstrained_variable.assign(np.nan)
    with pytest.raises(FloatingPointError, match="NaN, infinite or overflowing"):
        model.update_sites()
    np.testing.assert_array_equal(sites(model), before)


def test_alpha_is_set_within_its_range(model):
    for wrong in (1.5, -0.1, np.nan, [0.1, 0.2]):
        with pytest.raises(ValueError, match="alpha must be"):
            model.alpha = wrong
    assert float(model.alpha) == 0.5
    model.alpha.assign(1.5)  # past the door
    with pytest.raises(tf.errors.InvalidArgumentError, match="alpha must be in"):
        model.update_sites()
