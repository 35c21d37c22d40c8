"""
Graphs are released with the objects they belong to; until then they can be differentiated, copied
and exported.
"""

import copy
import gc
import pickle
import weakref

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from differences import derivative
from doubles import double
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian
from gpflow.utilities import positive
from numpy.testing import assert_allclose
from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph

from gpflow_pep import ARPEP, PEP, PEPR, PEPClassifier, StreamingPEP, StreamingSGPR
from gpflow_pep.runtime.tracing import (
    compiled,
    in_xla,
    no_autograph,
    on_demand,
    refuse_xla,
    release_graphs,
)
from gpflow_pep.training import fit

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(12, 2))
Y = np.sin(X[:, :1])
LABELS = (Y > 0.0).astype(float)
EXACT = 1e-14  # A graph may reorder a few operations of order one.


def registered():
    """The names of custom gradients in TensorFlow's registry."""
    return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient-")}


def existing():
    """Count graphs and custom gradients."""
    release_graphs()
    for _ in range(2):  # objects kept by others are collected after them
        gc.collect()
    return sum(isinstance(each, FuncGraph) for each in gc.get_objects()), registered()


def assert_released(run):
    """The second run leaves no graph; the first one traces what all models share."""
    run()
    number, names = existing()
    run()
    number_after, names_after = existing()
    assert number_after <= number
    assert names_after <= names


def regression():
    kernel = SquaredExponential(lengthscales=[0.8, 1.1])
    kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(2.0))
    return PEPR((X, Y), kernel, X[:4], alpha=0.5, chunk_size=5)


def train_regression():
    model = regression()
    fit(model, max_iterations=1)
    model.predict_f(X)


def train_with_scipy():
    model = regression()
    options = {"maxiter": 1}
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(), model.trainable_variables, options=options
    )


def train_classifier():
    model = PEPClassifier((X, LABELS), Matern32(), Bernoulli(), X[:4], alpha=0.5)
    model.update_sites()
    fit(model, max_iterations=1)


def train_minibatches():
    model = ARPEP(Matern32(), Bernoulli(), X[:4], alpha=0.5, num_data=12)
    fit(model, (X, LABELS), max_iterations=1)


def train_a_stream():
    model = StreamingSGPR((X, Y), Matern32(), X[:4], alpha=0.5)
    model.update((X + 0.1, Y), fraction_to_move=0.5)
    model.update((X + 0.2, Y))


def train_a_stream_with_sites():
    model = StreamingPEP((X, LABELS), Matern32(), Bernoulli(), X[:4])
    model.update((X + 0.1, LABELS), fraction_to_move=0.5)
    fit(model, max_iterations=1)


TRAININGS = [
    train_regression,
    train_minibatches,
    train_with_scipy,
    train_a_stream,
    train_classifier,
    train_a_stream_with_sites,
]


@pytest.mark.parametrize("train", TRAININGS)
def test_models_leave_no_graphs(train):
    assert_released(train)


def test_graphs_of_a_structure_that_a_model_no_longer_has_go():
    model = PEP((X, Y), SquaredExponential(), Gaussian(), X[:4])
    numbers = []
    for trainable in (True, False):
        gpflow.set_trainable(model.kernel.variance, trainable)
        model.update_sites()
        numbers.append(existing()[0])
    assert numbers[1] == numbers[0]


def test_a_failed_trace_leaves_no_graph():
    parameter = gpflow.Parameter(0.7, transform=positive())

    @compiled
    def failing():
        tf.square(parameter)
        raise ValueError("traced")

    def run():
        with pytest.raises(ValueError, match="traced"):
            failing()

    assert_released(run)


# --- graphs that exist are differentiated ---------------------------------------------------------


class Nested(tf.Module):
    """Parameters read in a loop in a branch in a compiled function in another one."""

    def __init__(self):
        super().__init__()
        self.scale = gpflow.Parameter(0.7, transform=positive())

    def by_hand(self, x):
        return x**3 * self.scale**3

    @no_autograph
    def multiplied(self, x):
        return x * tf.convert_to_tensor(self.scale)

    def looped(self, x):
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y + self.multiplied(x)), (0, 0.0 * x)
        )[1]

    def __call__(self, x):
        compiled_loop = tf.function(self.looped, autograph=False)
        # 3 x scale, times (x scale)² / 3
        return (
            tf.cond(x > 0.0, lambda: compiled_loop(x), lambda: -x) * self.multiplied(x) ** 2 / 3.0
        )


def gradients(function, module):
    sources = [double(1.3), module.scale.unconstrained_variable]
    return [float(each) for each in derivative(lambda given: function(given[0]), sources)]


@pytest.fixture
def nested():
    return Nested()


def collected(function):
    """The function; whatever it does not keep alive itself has gone."""
    existing()
    return function


def test_a_graph_is_differentiated_long_after_it_was_traced(nested):
    function = tf.function(nested, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.float64)
    )
    expected = gradients(nested.by_hand, nested)
    for _ in range(2):
        assert gradients(collected(function), nested) == pytest.approx(expected, rel=EXACT)


def test_a_tape_in_a_graph_around_compiled_functions(nested):
    inner = tf.function(nested, autograph=False)
    inner(double(1.3))
    variable = nested.scale.unconstrained_variable

    @tf.function(autograph=False)
    def outer(x):
        return derivative(lambda given: collected(inner)(given[0]), [x, variable])

    found = [float(each) for each in outer(double(1.3))]
    assert found == pytest.approx(gradients(nested.by_hand, nested), rel=EXACT)


def test_a_tape_that_outlives_the_function(nested):
    x = double(1.3)
    with tf.GradientTape() as tape:
        value = tf.function(nested, autograph=False)(x)
    expected = gradients(nested.by_hand, nested)[1]
    existing()
    assert_allclose(tape.gradient(value, nested.scale.unconstrained_variable), expected, rtol=EXACT)


def test_an_exported_function_is_differentiated(nested, tmp_path):
    exported = tf.Module()
    exported.scale = nested.scale
    exported.run = tf.function(nested.multiplied, input_signature=[tf.TensorSpec([], tf.float64)])
    exported.run(double(1.3))
    tf.saved_model.save(
        collected(exported),
        str(tmp_path),
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=True),
    )
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        value = loaded.run(double(1.3))
    (variable,) = loaded.run.concrete_functions[0].variables
    # x d softplus(u) / du
    expected = 1.3 * tf.sigmoid(nested.scale.unconstrained_variable)
    assert_allclose(tape.gradient(value, variable), expected, rtol=EXACT)


def test_values_that_are_not_of_a_graph_stay_in_the_cache_of_bijectors():
    softplus = tfp.bijectors.Softplus()
    x = double(0.3)
    y = softplus.forward(x)
    tf.function(no_autograph(lambda: softplus.forward(tf.identity(x))))()
    assert softplus.inverse(y) is x


def test_other_versions_of_registry_and_cache_are_left_alone(monkeypatch, nested):
    with monkeypatch.context() as patched:
        patched.delattr(ops, "gradient_registry")
        patched.delattr(tfp.bijectors.Bijector, "_cache")
        release_graphs()
    ops.gradient_registry.register(abs, "CustomGradient-of-others")
    release_graphs()
    assert ops.gradient_registry.lookup("CustomGradient-of-others") is abs
    ops.gradient_registry._registry.pop("CustomGradient-of-others")


# --- compiled methods -----------------------------------------------------------------------------


class Scaled:
    """Methods that are traced, and how often."""

    def __init__(self, scale):
        self.scale, self.traces = scale, 0

    @compiled
    def times(self, x):
        """Multiply."""
        self.traces += 1
        return self.scale * x

    @compiled(reduce_retracing=True)
    def total(self, x):
        self.traces += 1
        return self.scale * tf.reduce_sum(x)


class Shifted(Scaled):
    @compiled
    def times(self, x):
        return super().times(x) + 1.0


def test_each_instance_compiles_its_own():
    two = Scaled(2.0)
    three = Scaled(3.0)
    one = tf.constant(1.0)
    assert [float(each.times(one)) for each in (two, three, two)] == [2.0, 3.0, 2.0]
    assert two.traces == three.traces == 1
    assert float(Shifted(2.0).times(one)) == 3.0
    assert Scaled.times.__doc__ == "Multiply."


def test_many_instances_are_no_reason_for_a_warning(caplog):
    """TensorFlow warns of too many traces; each instance makes one."""
    for each in [Scaled(float(number)) for number in range(1, 9)]:
        each.total(tf.ones([3]))
    assert not caplog.records


def test_graphs_run_without_the_graph_optimizer():
    found = []

    def options():
        return eager_context.context().function_call_options.config_proto_serialized

    given = options()
    compiled(lambda: found.append(options()))()
    rewriting = tf.compat.v1.ConfigProto.FromString(found[0]).graph_options.rewrite_options
    assert rewriting.disable_meta_optimizer and options() == given


def test_options_are_those_of_tf_function():
    scaled = Scaled(2.0)
    for n in range(1, 6):
        assert float(scaled.total(tf.ones([n]))) == 2.0 * n
    # For one row, and for any number.
    assert scaled.traces == scaled.total.func.experimental_get_tracing_count() == 2


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda scaled: pickle.loads(pickle.dumps(scaled))]
)
def test_copies_compile_their_own(duplicate):
    original = Scaled(2.0)
    one = tf.constant(1.0)
    original.times(one)
    other = duplicate(original)
    other.scale = 3.0
    assert float(other.times(one)) == 3.0
    assert float(original.times(one)) == 2.0


class OfItself:
    """An instance that its own graph refers to."""

    def __init__(self):
        self.factor = 2.0

    @compiled
    def times(self, x):
        @tf.custom_gradient
        def doubled(x):
            return self.factor * x, lambda bar: self.factor * bar

        return doubled(x)


def test_an_instance_that_its_graph_refers_to_is_released():
    instance = OfItself()
    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = instance.times(x)
    assert float(tape.gradient(y, x)) == 2.0
    reference = weakref.ref(instance)
    del instance, tape, y
    gc.collect()
    assert reference() is None


# --- functions that XLA compiles ------------------------------------------------------------------


@pytest.fixture
def seen():
    """Return the results of :func:`in_xla` at all positions in `everywhere`."""
    return {}


@pytest.fixture
def everywhere(seen):
    """A function of x that asks in functions, loops, branches and gradients nested in it."""

    def asked(place, value):
        seen.setdefault(place, []).append(in_xla())
        return value

    @tf.custom_gradient
    def doubled(x):
        return asked("custom gradient", 2.0 * x), lambda bar: asked("its derivative", 2.0 * bar)

    @on_demand
    def of_ours(x):
        return asked("function of ours", doubled(x))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = asked("top", of_ours(x))
            few = {"maximum_iterations": 2}
            y = tf.while_loop(
                lambda i, _: i < 2, lambda i, y: (i + 1, asked("loop", doubled(y))), (0, y), **few
            )[1]
            y = tf.cond(y > 0.0, lambda: asked("branch", doubled(y)), lambda: y)
            with tf.control_dependencies([y]), tf.control_dependencies(None):
                y = asked("after dependencies", tf.identity(y))
        return tape.gradient(y, x)

    return run


@pytest.mark.parametrize("jit_compile", [True, False])
def test_code_knows_whether_xla_compiles_it(everywhere, seen, jit_compile):
    slope = tf.function(everywhere, autograph=False, jit_compile=jit_compile)(tf.constant(1.0))
    assert float(slope) == 2.0**4
    assert len(seen) == 7
    assert {answer for answers in seen.values() for answer in answers} == {jit_compile}


def test_a_function_without_xla_may_call_one_with_it(everywhere, seen):
    inner = tf.function(everywhere, autograph=False, jit_compile=True)
    tf.function(lambda x: (inner(x), seen.update(outside=[in_xla()])), autograph=False)(
        tf.constant(1.0)
    )
    assert seen.pop("outside") == [False]
    assert all(answer for answers in seen.values() for answer in answers)


def test_nothing_that_runs_eagerly_is_compiled(everywhere, seen):
    tf.config.run_functions_eagerly(True)
    try:
        tf.function(everywhere, autograph=False, jit_compile=True)(tf.constant(1.0))
    finally:
        tf.config.run_functions_eagerly(False)
    assert not any(answer for answers in seen.values() for answer in answers)


def test_our_functions_are_traced_again_for_xla():
    """tf.function by itself gives XLA the graph that it has."""
    answers = []

    @compiled
    def asked(x):
        answers.append(in_xla())
        return x

    for jit_compile in (False, True, False, True):
        tf.function(asked, autograph=False, jit_compile=jit_compile)(tf.constant(1.0))
    assert answers == [False, True]


def test_functions_that_xla_cannot_compile_are_named():
    def refused():
        refuse_xla("a message")

    refused()
    tf.function(refused, autograph=False)()
    with pytest.raises(
        NotImplementedError, match="XLA cannot compile a message: leave out jit_compile=True"
    ):
        tf.function(refused, autograph=False, jit_compile=True)()
