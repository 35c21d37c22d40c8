"""A fixture for models: GPflow's configuration."""

from dataclasses import replace

import gpflow
import pytest


@pytest.fixture
def no_jitter():
    """
    GPflow's configuration without jitter and without a minimum of positive parameters; restored
    afterwards.
    """
    with gpflow.config.as_context(
        replace(gpflow.config.config(), jitter=0.0, positive_minimum=0.0)
    ):
        yield
