"""
The devices of a `tf.distribute.MirroredStrategy`, two virtual CPUs here, give what one gives, each
for its rows.
"""

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from comparisons import assert_near

SCRIPT = Path(__file__).parents[1] / "support" / "devices_process.py"
TOLERANCE = 1e-12  # sums over rows in another order
AFTER_TRAINING = 2e-9  # amplified by line searches and by sites
MODELS = (
    "PEPR",
    "BTSGPR",
    "PEPClassifier",
    "VFE in one loop per device and pass",
    "PITC of a power for each block",
    "a learned scale for each block",
    "TSGPR with a mean function",
    "PEPClassifier of robust-max",
    "fewer chunks than devices",
)


def printed(*tasks):
    """
    Return results and log of a process with two devices; the log can name the device of every
    operation.
    """
    paths = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[2])])
    command = [sys.executable, str(SCRIPT), *tasks]
    environment = os.environ | {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "0"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1]), process.stderr


@pytest.fixture(scope="module")
def found():
    return printed("in_every_replica of PEPR", "xla", "constructed_outside")


@pytest.fixture(scope="module")
def found_of_others():
    tasks = "checkpoint", "used_outside", "without_data", "minibatches_of_rows_with_sites"
    return printed(*MODELS, *tasks, "in_every_replica of PEPClassifier")


def numbers_in(values):
    """All numbers of a nested list."""
    return (
        [number for part in values for number in numbers_in(part)]
        if isinstance(values, list)
        else [values]
    )


def assert_close(actual, expected, tolerance):
    """Numbers of one kind, up to the largest of them."""
    expected = numbers_in(expected)
    assert_near(numbers_in(actual), expected, tolerance * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", MODELS)
def test_two_devices_give_what_one_gives(found_of_others, name):
    both, one = found_of_others[0][name]
    assert both.keys() == one.keys()
    for kind in one:
        at_start = kind in ("loss", "step")
        assert_close(both[kind], one[kind], TOLERANCE if at_start else AFTER_TRAINING)
    first, second = both["parameters"]
    assert first == second  # on both devices, to the last digit


def test_minibatch_models_are_trained_as_with_one_device(found_of_others):
    for both, one in found_of_others[0]["without_data"]:  # with natural gradients, and without
        for kind in one:
            assert_close(both[kind], one[kind], AFTER_TRAINING)
        assert both["parameters"][0] == both["parameters"][1]


def test_one_device_continues_the_training_of_two(found_of_others):
    _, one = found_of_others[0]["PEPR"]
    assert_close(found_of_others[0]["checkpoint"], one["adam"], AFTER_TRAINING)


@pytest.mark.parametrize("task", ["used_outside", "minibatches_of_rows_with_sites"])
def test_training_outside_of_the_scope_and_minibatches(found_of_others, task):
    actual, expected = found_of_others[0][task]
    assert_close(actual, expected, AFTER_TRAINING)


def test_parameters_that_are_fixed_stay(found_of_others):
    assert found_of_others[0]["used_outside"][0][-1] == 1.0


@pytest.mark.parametrize("name", ["PEPR", "PEPClassifier"])
def test_a_step_in_all_replicas_gives_each_the_gradient(request, name):
    numbers, _ = request.getfixturevalue("found" if name == "PEPR" else "found_of_others")
    *replicas, expected = numbers[f"in_every_replica of {name}"]
    assert len(replicas) == 2
    for values in replicas:
        assert_close(values, expected, TOLERANCE)


REFUSED = {
    "xla": "XLA cannot compile a model whose rows are divided among several devices",
    "constructed_outside": "constructed in the scope of the strategy in which Adam trains it",
}


def test_xla_and_adam_outside_of_the_scope_are_refused(found):
    for task, message in REFUSED.items():
        assert message in found[0][task]


def products_of_loops(log, name, devices):
    """
    How many of the products and triangular solves in the loops of a step TensorFlow has placed on
    each device.
    """
    text = log.split(f"\nstep of {name} on {devices}\n")[1].split("\nend of step\n")[0]
    placed = re.findall(
        r"^.*\] \S*/body/\S*: \((MatMul|BatchMatMulV2|MatrixTriangularSolve)\): \S*(CPU:\d)$",
        text,
        re.M,
    )
    return collections.Counter(device for _, device in placed)


def test_every_device_works_on_its_rows(found_of_others):
    """There is one loop on each device for each pass, forward and back, and no other loop."""
    counts = products_of_loops(found_of_others[1], "PEPR", 2)
    assert counts["CPU:0"] == counts["CPU:1"] > 5


def test_every_device_works_on_its_sites(found_of_others):
    """The loop over sweeps is on the first device; in it each device has a loop over its rows."""
    counts = products_of_loops(found_of_others[1], "PEPClassifier", 2)
    assert counts["CPU:0"] > counts["CPU:1"] > 5


def test_without_a_strategy_one_device_works(found_of_others):
    counts = products_of_loops(found_of_others[1], "PEPR", 1)
    assert counts["CPU:0"] > 5
    assert counts["CPU:1"] == 0
