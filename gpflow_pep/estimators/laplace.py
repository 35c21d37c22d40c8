r"""
Predictions averaged over the hyperparameters, by Laplace's approximation of their posterior.

In the coordinates u of :func:`gpflow_pep.fit`, mostly logarithms, with the negative Hessian H of
the log posterior density at its maximum u* (MacKay 1992; Rasmussen and Williams 2006, sec. 5.5.1):

.. math:: p(u | y) \approx N(u^*, H^{-1})

A few rows leave the hyperparameters uncertain, and predictions at u* alone are too certain.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.models import GPModel

from ..maths.linalg import plus_identity
from ..runtime import Tensors, assign_all, compiled, functions_of_model
from ..selection.reuse import compiled_model
from ..training.coordinates import Coordinates
from ..training.objectives import TrainingStep

_STEP = 1e-3  # of central differences: their error is about 1e-6 of the curvature
# Largest standard deviation along an eigenvector of H: the approximation is poor farther away.
_LARGEST_DEVIATION = 2.0

Draws = tuple[AnyNDArray, ...]  # values of each variable in S draws, [S, ...]


def hyperparameters(model: GPModel) -> list[tf.Variable]:
    """Return the trainable variables of kernel and likelihood."""
    parts = (*model.kernel.variables, *model.likelihood.variables)
    ids = {id(variable) for variable in parts}
    return [variable for variable in model.trainable_variables if id(variable) in ids]


def laplace_draws(model: GPModel, num_pairs: int) -> Draws:
    """
    Draw the hyperparameters of a model at its maximum: S = 2 `num_pairs` values of each variable,
    [S, ...].

    The draws are pairs of coordinates u* + d and u* - d. The Hessian takes 2 P gradients for P
    coordinates.
    """
    with compiled_model(deepcopy(model), free_points=True) as worker:
        coordinates = Coordinates(worker, hyperparameters(worker))
        maximum = coordinates.values()
        root = _root_of_covariance(worker, coordinates)
        normals = np.random.default_rng(0).normal(size=[num_pairs, len(maximum)])
        deviations = normals @ root.T
        draws = maximum + np.concatenate([deviations, -deviations])
        values = zip(*map(coordinates.variables_at, draws), strict=True)
        return tuple(map(np.stack, values))


def averaged(
    model: GPModel, draws: Draws, X: AnyNDArray, *, full_cov: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Average predictions of new observations at X [n, D] over draws of the hyperparameters.

    :param model: a model with Gaussian noise.
    :return: the mean [n, Q], and the variance [n, Q] or the joint covariance [n, n, Q] of the Q
        outputs.
    """
    with compiled_model(deepcopy(model), free_points=True) as worker:
        predict = _predictions(worker, X.shape[1], full_cov)
        means, spreads = predict(tf.constant(X), draws)  # [S, n, Q] and [S, n, Q] or [S, n, n, Q]
    deviations = means - np.mean(means, axis=0)  # [S, n, Q]
    products = "sip,sjp->ijp" if full_cov else "sip,sip->ip"
    between = np.einsum(products, deviations, deviations) / len(means)
    return np.mean(means, axis=0), np.mean(spreads, axis=0) + between


def _root_of_covariance(model: GPModel, coordinates: Coordinates) -> AnyNDArray:
    """
    Return R [P, P] with R R' = H^-1, where standard deviations along eigenvectors are at most 2.

    The parameters of the model change.
    """
    step = TrainingStep(model)
    ids = {id(each.variable) for each in coordinates.each}
    places = [place for place, each in enumerate(model.trainable_variables) if id(each) in ids]
    maximum = coordinates.values()

    def gradient(values: AnyNDArray) -> AnyNDArray:
        coordinates.assign(values)
        _, derivatives = step()
        own = [derivatives[place].numpy() for place in places]
        return coordinates.gradient(values, own)

    steps = _STEP * np.eye(len(maximum))
    differences = [gradient(maximum + step) - gradient(maximum - step) for step in steps]
    hessian = np.array(differences) / (2.0 * _STEP)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    root: AnyNDArray = vectors / np.sqrt(np.maximum(eigenvalues, _LARGEST_DEVIATION**-2))
    return root


def _predictions(model: Any, num_inputs: int, full_cov: bool) -> Callable[..., Any]:
    """
    Return the compiled predictions of new observations at Xnew [n, D] for each draw of the
    hyperparameters.

    They take the variables' values, each [S, ...], and return means [S, n, Q] and variances [S, n,
    Q] or covariances [S, n, n, Q].
    """
    functions = functions_of_model(model, "_averaged")

    def predict(Xnew: tf.Tensor, values: Tensors) -> Any:
        def of_draw(draw: Tensors) -> Tensors:
            assign_all(variables, draw)
            mean, spread = model.predict_f(Xnew, full_cov=full_cov)
            noise = model.likelihood.variance
            if not full_cov:
                return mean, spread + noise
            return mean, tf.transpose(plus_identity(spread, noise), [1, 2, 0])

        specs = (Xnew.dtype, Xnew.dtype)
        return tf.map_fn(of_draw, values, parallel_iterations=1, fn_output_signature=specs)

    if full_cov not in functions:
        variables = hyperparameters(model)
        rows = tf.TensorSpec([None, num_inputs], default_float())
        draws = tuple(tf.TensorSpec([None, *each.shape], each.dtype) for each in variables)
        functions[full_cov] = compiled(predict, input_signature=[rows, draws])
    return functions[full_cov]
