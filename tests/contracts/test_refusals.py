"""Every value that a model cannot use is refused where it is given, by the name of the argument.

The message shows the value, its type or its shape, and what is accepted. An attribute that is
assigned such a value keeps the one that it had.
"""

import itertools

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    Multiscale,
    SeparateIndependentInducingVariables,
)
from gpflow.kernels import LinearCoregionalization, Matern32, SeparateIndependent, SharedIndependent
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroskedasticTFPConditional,
    Poisson,
    Softmax,
    StudentT,
)
from gpflow.utilities import read_values
from kinds import (
    COLLAPSED,
    EVERY,
    LABELS,
    SITES,
    STREAMS,
    STRUCTURED,
    TIED,
    WITH_ALPHA,
    WITH_DATA,
    WITHOUT_DATA,
    N,
    X,
    Y,
    Z,
    made,
)
from numpy.testing import assert_equal
from refusals import refused, stopped

from gpflow_pep import (
    ARPEP,
    BTSGPR,
    BTSVGP,
    PEP,
    PEPR,
    PEPSVGP,
    TSVGP,
    PEPClassifier,
    StreamingPEP,
    StreamingSGPR,
)
from gpflow_pep.likelihoods import Probit

BATCH = (X, LABELS)
HALVES = [np.arange(6), np.arange(6, 12)]
NAN = float("nan")


def with_bad(array, places, value=NAN):
    array = array.copy()
    for place in places:
        array[place] = value
    return array


class NoVariables(InducingVariables):
    """Of a kind that this package does not know."""

    num_inducing = 0
    shape = None


class Shifted(InducingPoints):
    """A class of a user's."""


# Values, and what each message holds beside the name of the argument.
BLOCKS = [
    ([0], "whole number from 1"),
    ([np.zeros(N)], "integer labels.*float64"),
    ([np.zeros(11, int), np.zeros(13, int)], "12 rows"),
    ([np.zeros((N, 1), int), []], "integer labels.*shape"),
    ([[HALVES[0], np.arange(7, 12)]], "1 rows are in no block"),
    ([[np.arange(7), HALVES[1]]], "1 in several.*6, is in 2"),
    ([[np.arange(6), np.arange(6, 13)]], r"0\.\.11.*12"),
    ([[np.arange(-1, 6), HALVES[1]]], r"0\.\.11.*-1"),
    ([[np.arange(6.0), HALVES[1]]], r"\[0\].*float64"),
    ([[*HALVES, []]], r"\[2\].*non-empty"),
    ([[HALVES[0], HALVES[1][None]]], r"\[1\].*\[1, 6\]"),
    ([[HALVES[0], 7]], r"\[1\]"),
]
SCALES = [
    ([None], r"\(0, inf\)"),
    ([[1.0], np.ones((2, 1))], r"one per row \[12\]"),
    ([np.resize([0.5, 0.0], N)], r"\(0, inf\).*0.0"),
    ([gpflow.Parameter(1.0, dtype=tf.float32)], "float64.*float32"),
    ([gpflow.Parameter(-1.0), gpflow.Parameter(0.0)], r"\(0, inf\)"),
    (["best"], "'optimal' or 'optimal per block'"),
    ([tf.Variable(1.0, dtype=tf.float64)], "gpflow.Parameter"),
]
# The same after classes of models and the argument.
REFUSED = [
    (EVERY, "kernel", ["rbf", None, Matern32], "gpflow Kernel"),
    (EVERY, "kernel", [Matern32(lengthscales=np.ones(3)), Matern32(active_dims=[2])], "Matern32"),
    (EVERY, "kernel", [LinearCoregionalization([Matern32()], W=np.ones((1, 1)))], "Independent"),
    (COLLAPSED, "kernel", [SeparateIndependent([Matern32()])], "PEP"),
    (EVERY, "kernel", [SharedIndependent(Matern32(), 2)], "each of 1 latent functions, got 2"),
    (
        (*SITES, *WITHOUT_DATA),
        "kernel",
        [SeparateIndependent([Matern32()] * 2)],
        "one part .* got 2",
    ),
    (
        (*SITES, *WITHOUT_DATA),
        "inducing_variable",
        [SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z[1:])])],
        "one part for each of 1 latent functions, got 2",
    ),
    (EVERY, "mean_function", [1.0], "gpflow function"),
    (
        WITH_DATA,
        "inducing_variable",
        [Z[:, :1], np.zeros((4, 3)), InducingPoints(Z[:, :1])],
        "2, got",
    ),
    (EVERY, "inducing_variable", [Z[:, 0]], r"shape \[rows, D\]"),
    (EVERY, "inducing_variable", [with_bad(Z, [(2, 1)])], "finite.*1 values.*row 2"),
    (EVERY, "inducing_variable", [None, NoVariables()], "got"),
    (STREAMS, "inducing_variable", [Shifted(Z)], "inducing points, got Shifted"),
    (
        COLLAPSED,
        "inducing_variable",
        [SeparateIndependentInducingVariables([InducingPoints(Z)])],
        "SeparateIndependentInducingVariables",
    ),
    (WITH_DATA, "max_jitter", [-1e-3, NAN, np.inf, "large", [1e-4, 1e-3]], "positive number"),
    (COLLAPSED, "likelihood", [StudentT(), Bernoulli(), "gaussian"], "Gaussian"),
    ((BTSVGP, PEPSVGP), "likelihood", [Poisson(), Bernoulli()], "Gaussian"),
    ((PEP, *TIED), "likelihood", ["probit", None], "gpflow Likelihood"),
    ((PEP, *TIED), "likelihood", [HeteroskedasticTFPConditional()], "ScalarLikelihood.*Softmax"),
    ((PEPClassifier,), "likelihood", [Poisson(), StudentT(), Gaussian()], "class labels"),
    ((PEPClassifier,), "likelihood", ["softmax", Softmax], r"Probit\(\)"),
    ((PEPClassifier,), "likelihood", [Z], "Likelihood or None, got ndarray; .*=Z"),
    (COLLAPSED, "noise_variance", [0.0], "positive"),
    (COLLAPSED, "noise_variance", [1e-7], "above 1e-06"),
    (WITH_DATA, "chunk_size", [0, "all"], "whole number"),
    (WITH_ALPHA, "alpha", [-0.1, 1.5, NAN, np.inf, "half", None, True, 0.5 + 0j], r"\[0, 1\]"),
    ((PEPR, PEP), "alpha", [np.full(5, 0.5), np.full((2, 1), 0.5)], "one per row"),
    ((PEPR, PEP), "alpha", [np.resize([0.5, 1.2], N)], "1.2"),
    (
        (PEPR, PEP),
        "alpha",
        [np.ma.masked_array(np.full(N, 0.5), np.arange(N) == 3)],
        r"in \[0, 1\]",
    ),
    ((PEPR, PEP), "alpha", [gpflow.Parameter(0.5)], "cannot be learned"),
    ((StreamingSGPR, StreamingPEP, *TIED), "alpha", [np.full(N, 0.5)], "one number"),
    ((PEPR, PEP, *TIED, PEPSVGP), "scale", [0.0, -1.0, NAN, np.inf, True], r"\(0, inf\)"),
    (SITES, "tol", [0.0], "number"),
    (SITES, "max_sweeps", [0], "whole number from 1"),
    (SITES, "damping", [0.0, 1.5], r"\(0, 1\]"),
    (SITES, "projection", ["Wasserstein"], "'kl', 'wasserstein'"),
    (WITHOUT_DATA, "num_data", [0], "whole number from 1"),
    (TIED, "num_data", [None], "must be given"),
    (WITHOUT_DATA, "q_mu", [np.zeros((3, 1))], r"shape \[4, 1\]"),
    (WITHOUT_DATA, "q_mu", [np.full((4, 1), NAN)], "finite"),
    (WITHOUT_DATA, "q_sqrt", [np.zeros((1, 3, 3))], r"shape \[1, 4, 4\]"),
    ((BTSGPR,), "blocks", [None], "block size"),
    *(((PEPR, BTSGPR), "blocks", *row) for row in BLOCKS),
    *(((PEPR,), "scale", *row) for row in SCALES),
]

DATA = [
    ((X[:, 0], Y), r"\[0\] \(X\).*\[rows, D\].*\[12\]"),
    ((X[:0], Y[:0]), r"\[0\] \(X\).*at least one row.*\[0, 2\]"),
    ((X, Y[:, 0]), r"\[1\] \(Y\).*\[rows, P\].*\[12\].*np.reshape\(values, \[-1, 1\]\)"),
    ((X, Y[:, :0]), r"\[1\] \(Y\).*\[12, 0\]"),
    ((X, Y[:11]), "same number of rows.*12.*11"),
    ((with_bad(X, [(3, 1), (7, 0), (7, 1)]), Y), r"\[0\] \(X\).*3 values.*row 3"),
    ((X, with_bad(Y, [5], np.inf)), r"\[1\] \(Y\).*1 value.*row 5"),
    ((X.astype(str), Y), r"\[0\] \(X\).*real numbers.*<U32"),
    ((X, with_bad(Y.astype(object), [3, 5], "2.5")), r"\[1\].*real numbers.*'2.5' \(2 such values"),
    ((X, with_bad(Y.astype(object), [3], None)), r"\[1\].*real numbers.*None \(1 such value\)"),
    ((np.ma.masked_array(X, mask=X > 1.0), Y), r"\[0\] \(X\).*masked.*leave these rows out"),
    ((X, np.full((N, 1), 2**53 + 1)), r"\[1\] \(Y\).*9007199254740993.*subtract an offset"),
    ((X, tf.fill([N, 1], tf.int64.max)), r"\[1\] \(Y\).*9223372036854775807.*float64"),
    ((X, [[10**30]] * N), r"\[1\] \(Y\).*1000000000000000000000000000000"),
    ((X, [[10**400]] * N), r"\[1\] \(Y\).*finite in float64"),
    ((X, ((0.5,), (-(2**53) - 1,)) * 6), r"\[1\] \(Y\).*-9007199254740993"),
    ((pd.DataFrame({"a": [2**53 + 1] * N, "b": 0.5}), Y), r"\[0\] \(X\).*9007199254740993"),
    ((X, None), r"\[1\] \(Y\)"),
    ({"X": X, "Y": Y}, "pair.*[dD]ict"),
    ((X,), "pair.*of length 1"),
    (None, "pair.*NoneType"),
]

# The same for attributes of a complete model, in terms of what it was constructed with.
REPLACED = [
    (
        EVERY,
        "likelihood",
        [None, Softmax(3)],
        "^likelihood must|^num_latent_gps must|^data.*Softmax",
    ),
    ((PEP,), "likelihood", [Probit(labels=(-1, 1))], r"^data\[1\] \(Y\) must hold"),
    ((TSVGP,), "likelihood", [Poisson()], "^likelihood"),
    ((PEPR,), "likelihood", [Gaussian([1.0, 2.0])], r"one noise variance, got shape \[2\]"),
    (EVERY, "num_latent_gps", [0, 2, None, "1"], "^num_latent_gps"),
    ((PEPSVGP, *TIED), "scale", [None], r"scale must keep the shape \[\], got None"),
    (WITHOUT_DATA, "q_mu", [None, Z[:3, :1]], r"q_mu must keep the shape \[4, 1\], got"),
    (
        (*STREAMS, *STRUCTURED),
        "inducing_variable",
        [Z[:3]],
        "must keep 4 points(, as q_mu)?, got 3",
    ),
    (STREAMS, "inducing_variable", [Multiscale(Z, np.ones_like(Z))], "points, got Multiscale"),
    (SITES, "data", [(X, LABELS + 1.0)], r"data\[1\] \(Y\) must hold the labels"),
    (WITH_DATA, "data", [(X[:, :1], LABELS)], r"data \(X\) must keep 2 columns, got 1"),
    (
        WITH_DATA,
        "data",
        [(X, np.hstack([LABELS, LABELS]))],
        r"\(Y\) must (keep|have) .*columns?, got 2",
    ),
]

# Batches of streams, with other arguments of `update`.
BATCHES = [
    ((with_bad(X, [(3, 1)]), LABELS), {}, r"data\[0\] \(X\) must be finite"),
    ((X[:, :1], LABELS), {}, "columns"),
    ((X, np.hstack([LABELS, LABELS])), {}, "columns?"),
    (X, {}, "pair"),
    (tf.data.Dataset.from_tensors(BATCH), {}, "pair"),
    (BATCH, {"inducing_variable": "kmeans"}, "inducing_variable"),
    (BATCH, {"inducing_variable": Z[:, :1]}, r"\(Z\) must keep 2 columns"),
    (BATCH, {"inducing_variable": np.stack([Z, Z])}, "for 1 latent functions, got 2"),
    (BATCH, {"inducing_variable": Multiscale(Z, np.ones_like(Z))}, "must be inducing points"),
    (BATCH, {"fraction_to_move": 1.5}, r"to_move must be a number in \[0, 1\], got 1.5"),
    (BATCH, {"fraction_to_move": True}, "fraction_to_move"),
    (BATCH, {"fraction_to_move": 0.5, "inducing_variable": Z}, "cannot both be given"),
]

# New inputs of predictions.
INPUTS = [
    3.0,
    X[:, 0],
    X[:, :1],
    X.astype("M8[s]"),
    with_bad(X, [(3, 1)], np.inf),
    np.ma.masked_greater(X, 0.0),
    pd.DataFrame(X).assign(third=1.0),
]

ASSIGNED = (
    "kernel",
    "likelihood",
    "inducing_variable",
    "mean_function",
    "max_jitter",
    "alpha",
    "scale",
    "tol",
    "max_sweeps",
    "damping",
    "num_data",
)


@pytest.mark.parametrize("kind", EVERY)
def test_unusable_arguments_are_refused(kind):
    """The message shows numbers and words as they were given, or their type."""
    for kinds, argument, values, message in REFUSED:
        for value in values if kind in kinds else ():
            with refused(rf"(?s){argument}\b.*{message}") as error:
                made(kind, **{argument: value})
            if isinstance(value, int | float | str):
                shown = repr(value), f"got {type(value).__name__}"
                assert any(form in str(error.value) for form in shown), error.value


@pytest.mark.parametrize("kind", EVERY)
def test_unusable_values_are_not_assigned(kind):
    model = made(kind)
    parts = dict(vars(model))
    before = read_values(model)
    rows = [(*row[:3], row[1]) for row in REFUSED if row[1] in ASSIGNED]
    for kinds, argument, values, message in rows + REPLACED:
        for value in values if kind in kinds else ():
            with refused(message):
                setattr(model, argument, value)
            assert vars(model) == parts
    assert_equal(read_values(model), before)


@pytest.mark.parametrize("kind", STREAMS)
def test_unusable_batches_leave_a_stream_as_it_was(kind):
    model = made(kind)
    model.update(BATCH)
    before = model.state.as_dict()
    for batch, options, message in BATCHES:
        with refused(message):
            model.update(batch, **options)
        assert_equal(model.state.as_dict(), before)
    model.kernel.variance.unconstrained_variable.assign(NAN)
    before = model.state.as_dict()
    with stopped("finite|NaN"):
        model.update(BATCH)
    assert_equal(model.state.as_dict(), before)


@pytest.mark.parametrize("kind", [PEPR, PEPClassifier, ARPEP])
def test_unusable_new_inputs_are_refused(kind):
    model = made(kind)
    predictions = (model.predict_f, model.predict_y, model.posterior().predict_f)
    for predict, inputs in itertools.product(predictions, INPUTS):
        with pytest.raises((ValueError, ShapeMismatchError), match="Xnew"):
            predict(inputs)
    with stopped("Xnew"):
        tf.function(predictions[2])(INPUTS[4])
    with refused("must have no masked entries"):
        model.predict_log_density((X, np.ma.masked_less(LABELS, 0.5)))
    for option in ("full_cov", "full_output_cov"):
        with pytest.raises(NotImplementedError, match=option):
            model.predict_y(X, **{option: True})


@pytest.mark.parametrize("kind", [PEPR, PEP])
def test_unusable_data_are_refused(kind):
    model = made(kind)
    before = [values.numpy() for values in model.data]
    for data, message in DATA:
        with refused(rf"(?s)^data.*{message}"):
            made(kind, data=data)
        with refused(rf"(?s)^data.*{message}"):
            model.data = data
        assert_equal([values.numpy() for values in model.data], before)
