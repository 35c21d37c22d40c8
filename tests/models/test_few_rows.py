"""Few rows are processed as one chunk: the same numbers, from a graph as small as GPflow's.

Orders of summation differ, 100 terms: 1e-10 leaves room for the conditioning of Kuu, 1e3 here.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from gpflow.kernels import SquaredExponential
from model_values import compiled_step

from gpflow_pep import PEPR, TSGPR, StreamingSGPR

RNG = np.random.default_rng(8)
X = RNG.uniform(0.0, 4.0, size=(130, 2))
Z = RNG.uniform(0.0, 4.0, size=(6, 2))
Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * RNG.normal(size=(130, 1))
FEW = (X[:40], Y[:40])
MODELS = {
    "PEPR 0.5": lambda data, **options: PEPR(data, alpha=0.5, **options),
    "TSGPR": TSGPR,
    "streaming": StreamingSGPR,
}


def make(name, data, chunk_size=50):
    kernel = SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])
    options = {"noise_variance": 0.1, "chunk_size": chunk_size}
    return MODELS[name](data, kernel=kernel, inducing_variable=Z, **options)


def assert_close(actual, expected):
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        assert_near(one, other, 1e-10 * np.max(np.abs(other)))


@pytest.mark.parametrize("name", ["PEPR 0.5", "TSGPR"])
def test_a_compiled_function_follows_any_number_of_rows(name):
    model = make(name, FEW)
    assert model.single_chunk
    step = compiled_step(model)
    assert_close(step(), compiled_step(make(name, FEW, chunk_size=7))())
    model.data = (X, Y)
    assert not model.single_chunk
    many = compiled_step(make(name, (X, Y)))()
    assert_close(step(), many)
    assert step.experimental_get_tracing_count() == 1
    assert_close(compiled_step(model)(), many)  # in chunks


def test_model_with_many_rows_stays_chunked():
    """A stream with batches alternately above and below a chunk is not retraced repeatedly."""
    model = make("PEPR 0.5", (X, Y))
    model.data = FEW
    assert not model.single_chunk


def test_stream_retraces_once_for_larger_batches():
    model = make("streaming", FEW)
    for batch in (FEW, (X, Y), FEW, (X, Y)):
        model.update(batch)
    # From the first batch with many rows on; graphs for few rows have been dropped.
    assert model._absorb.func.experimental_get_tracing_count() == 1


def test_graph_is_as_small_as_gpflow():
    """
    To trace, compile and start an operation takes longer than most of them run here: no branches,
    no loops, and no functions but one that all models share. A twentieth are what refuses
    covariances that are inconsistent, as many, in that function, what an error says of a missing
    jitter. An eighth are the sums again, for their derivatives: TensorFlow removes them.
    """
    kernel = SquaredExponential(variance=1.3, lengthscales=[0.8, 1.2])
    peer = gpflow.models.SGPR(FEW, kernel, Z, noise_variance=0.1)
    ours, theirs = (
        compiled_step(model).get_concrete_function().graph.as_graph_def()
        for model in (make("PEPR 0.5", FEW), peer)
    )
    functions = ours.library.function
    assert [function.signature.name.split("_")[-2] for function in functions] == ["diagnosis"]
    assert len(ours.node) + sum(len(function.node_def) for function in functions) <= 1.48 * len(
        theirs.node
    )
