"""
Every input that cannot be used is refused at once: a ValueError with argument, value and accepted
values.
"""

import functools

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from comparisons import assert_all_equal
from configuration import configured
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, StudentT
from kinds import X, Y, Z
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from quick import some_slow
from refusals import refused, stopped
from tensorflow.errors import InvalidArgumentError

from gpflow_pep import (
    APEP,
    BTSGPR,
    PEP,
    PEPR,
    PEPSVGP,
    TSGPR,
    TSVGP,
    StreamingSGPR,
    select_alpha,
    select_num_inducing,
    validation,
    weak_priors,
)
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.runtime.checks import asserted
from gpflow_pep.training import fit


def build(model=PEPR, data=(X, Y), inducing_variable=Z, **options):
    options.setdefault("kernel", SquaredExponential())
    return model(data, inducing_variable=inducing_variable, **options)


# --- data -----------------------------------------------------------------------------------------


def test_truth_values_and_objects_that_are_numbers_are_numbers():
    """As tables give them: columns of pandas that may have missing values, indicators, labels."""
    kernel = SquaredExponential()
    expected = PEPR((X, (Y > 0.0).astype(float)), kernel, Z).training_loss()
    for given in ((X.astype(object), Y > 0.0), (X, (Y > 0.0).astype(object))):
        assert PEPR(given, kernel, Z).training_loss() == expected
    with refused(r"Xnew must hold real numbers, got 'a' \(1 such value\)"):
        PEPR((X, Y), kernel, Z).predict_f(
            np.array([["a"] + [0.0] * (X.shape[1] - 1)], dtype=object)
        )


def test_the_column_of_a_table_that_holds_no_numbers():
    table = pd.DataFrame(X, columns=["width", "height"]).assign(city=["Rome"] * len(X))
    with refused(r"real numbers, got 'Rome' in column 'city' \(12 such values\)"):
        PEPR((table, Y), SquaredExponential(), Z)
    with refused(r"^Xnew must hold real numbers, got 'Rome' in column 'city'"):
        build().predict_f(table[["width", "city"]])


def test_real_numbers_of_any_kind_become_default_float():
    for convert in [
        lambda a: np.round(a).astype(np.int64),
        lambda a: np.round(a + 5).astype(np.uint8),
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.float16),
        lambda a: a.tolist(),
        tf.constant,
        lambda a: tf.constant(a, tf.float32),
        tf.Variable,
    ]:
        model = build(data=(convert(X), convert(Y)), inducing_variable=convert(Z))
        reference = build(
            data=tuple(np.asarray(convert(values), np.float64) for values in (X, Y)),
            inducing_variable=np.asarray(convert(Z), np.float64),
        )
        assert [variable.dtype for variable in model.data] == [tf.float64, tf.float64]
        assert model.inducing_variable.Z.dtype == tf.float64
        assert model.training_loss() == reference.training_loss()


def test_finite_in_the_precision_that_is_used():
    """1e300 is finite, and infinite once it is a float32."""
    with configured(float=np.float32):
        inputs = np.where(X[2, 0] == X, 1e300, X)
        with refused(r"data\[0\] \(X\) must be finite"):
            build(data=(inputs, Y))


# --- alpha ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(0.5, [0.5, 0.5]), ([0.5, 0.5], 0.5)])
def test_alpha_keeps_its_shape(first, second):
    model = build(alpha=first, blocks=6)
    with refused("alpha must stay one number"):
        model.alpha = second


def test_alpha_that_is_accepted():
    of_arrays = np.float32(0.5), np.array(0.25), tf.constant(0.5), tf.Variable(0.5)
    for alpha in [0, 1, *of_arrays, [0.1, 1]]:
        model = build(alpha=alpha, blocks=6)
        assert_array_equal(model.alpha, np.asarray(alpha, np.float64))
        model.alpha = np.zeros(np.shape(alpha))
        assert_array_equal(model.alpha, np.zeros(np.shape(alpha)))


def test_alpha_assigned_directly_stops_the_next_evaluation():
    model = build(blocks=6)
    compiled = model.training_loss_closure(compile=True)
    predict = tf.function(model.predict_f)
    compiled(), predict(X)
    for alpha in (-1e-3, np.nan):
        model.alpha.assign(alpha)
        for evaluate in (
            model.training_loss,
            compiled,
            lambda: model.predict_f(X),
            lambda: predict(X),
            model.posterior,
        ):
            with stopped(r"alpha must be in \[0, 1\]"):
                evaluate()
    model.alpha.assign(0.5)
    assert np.isfinite(compiled())


# --- scale ----------------------------------------------------------------------------------------


def test_scale_that_is_accepted():
    numbers = [1, np.float32(0.5), tf.constant(2.0), [0.1, 2], np.array([1, 3])]
    for scale in [*numbers, gpflow.Parameter([0.5, 1.5])]:
        model = build(scale=scale, blocks=6)
        assert_allclose(model.scale, scale, rtol=1e-14)
        assert model.scale.trainable == isinstance(scale, gpflow.Parameter)


def test_the_optimal_scale_is_that_of_alpha_0():
    alpha = [0.0, 1e-9]
    with refused("alpha must be 0 with scale='optimal'"):
        build(scale="optimal", alpha=alpha, blocks=6)
    model = build(scale="optimal", alpha=np.zeros(np.shape(alpha)), blocks=6)
    with refused("alpha must be 0 with scale='optimal'"):
        model.alpha = alpha
    model.alpha.assign(alpha)
    for evaluate in (model.training_loss, model.training_loss_closure(compile=True)):
        with stopped(r"alpha must be 0 with scale=.*optimal.*got"):
            evaluate()


# --- booleans -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["no", 1])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("shared_noise", functools.partial(build, StreamingSGPR)),
        ("mixed_precision", build),
        ("shared", functools.partial(build, BTSGPR, blocks=6)),
        *(
            (
                name,
                functools.partial(model, SquaredExponential(), Gaussian(), Z, num_data=12),
            )
            for model, name in [
                (TSVGP, "whiten"),
                (APEP, "q_diag"),
                (PEPSVGP, "minibatch_is_block"),
            ]
        ),
        ("progress", lambda **options: fit(build(), **options)),
        ("jit_compile", lambda **options: fit(build(), **options)),
        ("progress", lambda **options: select_alpha(build, (X, Y), **options)),
        (
            "progress",
            lambda **options: select_num_inducing(
                functools.partial(build, PEPR), (X, Y), **options
            ),
        ),
        ("for_sampling", lambda **options: weak_priors(build(), **options)),
    ],
)
def test_booleans_are_true_or_false(name, call, value):
    """Any text would be true."""
    with refused(f"{name} must be True or False, got"):
        call(**{name: value})


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_that_mean_the_same():
    labels = np.repeat([7, -2], 6)[np.random.default_rng(0).permutation(12)]
    lists = [np.flatnonzero(labels == -2), np.flatnonzero(labels == 7)]
    losses = [
        build(blocks=blocks, alpha=[0.2, 0.9]).training_loss()
        for blocks in (
            labels,
            labels.tolist(),
            tf.constant(labels),
            lists,
            [block.tolist() for block in lists],
        )
    ]
    assert losses == [losses[0]] * 5


def test_block_sizes_need_not_divide_the_rows():
    """The last block is shorter; a size above the number of rows is one block."""
    rows = np.arange(12)
    for size, blocks in ((12, [rows]), (100, [rows]), (np.int32(5), np.split(rows, [5, 10]))):
        assert build(blocks=size).training_loss() == build(blocks=blocks).training_loss()


def test_a_shared_block_needs_one_size():
    for blocks in (5, [np.arange(4), np.arange(4, 12)]):
        with refused("blocks must be of one size with shared=True"):
            build(BTSGPR, blocks=blocks, shared=True)


# --- whole numbers --------------------------------------------------------------------------------


def test_bad_whole_numbers_are_refused():
    for value in (2**31, np.int64(2**31), 2**63, 2**70, 0, -1, True, 1.0, "1", None, np.nan):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            validation.positive_integer(value, "count")
        assert (
            str(error.value) == f"count must be a whole number from 1 to 2147483647, got {value!r}."
        )


def test_bad_seeds_are_refused():
    model = PEP((X, Y), SquaredExponential(), StudentT(), Z)
    calls = (
        lambda value: Minibatches(12, 4, seed=value),
        lambda value: model.minibatches(4, seed=value),
        lambda value: select_alpha(
            lambda data, alpha: build(data=data, alpha=alpha), (X, Y), seed=value
        ),
        lambda value: fit(model, seed=value),
    )
    for value in (2**32, np.int64(2**32), -1, 2**70, 0.0, False):
        for call in calls:
            with refused("seed must be a whole number from 0 to 4294967295, got"):
                call(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PEPR((X, Y), SquaredExponential(), Z),
        lambda: TSVGP(SquaredExponential(), Gaussian(), Z, q_mu=Z[:, :1]),
    ],
)
def test_inputs_in_a_list_are_not_rounded(make):
    """To single precision, as TensorFlow's cast of Python's numbers does."""
    model = make()
    values = [[0.1] * X.shape[1], [1.0 / 3.0] * X.shape[1]]
    for predict in (model.predict_f, model.predict_y, model.posterior().predict_f):
        assert_all_equal(predict(values), predict(np.array(values)))


def test_the_largest_numbers_that_are_counted_to():
    """None of them overflows where it is used."""
    largest = np.int64(2**31 - 1)
    model = PEP((X, Y), SquaredExponential(), StudentT(), Z, max_sweeps=largest)
    assert model.update_sites(batch_size=largest).converged
    assert len(list(model.minibatches(largest, seed=np.int64(2**32 - 1)))) == 1
    assert fit(
        build(), max_iterations=largest, patience=largest, seed=np.uint32(2**32 - 1)
    ).converged
    assert build(blocks=largest).num_blocks == 1
    assert np.isfinite(
        select_alpha(lambda data, alpha: build(data=data), (X, Y), [0.5], folds=np.int64(2)).scores
    )


def test_unknown_posterior_caches_are_refused():
    for cache in ("bogus", "TENSOR ", 3):
        with refused("cache") as error:
            build().posterior(cache)
        for word in ("tensor", "variable", "nocache", str(cache)):
            assert word in str(error.value)


# --- data that changes ----------------------------------------------------------------------------


def snapshot(model):
    data = [values.numpy() for values in model.data]
    return [*data, model.num_blocks, float(model.training_loss())]


OPTIONS = {
    "PEPR": {"alpha": 0.5},
    "PEPR in chunks": {"alpha": 0.5, "chunk_size": 5},
    "blocks of a size": {"alpha": 0.5, "blocks": 4},
    "alpha per block of a size": {"alpha": [0.1, 0.5, 0.9], "blocks": 4},
    "alpha per label": {"alpha": [0.1, 0.5, 0.9], "blocks": np.arange(12) % 3},
    "TSGPR": {"model": TSGPR},
    "BTSGPR": {"model": BTSGPR, "blocks": 4},
    "shared": {"model": BTSGPR, "blocks": 4, "shared": True},
}


@pytest.fixture(
    params=some_slow(
        OPTIONS, quick=["PEPR", "PEPR in chunks", "alpha per block of a size", "BTSGPR"]
    )
)
def name(request):
    return request.param


def test_new_data(name):
    """
    A model computes with an allowed number of rows, also in a function that was compiled before, as
    a model made with them; it refuses others and stays as it was.
    """
    model = build(**OPTIONS[name])
    compiled = model.training_loss_closure(compile=True)
    compiled()
    for rows in (16, 12, 8, 3):
        before = snapshot(model)
        new = (np.resize(X, (rows, 2)) + np.arange(rows)[:, None] / 7.0, np.resize(Y, (rows, 1)))
        if rows != 12 and (name.startswith("alpha per") or (name == "shared" and rows == 3)):
            with refused(r"data must keep|one size"):
                model.data = new
            assert_equal(snapshot(model), before)
            continue
        model.data = new
        fresh = build(data=new, **OPTIONS[name])
        expected = fresh.training_loss()
        assert_allclose(model.training_loss(), expected, rtol=1e-13)
        assert_allclose(compiled(), expected, rtol=1e-13)
        assert model.num_blocks == fresh.num_blocks


# --- messages -------------------------------------------------------------------------------------


def test_a_message_shows_a_few_entries():
    """Of an array that is large, in eager mode too."""
    value = tf.constant([5.0, 6.0, 7.0, 8.0, 9.0])
    with pytest.raises(InvalidArgumentError) as error:
        asserted(value, value < 9.0, "values must be below 9, got", value)
    assert error.value.message == "values must be below 9, got 5.0 6.0 7.0"


@pytest.mark.parametrize(
    ("shape", "index", "row"),
    [((), (), 0), ((4,), (2,), 2), ((4, 2), (2, 1), 2), ((3, 4, 2), (1, 2, 0), 2)],
)
def test_inputs_that_are_not_finite_are_named_by_their_row(shape, index, row):
    """Of any rank, since the checks of shapes come later."""
    X = np.zeros(shape)
    X[index] = np.nan
    with refused(rf"Xnew must be finite, got 1 values .* the first in row {row}\."):
        validation.inputs(X, "Xnew")
