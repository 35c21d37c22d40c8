"""Models of a tf.data.Dataset equal models of the same rows in memory, for any batch size."""

import copy
import gc
import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from gpflow.kernels import Matern52, SquaredExponential
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from refusals import refused, stopped
from tensorflow.python.eager import context

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, StreamingSGPR, fit

N = 53
D = 3
P = 2
# Sums over rows in another order: N terms of rounding, amplified by the condition of Kuu + jitter
# (1e3 here).
TOLERANCE = 1e-11
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = np.sin(X[:, :P]) + 0.1 * RNG.normal(size=(N, P))
Z = X[:6]


def dataset(X=X, Y=Y, batch_size=20):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


MODELS = {
    "VFE": lambda data: PEPR(data, SquaredExponential(), Z, alpha=0.0),
    "PEPR": lambda data: PEPR(
        data,
        Matern52(lengthscales=[1.0, 2.0, 3.0]),
        Z,
        alpha=0.4,
        noise_variance=0.2,
    ),
    "a power and a scale for each row": lambda data: PEPR(
        data,
        SquaredExponential(),
        Z,
        alpha=np.linspace(0.0, 1.0, N),
        scale=gpflow.Parameter(np.linspace(0.4, 1.6, N)),
    ),
    "TSGPR": lambda data: TSGPR(data, SquaredExponential(), Z, mean_function=linear()),
}


def linear():
    return gpflow.functions.Linear(np.full((D, P), 0.3))


def of_closure(model):
    """Differentiate a compiled function in a separate pass, as optimizers of Keras do."""
    closure = model.training_loss_closure()
    with tf.GradientTape() as tape:
        loss = closure()
    return loss, tape.gradient(loss, model.trainable_variables)


@partly_slow(
    ("name", "evaluate"),
    [
        ("TSGPR", loss_and_gradient),
        ("a power and a scale for each row", tf.function(loss_and_gradient)),
        ("a power and a scale for each row", of_closure),
        ("VFE", loss_and_gradient),
        ("PEPR", tf.function(loss_and_gradient)),
    ],
    3,
)
def test_objective_and_gradient_equal_in_memory(name, evaluate):
    (expected, exact), (loss, gradient) = (
        evaluate(MODELS[name](data)) for data in ((X, Y), dataset())
    )
    assert_allclose(loss, expected, rtol=TOLERANCE)
    scale = max(float(tf.reduce_max(tf.abs(values))) for values in exact)
    assert_all_close(gradient, exact, rtol=0.0, atol=TOLERANCE * scale)


@partly_slow("name", MODELS, quick=["a power and a scale for each row"])
def test_predictions_and_densities_equal_in_memory(name):
    expected = MODELS[name]((X, Y))
    model = MODELS[name](dataset())
    for actual, wanted in [
        *zip(model.predict_y(X[:4] + 0.1), expected.predict_y(X[:4] + 0.1), strict=True),
        *zip(
            model.posterior().predict_f(X[:4], full_cov=True),
            expected.predict_f(X[:4], full_cov=True),
            strict=True,
        ),
        *zip(model.compute_qu(), expected.compute_qu(), strict=True),
        (model.upper_bound(), expected.upper_bound()),
        (model.num_data, expected.num_data),
        (model.num_blocks, expected.num_blocks),
    ]:
        assert_allclose(actual, wanted, rtol=1e3 * TOLERANCE, atol=TOLERANCE)
    assert_allclose(
        model.loo_log_predictive_density(),
        expected.loo_log_predictive_density(),
        rtol=1e3 * TOLERANCE,
    )


def test_is_invariant_to_batch_size():
    losses = [
        float(MODELS["PEPR"](dataset(batch_size=size)).training_loss()) for size in (1, 7, N, 2 * N)
    ]
    assert_allclose(losses, losses[0], rtol=TOLERANCE)


def test_converts_dtypes():
    whole = np.round(X).astype(np.int32), Y.astype(np.float32)
    expected = MODELS["PEPR"](tuple(values.astype(float) for values in whole)).training_loss()
    assert_allclose(MODELS["PEPR"](dataset(*whole)).training_loss(), expected, rtol=TOLERANCE)


def test_fit_trains_checkpoints_and_resumes(tmp_path):
    objectives = []
    for number, data in enumerate([((X, Y), (X, Y)), (dataset(), dataset(batch_size=9))]):
        path = tmp_path / f"{number}.npz"
        for rows, iterations in zip(data, (2, 4), strict=True):
            result = fit(MODELS["VFE"](rows), max_iterations=iterations, checkpoint=path)
        objectives.append(result.objective)
    assert_allclose(*objectives, rtol=1e-6)  # rounding, amplified by the search
    with refused("data"):
        fit(MODELS["VFE"](dataset(X, Y + 1e-9)), max_iterations=5, checkpoint=path)


def test_copy_reads_the_same_dataset():
    model = MODELS["PEPR"](dataset())
    clone = copy.deepcopy(model)
    model.kernel.variance.assign(3.0)
    assert_array_equal(clone.training_loss(), MODELS["PEPR"](dataset()).training_loss())
    assert clone.data is model.data
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(model)


def test_eager_evaluations_keep_no_graph():
    """TensorFlow never releases functions with which a dataset is reduced eagerly."""
    model = MODELS["VFE"](dataset())
    known = []
    for _ in range(3):
        model.training_loss()
        gc.collect()
        known.append(len(context.context().list_function_names()))
    assert known[2] == known[1]


def test_data_can_be_checked_again():
    MODELS["VFE"]((X, Y)).check_data()
    MODELS["VFE"](dataset()).check_data()
    model = MODELS["VFE"](changing((X, Y), (X[:-1], Y[:-1])))
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
LABELS, MOVED = np.zeros((2, N, P))
LABELS[[0, 3]], MOVED[[1, 2]] = 1.0, 1.0
OTHER = {
    "one value": (X, Y + np.eye(N, P) * 1e-12),
    "fewer rows": (X[:-1], Y[:-1]),
    "more rows": (np.r_[X, X[:1]], np.r_[Y, Y[:1]]),
    "another order": (X[ORDER], Y[ORDER]),
}


@partly_slow("name", OTHER, quick=["one value", "more rows"])
def test_changed_rows_raise(name):
    first = MODELS["VFE"](changing((X, Y), OTHER[name]))
    with stopped("must give the same rows"):
        first.training_loss()
    second = MODELS["VFE"](changing((X, Y), (X, Y), OTHER[name]))
    with stopped("must give the same rows"):
        tf.function(loss_and_gradient)(second)


BROKEN = {
    "another value": "must give the same rows",
    "a value that is not finite": "NaN or infinity in row 30",
    "batches of unequal lengths": "starts at row 40",
}


@partly_slow("broken", BROKEN, quick=["a value that is not finite"])
def test_fit_raises_if_data_change(broken):
    """
    A shorter step cannot help: fit restores the last valid parameters and does not report
    convergence.
    """
    bad = Y.copy()
    bad[30] = np.nan if broken == "a value that is not finite" else 0.0
    later = (X, Y[:-1]) if broken == "batches of unequal lengths" else (X, bad)
    passes = [(X, Y)] * 7
    model = MODELS["VFE"](changing(*passes, *[later] * 30))
    with refused(f"^data.* {BROKEN[broken]}"):
        fit(model, max_iterations=20)
    expected = MODELS["VFE"]((X, Y))
    pairs = list(zip(model.trainable_variables, expected.trainable_variables, strict=True))
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
    model = MODELS["VFE"](read_then_broken(in_a_pass + 1))
    with refused(r"^data: .* after batch 1 of pass 2: OSError: disk fell off$"):
        act(model)


def test_swapped_labels_raise():
    """The number of labels and the sum of their positions are unchanged."""
    model = MODELS["VFE"](changing((X, LABELS), (X, MOVED)))
    with stopped("must give the same rows"):
        model.training_loss()


def test_accepts_empty_batches():
    parts = [slice(0, 0), slice(0, 30), slice(0, 0), slice(30, N), slice(0, 0)]
    data = generated(lambda: ((X[p], Y[p]) for p in parts))
    (expected, exact), (loss, gradient) = (
        loss_and_gradient(MODELS["PEPR"](rows)) for rows in ((X, Y), data)
    )
    assert_allclose(loss, expected, rtol=TOLERANCE)
    assert_all_close(gradient, exact, rtol=1e3 * TOLERANCE, atol=TOLERANCE * float(abs(expected)))


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
            MODELS["VFE"](data)


def test_options_that_need_rows_in_memory_are_rejected():
    kernel = SquaredExponential()
    data = dataset()
    for make in (
        lambda: PEPR(data, kernel, Z, chunk_size=20),
        lambda: PEP(data, kernel, gpflow.likelihoods.StudentT(), Z, chunk_size=20),
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
    model = MODELS["PEPR"](data)
    for other in ((X, Y), dataset()):
        with refused(r"^data of a model with a dataset cannot be replaced"):
            model.data = other
    with refused(r"^data must be a pair \(X, Y\) of arrays, got .*: construct a new model"):
        MODELS["PEPR"]((X, Y)).data = dataset()
    with refused(r"inducing_variable \(Z\) must have as many columns"):
        PEPR(data, kernel, Z[:, :2])
    with refused(r"^alpha must"):
        PEPR(data, kernel, Z, alpha=np.full(N - 1, 0.5))
