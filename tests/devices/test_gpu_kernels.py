"""
Every operation of a training step and of predictions has a kernel for GPUs, of the types that it is
used with, but for the formatting of messages.

No GPU is needed: TensorFlow's package says which kernels it has. Packages that are built without
CUDA have none.
"""

import numpy as np
import pytest
import tensorflow as tf
from configuration import configured
from gpflow.likelihoods import Softmax, StudentT
from graph_nodes import nodes
from small_models import (
    LABELS,
    MAKERS,
    WITH_LABELS,
    X_NEW,
    X,
    Y,
    Z,
    classifier,
    collapsed,
    kernel,
    of_minibatches,
)
from tensorflow.python.framework import kernels

import gpflow_pep
from gpflow_pep import ARPEP, PEP, PEPR, MultiClassRobustMax, PEPClassifier
from gpflow_pep.training.objectives import TrainingStep

CLASSES = np.digitize(Y, [-0.4, 0.4]).astype(float)
OTHERS = {
    "PEPR of chunks": lambda: collapsed(PEPR, chunk_size=25),
    "PEPR of blocks": lambda: collapsed(PEPR, blocks=7),
    "PEPR with growing jitter": lambda: collapsed(PEPR, max_jitter=1e-3),
    "PEP of chunks": lambda: PEP((X, Y), kernel(), StudentT(0.3), Z, chunk_size=25),
    "quantile propagation": lambda: classifier(projection="wasserstein"),
    "PEPClassifier of robust-max": lambda: PEPClassifier((X, CLASSES), kernel(), None, Z),
    "PEPClassifier of softmax": lambda: PEPClassifier((X, CLASSES), kernel(), Softmax(3), Z),
    "ARPEP of robust-max": lambda: of_minibatches(ARPEP, MultiClassRobustMax(3)),
}
FORMATTING = {"AsString", "PrintV2", "StringFormat", "StringJoin"}
"""
Operations of messages, which the host runs: of those that are printed or raised, and of some
numbers in them.
"""

_GPU = ("GPU", "DEFAULT")  # "DEFAULT": of every device

pytestmark = [
    pytest.mark.slow,  # every model once more
    pytest.mark.skipif(
        not tf.sysconfig.get_build_info().get("is_cuda_build"),
        reason="this TensorFlow is built without kernels for GPUs",
    ),
]


def types(node):
    return {
        name: value.type for name, value in node.attr.items() if value.WhichOneof("value") == "type"
    }


def has_gpu_kernel(node):
    """Return whether a kernel exists for the types of the node."""
    used = types(node)
    if tf.string.as_datatype_enum in used.values():  # texts are the host's
        return True
    candidates = [
        each
        for each in kernels.get_registered_kernels_for_op(node.op).kernel
        if each.device_type in _GPU
    ]
    return any(
        all(
            used.get(part.name) in (None, *part.allowed_values.list.type)
            for part in each.constraint
        )
        for each in candidates
    )


def without_gpu_kernel(function):
    found = {
        (node.op, *sorted(types(node).items()))
        for node in nodes(function)
        if not has_gpu_kernel(node)
    }
    return sorted(each for each in found if each[0] not in FORMATTING)


def traced(name):
    model = ({n: make for n, make in MAKERS.items() if hasattr(gpflow_pep, n)} | OTHERS)[name]()
    rows = ()
    if not hasattr(model, "data"):
        labels = CLASSES if name == "ARPEP of robust-max" else LABELS if name in WITH_LABELS else Y
        rows = tf.constant(X), tf.constant(labels)
    step = tf.function(TrainingStep(model)._loss_and_gradient, autograph=False)
    predict = tf.function(model.predict_f, autograph=False)
    yield step.get_concrete_function(*rows)
    yield predict.get_concrete_function(tf.constant(X_NEW))
    yield predict.get_concrete_function(tf.constant(X_NEW), full_cov=True)


@pytest.mark.parametrize("name", [*(n for n in MAKERS if hasattr(gpflow_pep, n)), *OTHERS])
def test_every_operation_has_one(name):
    for function in traced(name):
        assert len(nodes(function)) > 50
        assert without_gpu_kernel(function) == []


def test_an_operation_without_one_is_found():
    """
    In a branch of a function that is called; there are kernels for the unique entries of a vector,
    not for rows.
    """

    def of_rows(x):
        return tf.cond(x[0, 0] > 0.0, lambda: tf.raw_ops.UniqueV2(x=x, axis=[0]).y, lambda: x)

    def of_entries(x):
        return tf.cond(x[0, 0] > 0.0, lambda: tf.unique(x[0]).y, lambda: x[0])

    found = []
    for function in (of_rows, of_entries):
        inner = tf.function(function, autograph=False)
        outer = tf.function(lambda x, inner=inner: inner(x), autograph=False)
        found.append(
            without_gpu_kernel(outer.get_concrete_function(tf.TensorSpec([None, 2], tf.float64)))
        )
    assert [op for op, *_ in found[0]] == ["UniqueV2"]
    assert found[1] == []


def test_a_kernel_must_be_of_the_type():
    spec = tf.TensorSpec([None], tf.int32)
    found = tf.function(
        lambda row: tf.math.segment_min(row, row), autograph=False
    ).get_concrete_function(spec)
    assert [op for op, *_ in without_gpu_kernel(found)] == ["SegmentMin"]


def test_kernels_of_32_bits_too():
    with configured(float=np.float32, jitter=1e-4):
        step = tf.function(TrainingStep(collapsed(PEPR))._loss_and_gradient, autograph=False)
        assert without_gpu_kernel(step.get_concrete_function()) == []
