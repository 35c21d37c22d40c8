"""Marks that several files have in common."""

import os

import pytest
import tensorflow as tf

needs_data = pytest.mark.skipif(
    not os.environ.get("GPFLOW_PEP_DATA"),
    reason="needs the published files: set GPFLOW_PEP_DATA to their directory",
)
either_way = pytest.mark.parametrize(
    "way", [lambda function: function, tf.function], ids=["eager", "compiled"]
)
"""Runs a test eagerly and compiled."""
