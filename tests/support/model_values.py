"""References and values of models that several test modules use."""

import json
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "data"


def recorded(group):
    """The recorded cases of a file, each with its data among its inputs."""
    content = json.loads((DATA / f"{group}.json").read_text())
    return [
        {**case, "inputs": {**content["datasets"][case["dataset"]], **case["inputs"]}}
        for case in content["cases"]
    ]


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


def linear_mean(P):
    return gpflow.functions.Linear(np.linspace(-0.4, 0.6, 2 * P).reshape(2, P), np.full(P, 0.3))


def loss_and_gradient(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return loss, tape.gradient(loss, model.trainable_variables)
