"""
PEP of a tf.data.Dataset: sites, energy, gradient and predictions as those of the same rows in
memory.
"""

import itertools

import gpflow
import numpy as np
import tensorflow as tf
from comparisons import assert_all_close
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from refusals import refused

from gpflow_pep import PEP, PEPClassifier, StreamingPEP, fit
from gpflow_pep.engine import DatasetChunks
from gpflow_pep.likelihoods import MultiClassRobustMax, Probit

N = 67
# Sums in another order: rounding, amplified by the condition of B (1e2) and by the sweeps that
# follow.
TOLERANCE = 1e-10
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
F = X[:, :1] + 0.5 * RNG.normal(size=(N, 1))
Z = X[:8]
Y = {
    "labels": (F > 0.0).astype(float),
    "classes": np.digitize(F, [-0.4, 0.4]).astype(float),
    "counts": RNG.poisson(np.exp(F)).astype(float),
}


def dataset(Y, batch_size=25):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


def kernel():
    return gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.5])


MODELS = {
    "probit": (
        "labels",
        lambda data: PEPClassifier(data, kernel(), inducing_variable=Z, alpha=0.5),
    ),
    "classes": (
        "classes",
        lambda data: PEP(data, kernel(), gpflow.likelihoods.Softmax(3), Z, alpha=0.5),
    ),
    "counts, a power for each row, T-PEP, a mean": (
        "counts",
        lambda data: PEP(
            data,
            kernel(),
            gpflow.likelihoods.Poisson(),
            Z,
            alpha=np.linspace(0.0, 1.0, N),
            scale=gpflow.Parameter(0.8),
            mean_function=gpflow.functions.Linear(np.full((2, 1), 0.1)),
        ),
    ),
    "quantile propagation": (
        "labels",
        lambda data: PEP(data, kernel(), Probit(), Z, alpha=1.0, projection="wasserstein"),
    ),
}


@partly_slow("name", MODELS, 1)
def test_objective_sites_and_predictions_are_as_in_memory(name):
    which, make = MODELS[name]
    expected = make((X, Y[which]))
    model = make(dataset(Y[which]))
    (exact, derivatives), (loss, gradient) = loss_and_gradient(expected), loss_and_gradient(model)
    assert_allclose(loss, exact, rtol=TOLERANCE)
    scale = max(float(tf.reduce_max(tf.abs(values))) for values in derivatives)
    # With a dataset moments are treated as matched.
    tolerance = TOLERANCE if model._has_exact_gradient() else 0.05
    assert_all_close(gradient, derivatives, rtol=0.0, atol=tolerance * scale)
    assert model.sites_status.sweeps == expected.sites_status.sweeps
    for actual, wanted in [
        (model.sites.precision, expected.sites.precision),
        *zip(model.predict_f(X[:5] + 0.1), expected.predict_f(X[:5] + 0.1), strict=True),
        (model.loo_log_predictive_density(), expected.loo_log_predictive_density()),
        (model.surrogate().targets, expected.surrogate().targets),
        (model.num_data, expected.num_data),
    ]:
        assert_allclose(actual, wanted, rtol=1e3 * TOLERANCE, atol=1e3 * TOLERANCE)


def test_options_of_the_dataset_do_not_change_the_order_of_rows():
    """Batches of very different sizes, which may be given in any order."""
    bounds = [0, 40_000, 40_001, 40_003, 40_010, 40_060]
    rows = np.arange(bounds[-1], dtype=float)[:, None]
    signature = (tf.TensorSpec([None, 1], tf.float64), tf.TensorSpec([None, 1], tf.float64))
    data = tf.data.Dataset.from_generator(
        lambda: ((rows[a:b], rows[a:b]) for a, b in itertools.pairwise(bounds)),
        output_signature=signature,
    )
    options = tf.data.Options()
    options.deterministic = False
    chunks = DatasetChunks(data.with_options(options))
    for _ in range(3):
        (found,) = chunks.split().concatenate(lambda chunk: chunk.data[:1], tf.float64, [[None, 1]])
        assert_array_equal(found, rows)


def test_labels_of_all_batches_choose_the_likelihood():
    """The first batch has two classes, the last one three."""
    order = np.argsort(Y["classes"][:, 0], kind="stable")
    data = tf.data.Dataset.from_tensor_slices((X[order], Y["classes"][order])).batch(20)
    model = PEPClassifier(data, kernel(), inducing_variable=Z)
    assert isinstance(model.likelihood, MultiClassRobustMax)
    assert model.num_latent_gps == 3


def test_invalid_labels_and_updates_of_some_rows_are_refused():
    with refused(r"got 3 in row 55 \("):
        PEP(dataset(np.where(np.arange(N)[:, None] == 55, 3.0, Y["labels"])), kernel(), Probit(), Z)
    model = MODELS["probit"][1](dataset(Y["labels"]))
    for call in (
        lambda: model.update_sites(batch_size=10),
        lambda: model.minibatches(10),
        lambda: fit(model, optimizer="adam", batch_size=10, max_iterations=2),
    ):
        with refused(r"^data must be arrays in one process if sites are updated in batches"):
            call()
    with refused(r"^data must be a pair \(X, Y\) of arrays, a batch of the stream"):
        StreamingPEP(dataset(Y["labels"]), kernel(), Probit(), Z)
