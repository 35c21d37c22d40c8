"""What is said of a model in numbers: its objective, its parameters, its predictions' scores."""

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats
from gpflow_pep import PEP, PEPR
from gpflow_pep.data import metrics
from gpflow_pep.data.minibatches import Minibatches

_CHUNK = 10_000  # rows


def objective(model: GPModel, data: RegressionData, blocks: Sequence[AnyNDArray] | None = None) -> float:
    """
    The objective of all rows, of a model with a q(u) of its own: it is the mean of the estimates that parts give, by
    their sizes, at less memory.

    :param blocks: rows of each part, where it matters what they are.
    """
    X, Y = data
    N = len(X)
    estimate = tf.function(model.maximum_log_likelihood_objective, autograph=False, reduce_retracing=True)
    parts = blocks or [slice(start, start + _CHUNK) for start in range(0, N, _CHUNK)]
    return sum(float(estimate((X[part], Y[part]))) * len(X[part]) / N for part in parts)


def objective_per_point(model: GPModel, data: RegressionData, batches: Minibatches | None) -> float:
    """
    The model's log evidence, or bound of it, divided by N (nats).

    :param batches: those of a model with a q(u) of its own; blocks of its bound may be among them.
    """
    if batches is None:
        return float(model.maximum_log_likelihood_objective()) / len(data[0])
    return objective(model, data, batches.blocks) / len(data[0])


def noise_sd(model: GPModel) -> float:
    """Standard deviation of the noise, in the unit of the targets."""
    return float(np.sqrt(model.likelihood.variance.numpy()))


def scale(model: GPModel) -> float | None:
    """The scale m of the structured conditional m D; None of a model without one."""
    return float(model.scale.numpy()) if isinstance(model, PEPR) else None


def hyperparameters(model: GPModel) -> dict[str, float]:
    """Trainable parameters other than inducing points and q(u), by name; of a vector, each element."""
    values: dict[str, float] = {}
    for path, parameter in parameter_dict(model).items():
        name = path.lstrip(".")
        if not parameter.trainable or name.startswith(("inducing_variable", "q_mu", "q_sqrt")):
            continue
        if parameter.shape.rank == 0:
            values[name] = float(parameter.numpy())
        else:
            values |= {f"{name}/{i}": float(element) for i, element in enumerate(parameter.numpy().ravel())}
    return values


def prediction_scores(model: GPModel, dataset: Dataset) -> dict[str, float]:
    """RMSE, NLPD, SMSE and SMLL of the predictions of the test targets, in their unit."""
    mean, variance = (part.numpy() for part in model.predict_y(dataset.X_test))  # [N_test, 1] each
    return {
        "rmse": metrics.rmse(dataset.Y_test, mean),
        "nlpd": metrics.nlpd(dataset.Y_test, mean, variance),
        "smse": metrics.smse(dataset.Y_test, mean),
        "smll": metrics.smll(dataset.Y_test, mean, variance, dataset.Y_train),
    }


def most_probable(probability: Floats) -> npt.NDArray[np.intp]:
    """The label [N] with the largest probability, given those of label 1 [N, 1] or those of C > 2 labels [N, C]."""
    if probability.shape[1] == 1:
        return (probability[:, 0] > 0.5).astype(np.intp)
    label: npt.NDArray[np.intp] = probability.argmax(axis=1)
    return label


def classification_scores(model: GPModel, dataset: Dataset) -> dict[str, float]:
    """
    Of the predictions of the test labels: the fraction that is wrong, the mean negative log predictive probability and
    the sum of the log predictive probabilities (nats).
    """
    probability = model.predict_y(dataset.X_test)[0].numpy()  # [N_test, 1], of label 1, or [N_test, C]
    log_densities = model.predict_log_density((dataset.X_test, dataset.Y_test)).numpy()  # [N_test]
    return {
        "error": float(np.mean(most_probable(probability) != dataset.Y_test[:, 0])),
        "nlpd": -float(np.mean(log_densities)),
        "log_likelihood": float(np.sum(log_densities)),
    }


def loo_nlpd(model: GPModel) -> float | None:
    """
    Mean leave-one-out negative log predictive probability of the training labels; None of a model without sites, or,
    with a warning, where what a site leaves behind is not proper, as happens to sites that have not converged.
    """
    if not isinstance(model, PEP):
        return None
    try:
        return -float(np.mean(model.loo_log_predictive_density()))
    except tf.errors.InvalidArgumentError as error:
        warnings.warn(f"There is no leave-one-out score: {error.message}", stacklevel=2)
        return None
