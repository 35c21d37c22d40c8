"""Errors that are expected: a refusal of what cannot be used, and a computation that stops."""

import pytest
from tensorflow.errors import InvalidArgumentError


def refused(message):
    """Expect a ValueError with this message, as of every argument that cannot be used."""
    return pytest.raises(ValueError, match=message)


def stopped(message):
    """Expect TensorFlow's error with this message, as of values that are found too late."""
    return pytest.raises(InvalidArgumentError, match=message)
