"""The tilted rule of the softmax likelihood, registered through the public registry."""

from . import rule as rule  # registers it
