"""Calls in processes of their own: their results, their errors, their death, and how long a process lives."""

import math
import os

import pytest

from experiments.protocols.repeated import Repeated, endings


def test_a_process_does_so_many_calls():
    with Repeated(3, calls_per_process=2) as repeated:
        first, second, third = (repeated(f"call {number}", os.getpid) for number in range(3))
    assert first == second and len({first, third, os.getpid()}) == 3


def test_an_error_is_raised_and_does_not_end_the_process():
    with Repeated(2, calls_per_process=2) as repeated:
        with pytest.raises(ValueError, match="math domain"):
            repeated("a root", math.sqrt, -1.0)
        assert repeated("a root", math.sqrt, 4.0) == 2.0


def test_a_process_that_dies_ends_the_command():
    with (
        Repeated(2, calls_per_process=2) as repeated,
        pytest.raises(SystemExit, match="wine, split 3: the process has"),
    ):
        repeated("wine, split 3", os.abort)


def test_endings():
    runs = [(True, 5), (False, 5), (False, 3), (False, 4)]
    results = [{"converged": converged, "iterations": iterations} for converged, iterations in runs]
    assert endings(results, 5) == ("1/4", "2/4")
