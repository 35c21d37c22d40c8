"""Scores of a model: its objective, parameters and predictions."""

import warnings

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from experiments.datasets import Dataset
from gpflow_pep import PEP, PEPR
from gpflow_pep.data import metrics
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.estimators.calibration import of_all_classes

_CHUNK = 10_000  # rows


def objective_per_point(model: GPModel, data: RegressionData, batches: Minibatches | None) -> float:
    """
    Return the model's log evidence, or a bound on it, divided by N (nats).

    :param batches: minibatches of a minibatch model, whose objective is the weighted mean over
        parts of the rows, to save memory; they may be blocks of its bound.
    """
    X, Y = data
    N = len(X)
    if batches is None:
        return float(model.maximum_log_likelihood_objective()) / N
    estimate = tf.function(
        model.maximum_log_likelihood_objective, autograph=False, reduce_retracing=True
    )
    parts = batches.blocks or [slice(start, start + _CHUNK) for start in range(0, N, _CHUNK)]
    return sum(float(estimate((X[part], Y[part]))) * len(X[part]) for part in parts) / N**2


def noise_sd(model: GPModel) -> float:
    """Return the standard deviation of the noise, in the unit of the targets."""
    return float(np.sqrt(model.likelihood.variance.numpy()))


def scale(model: GPModel) -> float | None:
    """Return the scale m of the structured conditional m D; None for a model without one number."""
    if not isinstance(model, PEPR) or model.scale is None:
        return None
    return float(model.scale.numpy())


def hyperparameters(model: GPModel) -> dict[str, float]:
    """Return trainable parameters except inducing points and q(u), by name; vectors by element."""
    values = {}
    for path, parameter in parameter_dict(model).items():
        name = path.lstrip(".")
        if not parameter.trainable or name.startswith(("inducing_variable", "q_mu", "q_sqrt")):
            continue
        if parameter.shape.rank == 0:
            values[name] = float(parameter.numpy())
        else:
            values |= {
                f"{name}/{i}": float(element) for i, element in enumerate(parameter.numpy().ravel())
            }
    return values


def prediction_scores(model: GPModel, dataset: Dataset) -> dict[str, float]:
    """Compute RMSE, NLPD, SMSE and SMLL of the test targets, in their unit."""
    mean, variance = (part.numpy() for part in model.predict_y(dataset.X_test))  # [N_test, 1] each
    return {
        "rmse": metrics.rmse(dataset.Y_test, mean),
        "nlpd": metrics.nlpd(dataset.Y_test, mean, variance),
        "smse": metrics.smse(dataset.Y_test, mean),
        "smll": metrics.smll(dataset.Y_test, mean, variance, dataset.Y_train),
    }


def classification_scores(model: GPModel, dataset: Dataset) -> dict[str, float]:
    """
    Compute the fraction of wrong test labels, the mean negative log predictive probability and the
    sum of the log predictive probabilities (nats).
    """
    probability = of_all_classes(model.predict_y(dataset.X_test)[0].numpy())  # [N_test, C]
    log_densities = model.predict_log_density((dataset.X_test, dataset.Y_test)).numpy()  # [N_test]
    return {
        "error": float(np.mean(np.argmax(probability, axis=1) != dataset.Y_test[:, 0])),
        "nlpd": -float(np.mean(log_densities)),
        "log_likelihood": float(np.sum(log_densities)),
    }


def loo_nlpd(model: GPModel) -> float | None:
    """
    Return the mean leave-one-out negative log predictive probability of the training labels.

    None for a model without sites and, with a warning, if a cavity is improper because sites have
    not converged.
    """
    if not isinstance(model, PEP):
        return None
    try:
        return -float(np.mean(model.loo_log_predictive_density()))
    except tf.errors.InvalidArgumentError as error:
        warnings.warn(f"There is no leave-one-out score: {error.message}", stacklevel=2)
        return None
