"""Types of command line arguments."""

import argparse

import pytest

from experiments.protocols.arguments import count, power


def test_good_arguments_are_accepted():
    assert [power(text) for text in ("0", "0.5", "1")] == [0.0, 0.5, 1.0] and count("12") == 12


@pytest.mark.parametrize("text", ["-0.1", "1.5", "nan", "half"])
def test_no_power(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a number from 0 to 1"):
        power(text)


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many"])
def test_no_count(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a whole number from 1"):
        count(text)
