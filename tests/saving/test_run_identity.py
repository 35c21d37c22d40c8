"""Two models are described alike exactly if they are made of the same classes, settings and functions."""

import functools

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_pep.saving.run_identity import difference, settings_of

SLOPE = 2.0


class Trend(gpflow.functions.Function):
    """A mean function that is given a function of Python."""

    def __init__(self, trend):
        super().__init__()
        self.trend = trend

    def __call__(self, X):
        return self.trend(X)


def steep(X):
    return 2.0 * X[:, :1]


def flat(X):
    return 0.0 * X[:, :1]


def with_default(X, slope=2.0):
    return slope * X[:, :1]


def with_global(X):
    return SLOPE * X[:, :1]


def enclosing(slope):
    return lambda X: slope * X[:, :1]


def nested(slope):
    return lambda X: (lambda: slope(X))()


class Slope:
    """An object that is called."""

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, X):
        return self.slope * X[:, :1]

    def method(self, X):
        return self.slope * X[:, :1]


def other_default():
    def with_default(X, slope=3.0):
        return slope * X[:, :1]

    with_default.__qualname__ = "with_default"
    return with_default


FUNCTIONS = {
    "functions": (lambda: steep, lambda: flat),
    "defaults": (lambda: with_default, other_default),
    "closures": (lambda: enclosing(1.0), lambda: enclosing(2.0)),
    "arrays in closures": (lambda: enclosing(np.arange(2.0)), lambda: enclosing(np.array([0.0, 2.0]))),
    "long arrays": (lambda: enclosing(np.zeros(5000)), lambda: enclosing(np.arange(5000) == 2500)),
    "tensors": (lambda: enclosing(tf.constant(1.0)), lambda: enclosing(tf.constant(2.0))),
    "closures of closures": (lambda: nested(enclosing(1.0)), lambda: nested(enclosing(2.0))),
    "constants": (lambda: lambda X: 1.0 * X[:, :1], lambda: lambda X: 1.5 * X[:, :1]),
    "names": (lambda: lambda X: tf.sin(X[:, :1]), lambda: lambda X: tf.cos(X[:, :1])),
    "partial": (lambda: functools.partial(with_default, slope=1.0), lambda: functools.partial(with_default, slope=4.0)),
    "objects": (lambda: Slope(1.0), lambda: Slope(2.0)),
    "methods": (lambda: Slope(1.0).method, lambda: Slope(2.0).method),
    "compiled": (lambda: tf.function(enclosing(1.0)), lambda: tf.function(enclosing(2.0))),
    "of TensorFlow": (lambda: tf.sin, lambda: tf.cos),
    "of NumPy": (lambda: np.sin, lambda: np.cos),
    "of Python": (lambda: abs, lambda: hash),
}


def test_functions():
    """Made again they are the same; a link of a likelihood is one as much as a mean function is."""
    for name in FUNCTIONS:
        first, other = FUNCTIONS[name]

        def settings(function):
            return list(settings_of(gpflow.likelihoods.Bernoulli(invlink=function), Trend(function)))

        assert difference(settings(first()), settings(first())) is None
        assert difference(settings(first()), settings(other())) == "Bernoulli.invlink"
        assert difference(settings_of(Trend(first())), settings_of(Trend(other()))) == "Trend.trend"


def test_globals_of_a_function(monkeypatch):
    before = list(settings_of(Trend(with_global)))
    assert before == list(settings_of(Trend(with_global)))
    monkeypatch.setitem(with_global.__globals__, "SLOPE", 3.0)
    assert difference(before, settings_of(Trend(with_global))) == "Trend.trend"


def test_code_of_a_class():
    """Another method under the same name is another class."""

    def made(slope):
        class Line(gpflow.functions.Function):
            def __call__(self, X):
                return slope * X[:, :1]

        return Line()

    assert difference(settings_of(made(1.0)), settings_of(made(1.0))) is None
    assert str(difference(settings_of(made(1.0)), settings_of(made(2.0)))).endswith("Line")


def test_a_function_that_refers_to_itself():
    def made():
        def again(X):
            return X if X is None else again(None)

        return again

    assert difference(settings_of(Trend(made())), settings_of(Trend(made()))) is None


def test_parameters_in_a_closure_may_change():
    """They are trained; what they are is in the model's own account of its parameters."""
    slope = gpflow.Parameter(1.0)
    before = list(settings_of(Trend(enclosing(slope))))
    slope.assign(2.0)
    assert difference(before, settings_of(Trend(enclosing(slope)))) is None


def test_parts_more_or_less():
    kernel = gpflow.kernels.SquaredExponential()
    assert difference(settings_of(kernel), settings_of(kernel, Trend(steep))).endswith("Trend")
    assert difference(settings_of(kernel), settings_of(gpflow.kernels.Matern32())) == "SquaredExponential or Matern32"


def test_members_of_an_enumeration():
    """As `prior_on` is one."""
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    for kernel in kernels:
        kernel.variance.prior = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))
    assert difference(*map(settings_of, kernels)) is None
    kernels[0].variance.prior_on = "unconstrained"
    assert difference(*map(settings_of, kernels)) == "Parameter._prior_on"


def test_what_is_shared():
    """Kernels that tie other parameters are not the same, nor those that have another part twice."""

    def made(name):
        first, second = gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()
        if name is not None:
            setattr(second, name, getattr(first, name))
        return first + second

    def repeated(number):
        parts = [gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()]
        return parts[0] + parts[number] * parts[1]

    assert difference(settings_of(made("variance")), settings_of(made("variance"))) is None
    for other in ("lengthscales", None):
        assert difference(settings_of(made("variance")), settings_of(made(other))) is not None
    assert difference(settings_of(repeated(0)), settings_of(repeated(1))) == "what is shared"
    assert list(settings_of(made("variance")))[-1] == ("what is shared", "0.kernels.0.variance", "0.kernels.1.variance")
