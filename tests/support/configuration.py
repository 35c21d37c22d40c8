"""GPflow's settings for the duration of a block."""

from gpflow.config import Config, as_context


def configured(**options):
    """Use these settings, and otherwise the default ones."""
    return as_context(Config(**options))
