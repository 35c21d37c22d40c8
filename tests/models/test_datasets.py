"""
Models of a tf.data.Dataset equal models of the same rows in memory, for any batch size: objective,
gradient, sites and predictions.
"""

import copy
import functools
import gc
import itertools
import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_all_near
from gpflow.functions import Linear
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Poisson, Softmax, StudentT
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from refusals import refused, stopped
from tensorflow.python.eager import context

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, PEPClassifier, StreamingPEP, StreamingSGPR, fit
from gpflow_pep.engine import DatasetChunks
from gpflow_pep.likelihoods import MultiClassRobustMax, Probit

N = 53
D = 3
P = 2
# Sums over rows in another order: N terms of rounding, amplified by the condition of Kuu + jitter
# (1e3 here). Of sites also by the condition of B (1e2), and by the sweeps that follow.
TOLERANCE = 1e-11
OF_SITES = 1e-10
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = np.sin(X[:, :P]) + 0.1 * RNG.normal(size=(N, P))
F = X[:, :1] + 0.5 * RNG.normal(size=(N, 1))
LABELS = (F > 0.0).astype(float)
CLASSES = np.digitize(F, [-0.4, 0.4]).astype(float)
COUNTS = RNG.poisson(np.exp(F)).astype(float)
Z = X[:6]
POWERS = np.linspace(0.0, 1.0, N)


def dataset(X=X, Y=Y, batch_size=20):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


def vfe(data):
    return PEPR(data, SquaredExponential(), Z, alpha=0.0)


def pepr(data):
    return PEPR(data, Matern52(lengthscales=[1.0, 2.0, 3.0]), Z, alpha=0.4, noise_variance=0.2)


def probit(data):
    return PEPClassifier(data, SquaredExponential(), inducing_variable=Z, alpha=0.5)


def of_sites(data, likelihood, **options):
    return PEP(data, SquaredExponential(lengthscales=[1.0, 1.5, 2.0]), likelihood, Z, **options)


EACH = "a power and a scale for each row"
OF_COUNTS = "counts, a power for each row, T-PEP, a mean"
MODELS = {
    "VFE": (Y, vfe),
    "PEPR": (Y, pepr),
    EACH: (
        Y,
        lambda data: PEPR(
            data,
            SquaredExponential(),
            Z,
            alpha=POWERS,
            scale=gpflow.Parameter(np.linspace(0.4, 1.6, N)),
        ),
    ),
    "TSGPR": (
        Y,
        lambda data: TSGPR(
            data, SquaredExponential(), Z, mean_function=Linear(np.full((D, P), 0.3))
        ),
    ),
    "probit": (LABELS, probit),
    "classes": (CLASSES, lambda data: of_sites(data, Softmax(3), alpha=0.5)),
    OF_COUNTS: (
        COUNTS,
        lambda data: of_sites(
            data,
            Poisson(),
            alpha=POWERS,
            scale=gpflow.Parameter(0.8),
            mean_function=Linear(np.full((D, 1), 0.1)),
        ),
    ),
    "quantile propagation": (
        LABELS,
        lambda data: of_sites(data, Probit(), alpha=1.0, projection="wasserstein"),
    ),
}


@functools.cache  # until the end of this module
def in_memory_and_not(name):
    """Two models that no test changes."""
    Y, make = MODELS[name]
    return make((X, Y)), make(dataset(Y=Y))


def of_closure(model):
    """Differentiate a compiled function in a separate pass, as optimizers of Keras do."""
    closure = model.training_loss_closure()
    with tf.GradientTape() as tape:
        loss = closure()
    return loss, tape.gradient(loss, model.trainable_variables)


def tolerance_of(model):
    return OF_SITES if isinstance(model, PEP) else TOLERANCE


@pytest.mark.parametrize(
    ("name", "evaluate"),
    [
        ("TSGPR", loss_and_gradient),
        (EACH, tf.function(loss_and_gradient)),
        (EACH, of_closure),
        ("probit", loss_and_gradient),
        ("VFE", loss_and_gradient),
        ("PEPR", tf.function(loss_and_gradient)),
        ("classes", loss_and_gradient),
        (OF_COUNTS, loss_and_gradient),
        ("quantile propagation", loss_and_gradient),
    ],
)
def test_objective_and_gradient_equal_in_memory(name, evaluate):
    models = in_memory_and_not(name)
    (expected, exact), (loss, gradient) = map(evaluate, models)
    tolerance = tolerance_of(models[0])
    assert_allclose(loss, expected, rtol=tolerance)
    if name == "quantile propagation":  # with a dataset moments are treated as matched
        tolerance = 0.05
    scale = max(np.abs(values).max() for values in exact)
    assert_all_near(gradient, exact, tolerance * scale)


def results(model):
    """What is computed from all rows besides the objective."""
    found = [
        *model.predict_f(X[:4] + 0.1),
        *model.posterior().predict_f(X[:4], full_cov=True),
        *model.compute_qu(),
        model.loo_log_predictive_density(),
        model.num_data,
    ]
    if isinstance(model, PEP):
        return [
            *found,
            model.sites.precision,
            model.surrogate().targets,
            model.sites_status.sweeps,
        ]
    return [*found, *model.predict_y(X[:4]), model.upper_bound(), model.num_blocks]


@partly_slow("name", MODELS, quick=[EACH, "probit"])
def test_results_equal_in_memory(name):
    expected, model = in_memory_and_not(name)
    tolerance = tolerance_of(model)
    assert_all_close(results(model), results(expected), rtol=1e3 * tolerance, atol=tolerance)


def test_converts_dtypes():
    whole = np.round(X).astype(np.int32), Y.astype(np.float32)
    expected = pepr(tuple(values.astype(float) for values in whole)).training_loss()
    assert_allclose(pepr(dataset(*whole)).training_loss(), expected, rtol=TOLERANCE)


def test_fit_trains_checkpoints_and_resumes(tmp_path):
    objectives = []
    for number, data in enumerate([((X, Y), (X, Y)), (dataset(), dataset(batch_size=9))]):
        path = tmp_path / f"{number}.npz"
        for rows, iterations in zip(data, (2, 4), strict=True):
            result = fit(vfe(rows), max_iterations=iterations, checkpoint=path)
        objectives.append(result.objective)
    assert_allclose(*objectives, rtol=1e-6)  # rounding, amplified by the search
    with refused("data"):
        fit(vfe(dataset(X, Y + 1e-9)), max_iterations=5, checkpoint=path)


def test_copy_reads_the_same_dataset():
    model = pepr(dataset())
    clone = copy.deepcopy(model)
    model.kernel.variance.assign(3.0)
    assert_array_equal(clone.training_loss(), pepr(dataset()).training_loss())
    assert clone.data is model.data
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(model)


def test_eager_evaluations_keep_no_graph():
    """TensorFlow never releases functions with which a dataset is reduced eagerly."""
    model = vfe(dataset())
    known = []
    for _ in range(3):
        model.training_loss()
        gc.collect()
        known.append(len(context.context().list_function_names()))
    assert known[2] == known[1]


def test_data_can_be_checked_again():
    vfe((X, Y)).check_data()
    vfe(dataset()).check_data()
    model = vfe(changing((X, Y), (X[:-1], Y[:-1])))
    with refused(rf"must give the same rows .* {N} {N - 1}\.$"):
        model.check_data()


def generated(batches):
    """A dataset of batches that a function returns at each pass."""
    signature = (tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None, P], tf.float64))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


class Changing:
    """A dataset whose values change from the second pass on."""

    def __init__(self, passes):
        self.passes = iter(passes)

    def __call__(self):
        X, Y = next(self.passes)
        yield from (
            (X[start : start + 20], Y[start : start + 20]) for start in range(0, len(X), 20)
        )


def changing(*passes):
    return generated(Changing(passes))


ORDER = np.r_[1, 0, 2:N]
# The number of labels and the sum of their positions are unchanged.
HELD, MOVED = np.zeros((2, N, P))
HELD[[0, 3]], MOVED[[1, 2]] = 1.0, 1.0
OTHER = {
    "one value": (X, Y + np.eye(N, P) * 1e-12),
    "fewer rows": (X[:-1], Y[:-1]),
    "more rows": (np.r_[X, X[:1]], np.r_[Y, Y[:1]]),
    "another order": (X[ORDER], Y[ORDER]),
    "moved labels": (X, MOVED),
}


@pytest.mark.parametrize(
    ("evaluate", "passes", "name"),
    [
        *((PEPR.training_loss, 1, name) for name in OTHER),
        *((tf.function(loss_and_gradient), 2, name) for name in reversed(OTHER)),
    ],
)
def test_changed_rows_raise(evaluate, passes, name):
    """In the pass of the objective, and in that of the gradient."""
    rows = X, HELD if name == "moved labels" else Y
    model = vfe(changing(*[rows] * passes, OTHER[name]))
    with stopped("must give the same rows"):
        evaluate(model)


BROKEN = {
    "another value": "must give the same rows",
    "a value that is not finite": "NaN or infinity in row 30",
    "batches of unequal lengths": "starts at row 40",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_fit_raises_if_data_change(broken):
    """
    A shorter step cannot help: fit restores the last valid parameters and does not report
    convergence.
    """
    bad = Y.copy()
    bad[30] = np.nan if broken == "a value that is not finite" else 0.0
    later = (X, Y[:-1]) if broken == "batches of unequal lengths" else (X, bad)
    passes = [(X, Y)] * 7
    model = vfe(changing(*passes, *[later] * 30))
    with refused(f"^data.* {BROKEN[broken]}"):
        fit(model, max_iterations=20)
    pairs = list(zip(model.trainable_variables, vfe((X, Y)).trainable_variables, strict=True))
    assert all(np.isfinite(parameter).all() for parameter, _ in pairs)
    assert not all(np.array_equal(parameter, start) for parameter, start in pairs)


def read_then_broken(batches):
    """A dataset of batches of 20 rows that raises an error after this many of them."""
    read = iter(range(batches))

    def rows():
        for start in range(0, N, 20):
            if next(read, None) is None:
                raise OSError("disk fell off")
            yield X[start : start + 20], Y[start : start + 20]

    return generated(rows)


@pytest.mark.parametrize(
    "act",
    [
        lambda model: model.training_loss(),
        lambda model: model.predict_f(X[:2]),
        lambda model: model.check_data(),
        lambda model: fit(model, max_iterations=2),
    ],
)
def test_an_error_of_the_dataset_is_said_with_its_place(act):
    in_a_pass = -(-N // 20)
    model = vfe(read_then_broken(in_a_pass + 1))
    with refused(r"^data: .* after batch 1 of pass 2: OSError: disk fell off$"):
        act(model)


def test_accepts_empty_batches():
    parts = [slice(0, 0), slice(0, 30), slice(0, 0), slice(30, N), slice(0, 0)]
    data = generated(lambda: ((X[p], Y[p]) for p in parts))
    (expected, exact), (loss, gradient) = (loss_and_gradient(pepr(rows)) for rows in ((X, Y), data))
    assert_allclose(loss, expected, rtol=TOLERANCE)
    assert_all_close(gradient, exact, rtol=1e3 * TOLERANCE, atol=TOLERANCE * abs(expected))


def elements(*specs):
    return tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=specs if len(specs) > 1 else specs[0]
    )


MATRIX = tf.TensorSpec([None, D], tf.float64)
INTEGERS = np.arange(N)[:, None] + 2**53 + 1 - 30  # the first that is rounded is row 30
REFUSED = [
    (dataset(X[:0], Y[:0]), "at least one row"),
    (dataset().repeat(), "without end"),
    (elements(MATRIX), "a pair"),
    (elements(MATRIX, MATRIX, MATRIX), "a pair"),
    (dataset().unbatch(), "batches"),
    (dataset(X, Y[:, :0]), "at least one column"),
    (elements(MATRIX, tf.TensorSpec([None, 1], tf.string)), "real numbers"),
    (elements(MATRIX, tf.TensorSpec([None, None], tf.float64)), "numbers of columns are known"),
    (dataset(np.where(X[43] == X, np.nan, X)), r"must be finite, got NaN or infinity in row 43\."),
    (dataset(X, np.where(Y[43] == Y, np.inf, Y)), "must be finite, got NaN or infinity in row 43"),
    (dataset(np.repeat(INTEGERS, D, axis=1)), r"every integer must be exact .* row 30\.$"),
    (
        tf.data.Dataset.zip(
            tf.data.Dataset.from_tensor_slices(X).batch(20),
            tf.data.Dataset.from_tensor_slices(Y).batch(19),
        ),
        r"X and Y of a batch must have the same .* starts at row 0\.$",
    ),
]


def test_unusable_datasets_are_refused():
    for data, message in REFUSED:
        with refused(f"^data.*{message}"):
            vfe(data)


def test_options_that_need_rows_in_memory_are_rejected():
    kernel = SquaredExponential()
    data = dataset()
    for make in (
        lambda: PEPR(data, kernel, Z, chunk_size=20),
        lambda: PEP(data, kernel, StudentT(), Z, chunk_size=20),
    ):
        with refused(r"^chunk_size must be None if data is a dataset, .*20"):
            make()
    for make in (
        lambda: PEPR(data, kernel, Z, blocks=5),
        lambda: BTSGPR(data, kernel, Z, blocks=5),
    ):
        with refused(r"^blocks must be None if data is a dataset"):
            make()
    with refused(r"^data must be a pair \(X, Y\) of arrays"):
        StreamingSGPR(data, kernel, Z)
    model = pepr(data)
    for other in ((X, Y), dataset()):
        with refused(r"^data of a model with a dataset cannot be replaced"):
            model.data = other
    with refused(r"^data must be a pair \(X, Y\) of arrays, got .*: construct a new model"):
        pepr((X, Y)).data = dataset()
    with refused(r"inducing_variable \(Z\) must have as many columns"):
        PEPR(data, kernel, Z[:, :2])
    with refused(r"^alpha must"):
        PEPR(data, kernel, Z, alpha=np.full(N - 1, 0.5))


# --- sites ----------------------------------------------------------------------------------------


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
    order = np.argsort(CLASSES[:, 0], kind="stable")
    model = probit(dataset(X[order], CLASSES[order]))
    assert isinstance(model.likelihood, MultiClassRobustMax)
    assert model.num_latent_gps == 3


def test_invalid_labels_and_updates_of_some_rows_are_refused():
    with refused(r"got 3 in row 45 \("):
        of_sites(dataset(Y=np.where(np.arange(N)[:, None] == 45, 3.0, LABELS)), Probit())
    model = probit(dataset(Y=LABELS))
    for call in (
        lambda: model.update_sites(batch_size=10),
        lambda: model.minibatches(10),
        lambda: fit(model, optimizer="adam", batch_size=10, max_iterations=2),
    ):
        with refused(r"^data must be arrays in one process if sites are updated in batches"):
            call()
    with refused(r"^data must be a pair \(X, Y\) of arrays, a batch of the stream"):
        StreamingPEP(dataset(Y=LABELS), SquaredExponential(), Probit(), Z)
