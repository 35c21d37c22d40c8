"""Calls in fresh processes."""

import os

from refusals import refused

from experiments.benchmarks.machine import in_process


def test_each_call_has_a_process_of_its_own():
    assert len({os.getpid(), in_process(os.getpid), in_process(os.getpid)}) == 3


def test_the_error_of_the_process_is_raised():
    with refused("invalid literal for int"):
        in_process(int, "none")
