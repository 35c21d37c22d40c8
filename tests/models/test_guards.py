"""Changes after construction either raise an error or give correct results."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from differences import derivative
from gpflow.functions import Function, Linear, MeanFunction
from gpflow.kernels import Convolutional, Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian, Ordinal
from kinds import LABELS, X, Y, made
from numpy.testing import assert_allclose
from own_likelihoods import Own
from refusals import refused, stopped
from tensorflow.errors import InvalidArgumentError
from waves import line, wave

from gpflow_pep import ARPEP, PEP, PEPR, TSVGP, MultiClassRobustMax


@pytest.fixture
def data():
    return wave(30, 3, noise=0.1, ends=(0.0, 4.0))


def _model(data, kernel=None, **options):
    kernel = SquaredExponential() if kernel is None else kernel
    return PEPR(data, kernel, line(0.2, 3.8, 5), noise_variance=0.1, **options)


@pytest.mark.parametrize(("alpha", "compiled"), [(0.0, True), (0.5, False)])
def test_watched_frozen_parameter_has_full_gradient(data, compiled, alpha):
    """The gradient equals that for a trainable parameter, including the part through the rows."""

    def slope(trainable):
        model = _model(data, alpha=alpha)
        gpflow.set_trainable(model.kernel, trainable)
        variable = model.kernel.variance.unconstrained_variable

        def evaluate():
            return derivative(lambda _: model.maximum_log_likelihood_objective(), variable)

        return (tf.function(evaluate) if compiled else evaluate)()

    assert_allclose(slope(False), slope(True), rtol=1e-10)


def test_shared_frozen_parameter_has_full_gradient(data):
    """
    One variance for kernel and noise, read by two parts of the model, is differentiated once: dense
    GPR agrees.
    """

    def slope(constructor, **options):
        kernel = Matern52(variance=0.6)
        gpflow.set_trainable(kernel.variance, False)
        likelihood = Gaussian()
        likelihood.variance = kernel.variance
        model = constructor(data, kernel, likelihood=likelihood, **options)
        return derivative(
            lambda _: model.maximum_log_likelihood_objective(),
            kernel.variance.unconstrained_variable,
        )

    ours = slope(PEPR, inducing_variable=data[0][:3], alpha=1.0, blocks=len(data[0]))
    assert_allclose(ours, slope(gpflow.models.GPR), rtol=1e-9)


@pytest.mark.parametrize("compiled", [False, True])
def test_tensor_parameter_is_not_differentiable(data, compiled):
    """The model can be evaluated, as a frozen model, but a partial gradient raises an error."""
    model = _model(data)
    expected = model.training_loss()
    x = tf.Variable(model.kernel.variance.numpy(), dtype=tf.float64)

    def evaluate():
        with tf.GradientTape() as tape:
            model.kernel.variance = x**2
            loss = model.training_loss()
        return loss, tape

    loss, _ = evaluate()
    assert_allclose(loss, expected, rtol=1e-12)

    def slope():
        loss, tape = evaluate()
        return tape.gradient(loss, x)

    with stopped(r"variance of SquaredExponential is a tensor; make it a gpflow.Parameter"):
        (tf.function(slope) if compiled else slope)()


@pytest.mark.parametrize(("blocks", "compiled"), [(None, False), (5, True)])
def test_partially_assigned_data_raise(data, blocks, compiled):
    X, Y = data
    model = _model((X[:20], Y[:20]), blocks=blocks)
    loss = model.training_loss_closure(compile=compiled)
    loss()
    model.data[0].assign(X)
    with stopped(r"different numbers of rows: set model.data"):
        loss()
    if blocks is not None:
        model.data[1].assign(Y)  # 30 rows each, but blocks of 20
        with stopped(r"different numbers of rows: set model.data"):
            loss()
    model.data = data
    assert_allclose(loss(), _model(data, blocks=blocks).training_loss(), rtol=1e-12)


def test_inducing_patches_may_be_narrower_than_images():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(12, 16))
    Y = rng.normal(size=(12, 1))
    kernel = Convolutional(SquaredExponential(), [4, 4], [2, 2])
    patches = gpflow.inducing_variables.InducingPatches(rng.normal(size=(5, 4)))
    peer = gpflow.models.SGPR((X, Y), kernel, patches, noise_variance=0.5)
    model = PEPR((X, Y), kernel, patches, noise_variance=0.5, alpha=0.0)
    assert_allclose(model.training_loss(), peer.training_loss(), rtol=1e-10)


def test_rejects_max_jitter_below_jitter(data):
    message = "max_jitter must be at least the jitter of Kuu, {}, got {}"
    with refused(message.format("1e-06", "1e-08")):
        _model(data, max_jitter=1e-8)
    model = _model(data)
    model.jitter = 1e-4
    with refused(message.format("0.0001", "1e-05")):
        model.max_jitter = 1e-5
    model.jitter = 1e-8
    model.max_jitter = 1e-7
    for jitter, smallest in ((1e-3, "0.001"), (None, "1e-06")):
        with refused(message.format(smallest, "1e-07")):
            model.jitter = jitter
        assert model.jitter == 1e-8


def test_second_derivatives_raise(data):
    model = _model(data)
    variable = model.kernel.variance.unconstrained_variable
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            objective = model.maximum_log_likelihood_objective()
        first = inner.gradient(objective, variable)
    with pytest.raises(NotImplementedError, match="differentiates its objectives once"):
        outer.gradient(first, variable)


WRONG = {
    "no column": lambda X: X[:, 0],
    "columns": lambda X: tf.tile(X[:, :1], [1, 3]),
    "transposed": lambda X: X[None, :, 0],
    "fewer rows": lambda X: X[1:, :1],
}


@pytest.mark.parametrize(
    ("kind", "wrong"), list(zip((PEPR, PEP, TSVGP, ARPEP), WRONG.values(), strict=True)), ids=WRONG
)
def test_a_mean_function_of_a_wrong_shape_is_refused(kind, wrong):
    """m(X) would broadcast in Y - m(X), or in the mean of f."""

    class Mean(MeanFunction):
        def __call__(self, X):
            return wrong(X)

    model = made(kind, mean_function=Mean())
    arguments = () if hasattr(model, "data") else ((X, LABELS),)
    unknown = tf.function(
        model.predict_f, input_signature=[tf.TensorSpec([None, None], X.dtype)], autograph=False
    )
    for use in (
        lambda: model.training_loss(*arguments),
        lambda: model.predict_f(X),
        lambda: model.posterior().predict_f(X),
        lambda: unknown(X),
    ):
        with pytest.raises(
            (ValueError, InvalidArgumentError),
            match=r"mean_function must return float64 of shape \[(12|rows), 1\], got ",
        ):
            use()


def test_a_noise_function_of_a_wrong_shape_is_refused():
    class Noise(Function):
        def __call__(self, X):
            return tf.square(X[:, 0]) + 0.1

    for likelihood in (Gaussian(Noise()), Gaussian(scale=Noise())):
        for kind, arguments in ((PEPR, ()), (TSVGP, ((X, Y),))):
            model = made(kind, likelihood=likelihood)
            with refused(r"^likelihood: the noise function must .* shape \[12, 1\], got"):
                model.training_loss(*arguments)


UNKNOWN = [tf.TensorSpec([None, None], tf.float64)] * 2


def test_further_columns_of_y_are_refused_in_graphs_of_unknown_width():
    model = ARPEP(Matern52(), MultiClassRobustMax(3), X[:5], num_data=30)
    for name in ("training_loss", "predict_log_density"):
        function = getattr(model, name)
        compiled = tf.function(lambda *data, name=name: getattr(model, name)(data), autograph=False)
        compiled = compiled.get_concrete_function(*UNKNOWN)
        found = compiled(tf.constant(X), tf.constant(LABELS))
        assert_allclose(found, function((X, LABELS)), rtol=1e-9)
        with stopped(r"data\[1\] \(Y\) must have .* columns:\] \[2\]"):
            compiled(tf.constant(X), tf.constant(np.hstack([LABELS, LABELS])))


def test_a_likelihood_that_returns_nan_ends_the_sweeps_at_once(data):
    model = PEP(data, Matern52(), Own(lambda F, Y: tf.math.log(F)), data[0][:5])
    assert int(model._inference().solve().sweeps) <= 1
    with stopped("tilted distributions are not finite"):
        model.training_loss()


def test_log_densities_of_a_wrong_shape_and_descending_edges_are_refused(data):
    X, Y = data
    with refused(r"^likelihood: _scalar_log_prob of Own must return a value for each f, but"):
        PEP(data, Matern52(), Own(lambda F, Y: tf.reduce_sum(-(F**2))), X[:5])
    with refused(r"^likelihood: _scalar_log_prob of Own .* F is float64 .* the result float32"):
        PEP(
            data,
            Matern52(),
            Own(lambda F, Y: -tf.square(tf.cast(F, tf.float32))),
            X[:5],
        )
    edges = Ordinal(np.array([0.5, -0.5]))
    with refused(r"^likelihood: bin_edges of Ordinal must increase"):
        PEP((X, np.zeros_like(Y)), Matern52(), edges, X[:5])


def test_predictions_accept_inputs_of_unknown_rank(data):
    model = _model(data, Matern52(), mean_function=Linear())
    predict = tf.function(
        model.predict_f, input_signature=[tf.TensorSpec(None, tf.float64)], autograph=False
    )
    assert_allclose(predict(data[0])[0], model.predict_f(data[0])[0], rtol=1e-10)
