"""
The contract for models of three classes, or with a q(u) of their own and data from outside. Most have the robust-max
likelihood, whose probabilities have a relative error of 1e-10 or less; those for Gaussian noise see a column for every
class.
"""

import contextlib
import functools
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.kernels import SeparateIndependent, SquaredExponential
from gpflow.utilities import freeze, multiple_assign, read_values
from model_registry import CLASSES, SITES
from quick import some_slow
from scipy.stats import norm

from gpflow_pep import MultiClassRobustMax

N, M, C = 12, 4, 3
SPEC = [tf.TensorSpec([None, 2], tf.float64)]
EXACT = 1e-11  # Other orders of sums: as for the models of the registry, or without a graph, as in first calls.
FORMS = {
    (False, False): lambda n: [n, C],
    (True, False): lambda n: [C, n, n],
    (False, True): lambda n: [n, C, C],
    (True, True): lambda n: [n, C, n, C],
}
XNEW = np.random.default_rng(42).uniform(-2.5, 2.5, size=(7, 2))


def make_data(seed=0):
    """Labels of a noisy largest function."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    F = np.sin(1.5 * X[:, :1] + 2.0 * np.arange(C)) + 0.5 * X[:, 1:] * (np.arange(C) - 1.0)
    return X, np.argmax(F + 0.3 * rng.normal(size=(N, C)), axis=1)[:, None].astype(float)


def parts(separate=False):
    """Kernel, likelihood and inducing variable; the likelihood's epsilon is trained too."""
    likelihood = MultiClassRobustMax(C, 0.02)
    gpflow.set_trainable(likelihood.epsilon, True)
    Z = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.8, 0.9]])
    if not separate:
        return SquaredExponential(1.2, lengthscales=[0.8, 1.1]), likelihood, Z
    kernels = [SquaredExponential(1.2 + 0.3 * c, lengthscales=[0.8, 1.1 - 0.1 * c]) for c in range(C)]
    points = [InducingPoints(Z + 0.1 * c) for c in range(C)]
    return SeparateIndependent(kernels), likelihood, SeparateIndependentInducingVariables(points)


def mean():
    return gpflow.functions.Constant(np.array([0.2, 0.0, -0.1], gpflow.default_float()))


def with_sites(entry, seed, *, separate=False, **options):
    kernel, likelihood, points = parts(separate)
    tol = 1e-12 if gpflow.default_float() == np.float64 else 1e-4
    return entry.constructor(make_data(seed), kernel, likelihood, points, tol=tol, mean_function=mean(), **options)


def own_q(entry, seed, labels, **options):
    rng = np.random.default_rng(100 + seed)
    q_mu, q_sqrt = rng.normal(size=(M, C)), np.tril(0.2 * rng.normal(size=(C, M, M))) + 0.6 * np.eye(M)
    kernel, robust_max, Z = parts()
    options |= {"num_data": N, "mean_function": mean(), "q_mu": q_mu, "q_sqrt": q_sqrt}
    return entry.constructor(kernel, robust_max if labels else gpflow.likelihoods.Gaussian(0.2), Z, **options)


def in_midstream(model):
    """With a batch behind it, since when q(u) and the inducing points have moved."""
    model.update(make_data(99))
    model.q_mu.assign(0.5 * model.q_mu + 0.3)
    model.inducing_variable.Z.assign(model.inducing_variable.Z + 0.1)
    return model


def new(name, seed=0, fitted=True):
    """
    A model of the registry, every time the same: of other data or another q(u) by its seed, and where it is not to be
    fitted without sites, or a batch behind it.
    """
    entry, setting = CLASSES[name]
    if entry.family == SITES:
        return with_sites(entry, seed, **setting.options)
    model = own_q(entry, seed, setting.labels, **setting.options)
    return in_midstream(model) if entry.is_stream and fitted else model


def is_gaussian(model):
    return isinstance(model.likelihood, gpflow.likelihoods.Gaussian)


def observations(model, Y):
    """Labels, or what a Gaussian likelihood sees of them."""
    return np.eye(C)[Y[:, 0].astype(int)] if is_gaussian(model) else Y


def data_for(model, seed=0):
    X, Y = make_data(seed)
    return X, observations(model, Y)


def holds_data(model):
    return hasattr(model, "data")


def loss_of(model):
    return model.training_loss if holds_data(model) else functools.partial(model.training_loss, data_for(model))


def compiled_loss_of(model):
    return model.training_loss_closure(*(() if holds_data(model) else (data_for(model),)), compile=True)


def settle(model):
    """
    Let sites converge. Where classes were shifted their sums are those of the sites but for rounding; from the next
    evaluation on results repeat.
    """
    loss_of(model)()


def settings(model):
    """What is chosen, not learned: variables other than the trainable ones that the objective reads."""
    held = [*model.data, model.sites.precision, model.sites.linear] if holds_data(model) else [model.num_data]
    return held + ([model.alpha] if hasattr(model, "alpha") else [])


def choose_others(model):
    """Another alpha, other data or another number of them."""
    if hasattr(model, "alpha"):
        model.alpha = 0.4
    if not holds_data(model):
        model.num_data = 2 * N
        return
    X, Y = (values.numpy() for values in model.data)
    model.data = X, (Y + 1.0) % C


def value_and_gradient(model, loss):
    with tf.GradientTape() as tape:
        value = loss()
    return value, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, model.trainable_variables)]


QUICK = ("PEPClassifier of classes", "ARPEP", "TSVGP")


@pytest.fixture(params=some_slow(CLASSES, quick=QUICK))
def name(request):
    return request.param


@pytest.fixture
def make(name):
    return functools.partial(new, name)


@functools.cache
def shared(name):
    """One with sites takes seconds to compile; tests share it."""
    model = new(name)
    return model, compiled_loss_of(model)


@contextlib.contextmanager
def left_as_it_was(model):
    before = [(variable, variable.numpy()) for variable in (*model.trainable_variables, *settings(model))]
    yield
    for variable, value in before:
        variable.assign(value)


@pytest.fixture
def model(name):
    if not name.startswith("PEPClassifier"):
        yield new(name)
        return
    model, _ = shared(name)
    with left_as_it_was(model):
        yield model


@pytest.fixture
def compiled(name):
    """A model and its compiled objective, which takes seconds: tests share it, and leave it as it was."""
    model, closure = shared(name)
    with left_as_it_was(model):
        yield types.SimpleNamespace(model=model, loss=closure)


# --- the objective --------------------------------------------------------------------------------------------------


def test_every_variable_has_a_derivative(compiled):
    """Finite and not zero, and compiled what it is eagerly to 1e-12: other orders of a few sums, 100 eps or so."""
    model = compiled.model
    loss, gradients = value_and_gradient(model, loss_of(model))
    assert loss.shape == () and loss.dtype == tf.float64
    assert len(gradients) >= 5  # two of the kernel, epsilon or the noise, Z, mean
    compiled_loss, compiled_gradients = value_and_gradient(model, compiled.loss)
    assert float(compiled_loss) == pytest.approx(float(loss), rel=1e-12)
    for variable, gradient, other in zip(model.trainable_variables, gradients, compiled_gradients, strict=True):
        assert gradient.shape == variable.shape
        assert np.all(np.isfinite(gradient)) and np.any(gradient), variable.name
        np.testing.assert_allclose(other, gradient, rtol=0, atol=1e-12 * max(1.0, np.abs(gradient).max()))


def slope_and_difference(model, loss):
    """Along one direction of all variables, of length 1: the derivative, and a difference of fourth order, h = 2e-3."""
    rng, h, variables = np.random.default_rng(1), 2e-3, model.trainable_variables
    direction = [rng.normal(size=variable.shape) for variable in variables]
    length = np.sqrt(sum(np.sum(np.square(part)) for part in direction))
    before = [variable.numpy() for variable in variables]
    value, gradients = value_and_gradient(model, loss)
    slope = sum(float(tf.reduce_sum(part * gradient)) for part, gradient in zip(direction, gradients, strict=True))
    values = []
    for steps in (1, -1, 2, -2, 0):
        for variable, start, part in zip(variables, before, direction, strict=True):
            variable.assign(start + steps * h * part / length)
        values.append(float(loss()))
    assert values[-1] == pytest.approx(float(value), rel=1e-12)
    return slope / length, (8.0 * (values[0] - values[1]) - (values[2] - values[3])) / (12.0 * h)


def test_derivatives_equal_finite_differences(compiled):
    """
    The rule's error, h^4/30 times a fifth derivative of up to 1e3, is below 1e-9; rounding of 30 nats is 1e-11. That of
    N probabilities, 1e-10 of each, is smooth, and so is 1e-9 of the derivatives too.
    """
    slope, difference = slope_and_difference(compiled.model, compiled.loss)
    assert abs(slope) > 0.1
    assert slope == pytest.approx(difference, rel=0.0, abs=1e-8)


def test_derivatives_of_a_stream_whose_points_stay():
    """
    In all variables but Z. In Z the bound jumps there, by some 10 times the jitter: an old and a new inducing point at
    one place share it, and are two with one each otherwise.
    """
    model = new("StreamingSVGP")
    model.update(make_data(98))
    gpflow.set_trainable(model.inducing_variable, False)
    slope, difference = slope_and_difference(model, loss_of(model))
    assert abs(slope) > 0.1
    assert slope == pytest.approx(difference, rel=0.0, abs=1e-8)


def test_scipy_improves_the_objective(compiled):
    before = float(compiled.loss())
    result = gpflow.optimizers.Scipy().minimize(
        compiled.loss, compiled.model.trainable_variables, compile=False, options={"maxiter": 6}
    )
    after = float(loss_of(compiled.model)())
    assert after < before - 1.0
    assert after == pytest.approx(float(result.fun), rel=1e-12)


def test_adam_improves_the_objective(compiled):
    optimizer = tf_keras.optimizers.Adam(0.02)
    losses = [float(compiled.loss())]
    for _ in range(8):
        optimizer.minimize(compiled.loss, compiled.model.trainable_variables)
        losses.append(float(compiled.loss()))
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] - 0.3


def test_a_compiled_objective_is_traced_once(compiled, contract):
    """Whatever changes: variables, alpha, data or their number. What it gives is what it gives eagerly."""
    model, loss = compiled.model, loss_of(compiled.model)
    seen = [float(compiled.loss())]
    for seed in range(2):
        contract.perturb(model, seed, size=0.1)
        seen.append(float(compiled.loss()))
        assert seen[-1] == pytest.approx(float(loss()), rel=1e-12)
    choose_others(model)
    seen.append(float(compiled.loss()))
    assert seen[-1] == pytest.approx(float(loss()), rel=1e-12)
    assert np.min(np.abs(np.diff(seen))) > 1e-2
    assert compiled.loss.experimental_get_tracing_count() == 1


# --- what is not a number -------------------------------------------------------------------------------------------


def stops(evaluate, match=r"finite|NaN"):
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        evaluate()


def test_a_variable_that_is_no_number(compiled):
    """
    Predictions of f do not read what is the likelihood's, unless they converge sites first; those of observations read
    everything.
    """
    model = compiled.model
    settle(model)
    expected, predict = float(compiled.loss()), tf.function(lambda: model.predict_f(XNEW))
    before = predict()
    for variable in model.trainable_variables:
        value = variable.numpy()
        variable.assign(np.full_like(value, np.nan))
        stops(compiled.loss)
        stops(loss_of(model))
        if holds_data(model) or all(variable is not other for other in model.likelihood.trainable_variables):
            stops(predict)
            stops(lambda: model.predict_f(XNEW, full_cov=True))
            stops(lambda: model.posterior().predict_f(XNEW))
        stops(lambda: model.predict_y(XNEW))
        stops(lambda: model.predict_log_density((XNEW, observations(model, np.zeros((len(XNEW), 1))))))
        variable.assign(value)
    assert float(compiled.loss()) == expected
    for actual, wanted in zip(predict(), before, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_to_predict_at(model, bad):
    Xnew = XNEW.copy()
    Xnew[3, 1] = bad
    posterior = model.posterior()
    for predict in (model.predict_f, model.predict_y, posterior.predict_f):
        with pytest.raises(ValueError, match=r"Xnew must be finite, got 1 values .* the first in row 3\."):
            predict(Xnew)
    with pytest.raises(ValueError, match="Xnew must be finite"):
        posterior.predict_f(Xnew, full_cov=True)
    stops(lambda: tf.function(posterior.predict_f)(Xnew), match="Xnew")


# --- predictions ----------------------------------------------------------------------------------------------------


def marginal(cov, form):
    """The variances [n, C] in any of the four forms."""
    formulas = {(True, True): "ncnc->nc", (True, False): "cnn->nc", (False, True): "ncc->nc", (False, False): "nc->nc"}
    return np.einsum(formulas[form], cov)


def test_shapes_types_and_agreement_of_all_forms(model, contract):
    posterior, n = model.posterior(), len(XNEW)
    mean, variance = model.predict_f(XNEW)
    assert np.all(variance > 0.0)
    found = {}
    for form, shape in FORMS.items():
        for predict in (model.predict_f, posterior.predict_f, posterior.fused_predict_f):
            m, cov = predict(XNEW, *form)
            assert m.dtype == cov.dtype == tf.float64
            assert m.shape == [n, C]
            assert cov.shape == shape(n)
            contract.same_predictions((m, marginal(cov, form)), (mean, variance), EXACT)
        found[form] = cov.numpy()
    whole, everything = found[True, False], found[True, True]
    assert np.min(np.linalg.eigvalsh(whole)) > -EXACT
    for c in range(C):
        np.testing.assert_allclose(everything[:, c, :, c], whole[c], rtol=0, atol=EXACT)
        for other in set(range(C)) - {c}:
            assert not everything[:, c, :, other].any()
            assert not found[False, True][:, c, other].any()


@pytest.mark.parametrize("form", [(False, False), (True, True)])
def test_leading_batch_dimensions(model, contract, form):
    batch = np.stack([[XNEW, XNEW + 0.3, XNEW - 0.5], [XNEW[::-1], XNEW + 1.0, XNEW + 2.0]])
    mean, cov = model.predict_f(batch, *form)
    assert mean.shape == [2, 3, 7, C]
    assert cov.shape == [2, 3, *FORMS[form](7)]
    for place in ((0, 1), (1, 0), (1, 2)):
        contract.same_predictions((mean[place], cov[place]), model.predict_f(batch[place], *form), EXACT)


def test_observations_and_densities(model):
    """
    Probabilities of the labels, to 1e-10 each; the density of a label is its own one, computed alike. With Gaussian
    noise, f and its variance more, and the density of that.
    """
    X, Y = make_data(5)
    if is_gaussian(model):
        F, spread = model.predict_f(X)
        mean, variance = model.predict_y(X)
        np.testing.assert_allclose(mean, F, rtol=1e-14)
        np.testing.assert_allclose(variance, spread + model.likelihood.variance, rtol=1e-14)
        Y = observations(model, Y)
        density = np.sum(norm.logpdf(Y, mean, np.sqrt(variance)), axis=1)
        np.testing.assert_allclose(model.predict_log_density((X, Y)), density, rtol=1e-12)
        return
    probability, variance = model.predict_y(X)
    assert probability.shape == variance.shape == [N, C]
    assert probability.dtype == variance.dtype == tf.float64
    assert np.all((probability > 0.0) & (probability < 1.0))
    np.testing.assert_allclose(np.sum(probability, axis=1), 1.0, rtol=0, atol=1e-8)
    np.testing.assert_allclose(variance, probability * (1.0 - probability), rtol=1e-14)
    density = model.predict_log_density((X, Y))
    assert density.shape == [N] and density.dtype == tf.float64
    own = np.take_along_axis(probability.numpy(), Y.astype(int), axis=1)[:, 0]
    np.testing.assert_allclose(density, np.log(own), rtol=0, atol=1e-10)


def test_samples(model):
    """Five standard errors of 20,000 draws: sd / sqrt(n) of a mean, sqrt(2 / n) of the largest variance."""
    assert model.predict_f_samples(XNEW).shape == [7, C]
    assert model.predict_f_samples(XNEW, 3).shape == [3, 7, C]
    assert model.predict_f_samples(XNEW, 3, full_cov=False, full_output_cov=True).shape == [3, 7, C]
    tf.random.set_seed(0)
    draws = model.predict_f_samples(XNEW[:2], 20_000).numpy()
    mean, cov = model.predict_f(XNEW[:2], full_cov=True)
    largest = float(tf.reduce_max(cov))
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0, atol=5 * np.sqrt(largest / 20_000))
    for c in range(C):
        np.testing.assert_allclose(np.cov(draws[:, :, c].T), cov[c], rtol=0, atol=5 * np.sqrt(2 / 20_000) * largest)


@pytest.mark.parametrize("cache", ["tensor", "variable", None])
def test_posteriors_predict_as_the_model(model, contract, cache):
    settle(model)
    posterior = model.posterior(cache)
    contract.same_predictions(posterior.fused_predict_f(XNEW), model.predict_f(XNEW), EXACT)
    if cache is None:
        with pytest.raises(ValueError, match="Cache has not been precomputed"):
            posterior.predict_f(XNEW)
        return
    for full_cov in (False, True):
        contract.same_predictions(posterior.predict_f(XNEW, full_cov), model.predict_f(XNEW, full_cov), EXACT)
    old = posterior.predict_f(XNEW)
    contract.perturb(model)
    assert np.abs(model.predict_f(XNEW)[0] - old[0]).max() > 1e-2
    posterior.update_cache()
    contract.same_predictions(posterior.predict_f(XNEW), model.predict_f(XNEW), EXACT)


# --- copies and files -----------------------------------------------------------------------------------------------


def test_a_copy_is_independent(model, contract):
    settle(model)
    loss, predictions = float(loss_of(model)()), model.predict_f(XNEW)
    other = gpflow.utilities.deepcopy(model)
    assert type(other) is type(model)
    assert float(loss_of(other)()) == pytest.approx(loss, rel=EXACT)
    contract.perturb(other, size=0.1)
    choose_others(other)
    changed = float(loss_of(other)())
    assert changed != pytest.approx(loss, rel=EXACT)
    assert float(loss_of(model)()) == pytest.approx(loss, rel=EXACT)
    contract.same_predictions(model.predict_f(XNEW), predictions, EXACT)
    contract.perturb(model, seed=9, size=0.1)
    assert float(loss_of(model)()) != pytest.approx(loss, rel=EXACT)
    assert float(loss_of(other)()) == pytest.approx(changed, rel=EXACT)


def test_parameters_go_round(make, model, contract):
    """Values are transformed twice on the way, 2 eps of each."""
    trained, fresh = model, make()
    contract.perturb(trained, size=0.1)
    expected = float(loss_of(trained)())
    assert float(loss_of(fresh)()) != pytest.approx(expected, rel=1e-6)
    multiple_assign(fresh, read_values(trained))
    assert float(loss_of(fresh)()) == pytest.approx(expected, rel=1e-12)


def test_a_checkpoint_restores_what_was_learned_and_chosen(make, model, contract, tmp_path):
    """Into a model of other data, other settings and another q; the data themselves are given again."""
    trained = model
    contract.perturb(trained, size=0.1)
    if hasattr(trained, "alpha"):
        trained.alpha = 0.4
    path = tf.train.Checkpoint(model=trained).save(str(tmp_path / "checkpoint"))

    fresh = make(seed=3, fitted=False)
    if not holds_data(fresh):
        fresh.num_data = 5
    tf.train.Checkpoint(model=fresh).restore(path).assert_existing_objects_matched().assert_consumed()
    for actual, expected in zip(fresh.trainable_variables, trained.trainable_variables, strict=True):
        np.testing.assert_array_equal(actual, expected)
    if holds_data(fresh):
        for actual, expected in zip(fresh.data, make_data(3), strict=True):
            np.testing.assert_array_equal(actual, expected)
        fresh.data = tuple(values.numpy() for values in trained.data)
        tf.train.Checkpoint(model=fresh).restore(path)  # sites, which other data made void
    for actual, expected in zip(settings(fresh), settings(trained), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert float(loss_of(fresh)()) == pytest.approx(float(loss_of(trained)()), rel=EXACT)
    contract.same_predictions(fresh.predict_f(XNEW), trained.predict_f(XNEW), EXACT)


def test_a_frozen_model_predicts_the_same(model, contract):
    frozen = freeze(model)
    assert frozen.trainable_variables == ()
    assert float(loss_of(frozen)()) == pytest.approx(float(loss_of(model)()), rel=EXACT)
    for full_cov in (False, True):
        contract.same_predictions(frozen.predict_f(XNEW, full_cov), model.predict_f(XNEW, full_cov), EXACT)


def test_an_exported_posterior_and_model_predict_the_same(model, contract, tmp_path):
    """The posterior, and the model in GPflow's documented way; neither follows later changes."""
    contract.perturb(model, size=0.1)
    module = tf.Module()
    module.posterior = model.posterior()
    module.predict = tf.function(lambda X: module.posterior.predict_f(X, full_cov=True), input_signature=SPEC)
    model.compiled_predict_f = tf.function(lambda X: model.predict_f(X), input_signature=SPEC)
    for exported, name in ((module, "posterior"), (model, "model")):
        tf.saved_model.save(exported, str(tmp_path / name))
    del model.compiled_predict_f
    expected, whole = model.predict_f(XNEW), model.predict_f(XNEW, full_cov=True)
    contract.perturb(model, seed=7)
    posterior, loaded = (tf.saved_model.load(str(tmp_path / name)) for name in ("posterior", "model"))
    contract.same_predictions(posterior.predict(XNEW), whole, EXACT)
    contract.same_predictions(loaded.compiled_predict_f(XNEW), expected, EXACT)
    assert loaded.compiled_predict_f(XNEW[:2])[0].shape == [2, C]


def test_single_precision(make, model):
    """
    float32 all through, and the numbers of float64 to the digits that are left. Kuu's condition number is about 2, and
    the jitters differ by 9e-6: some 1e-5 of the loss, which is stationary in sites that are exact to 1e-4 of a standard
    deviation. Predictions follow these, and derivatives differ by what sites and quadrature make of them.
    """
    reference = model
    expected, slopes = value_and_gradient(reference, loss_of(reference))
    predictions = reference.predict_f(XNEW)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-5)):
        model = make()
        assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
        assert {variable.dtype for variable in settings(model)} == {tf.float32}
        loss, gradients = value_and_gradient(model, loss_of(model))
        found = model.predict_f(XNEW.astype(np.float32))
        probability, _ = model.predict_y(XNEW.astype(np.float32))
    assert {value.dtype for value in (loss, *gradients, *found, probability)} == {tf.float32}
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    for actual, wanted in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-3 * max(1.0, np.abs(wanted).max()))
    for actual, wanted in zip(found, predictions, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-3)
