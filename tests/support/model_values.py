"""References and values of models that several test modules use."""

import json
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from comparisons import assert_near
from numpy.testing import assert_allclose

DATA = Path(__file__).parents[1] / "data"


def references(group):
    """Return the content of a file of references."""
    return json.loads((DATA / f"{group}.json").read_text())


def recorded(group):
    """The recorded cases of a file, each with its data among its inputs."""
    content = references(group)
    return [
        {**case, "inputs": {**content["datasets"][case["dataset"]], **case["inputs"]}}
        for case in content["cases"]
    ]


def as_numbers(values):
    """Return a tensor, an array, a variable or a parameter as nested lists, for JSON."""
    return tf.convert_to_tensor(values).numpy().tolist()


def log_gradients(model):
    """
    The objective and its derivatives as the references have them: in Z and the constant mean, if
    there is one, and in the logarithm of positive parameters.
    """
    positive = {
        "log_variance": model.kernel.variance,
        "log_lengthscales": model.kernel.lengthscales,
    }
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        positive["log_noise_variance"] = model.likelihood.variance
    scale = getattr(model, "scale", None)
    if isinstance(scale, gpflow.Parameter) and scale.trainable:
        positive["log_m"] = scale
    parameters = {**positive, "Z": model.inducing_variable.Z}
    if hasattr(model.mean_function, "c"):
        parameters["mean_constant"] = model.mean_function.c
    with tf.GradientTape(persistent=True) as tape:
        values = {name: tf.convert_to_tensor(parameter) for name, parameter in parameters.items()}
        objective = model.maximum_log_likelihood_objective()
    variables = {name: parameter.unconstrained_variable for name, parameter in parameters.items()}
    gradients = tape.gradient(objective, variables)
    for name in positive:  # dF/dlog v = dF/du v / (dv/du), elementwise
        gradients[name] *= values[name] / tape.gradient(values[name], variables[name])
    return objective.numpy(), {name: gradient.numpy() for name, gradient in gradients.items()}


def random_q(rng, M, C):
    """Return the mean of a q(u), and a root of its covariance, as arguments of a model."""
    q_mu = rng.normal(size=(M, C))
    return {"q_mu": q_mu, "q_sqrt": np.tril(0.2 * rng.normal(size=(C, M, M))) + 0.6 * np.eye(M)}


def linear_mean(P):
    return gpflow.functions.Linear(np.linspace(-0.4, 0.6, 2 * P).reshape(2, P), np.full(P, 0.3))


def loss_and_gradient(model, *data, variables=None):
    """Return the training loss and its gradients, by default in all that the model trains."""
    with tf.GradientTape() as tape:
        loss = model.training_loss(*data)
    return loss, tape.gradient(loss, variables or model.trainable_variables)


def in_q(model):
    """Return the variables of q(u) of a model that has them."""
    return [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]


def compiled_step(model):
    """Compile a function of the model's loss and gradients."""
    return tf.function(lambda: loss_and_gradient(model), autograph=False)


def named(model):
    """Return the unconstrained variables of a model's trainable parameters, by name."""
    parameters = gpflow.utilities.parameter_dict(model)
    return {name: p.unconstrained_variable for name, p in parameters.items() if p.trainable}


def value_and_gradients(model, variables=None):
    """
    Return the objective and its derivatives in `variables`, by default all that the model trains.
    Models made of the same kernel, inducing variable, likelihood and mean function are compared in
    the variables of one of them.
    """
    variables = variables or list(named(model).values())
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = model.maximum_log_likelihood_objective()
    return value.numpy(), [np.asarray(gradient) for gradient in tape.gradient(value, variables)]


def _flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def assert_close(actual, expected, rel):
    """Assert that arrays agree to `rel` times the largest number expected in any of them."""
    assert [np.shape(a) for a in actual] == [np.shape(e) for e in expected]
    actual = _flat(actual)
    expected = _flat(expected)
    assert_near(actual, expected, rel * np.max(np.abs(expected)))


def assert_same(actual, expected, rel):
    """Assert that two models made of the same parts have the same objective and gradients."""
    variables = list(named(expected).values())
    value, gradients = value_and_gradients(actual, variables)
    expected_value, expected_gradients = value_and_gradients(expected, variables)
    assert_allclose(value, expected_value, rtol=rel)
    assert_close(gradients, expected_gradients, rel)


def positive_parameter(value):
    """Make a parameter whose values stay positive."""
    return gpflow.Parameter(value, transform=gpflow.utilities.positive())


class Positive(gpflow.functions.Function):
    """A noise level that varies with the inputs: 0.1 + softplus of a linear function."""

    def __init__(self, slopes, intercept):
        super().__init__()
        self.linear = gpflow.functions.Linear(np.reshape(slopes, (-1, 1)), [intercept])

    def __call__(self, X):
        return 0.1 + tf.nn.softplus(self.linear(X))


def varying_noise(quantity="variance"):
    """
    Make a Gaussian likelihood whose variance, or whose standard deviation ("scale"), is a function
    of two inputs.
    """
    return gpflow.likelihoods.Gaussian(**{quantity: Positive([0.8, -0.5], -0.7)})


def converge(model, tol, **options):
    """Update the sites of a PEP model to a tolerance, which stays with the model."""
    model.tol = tol
    status = model.update_sites(**options)
    assert status.converged
    return status


def energy_at_sites(model):
    """Return the energy of a PEP model at its current sites, without a sweep."""
    before = model.max_sweeps
    # Fewer than users may ask for: the sites are evaluated, and stay.
    model._options.max_sweeps.assign(0)
    try:
        with model.without_warnings():
            return model.update_sites().log_evidence
    finally:
        model.max_sweeps = before
