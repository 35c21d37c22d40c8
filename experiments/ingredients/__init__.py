"""What experiments share: data, model and training, each a Sacred ingredient with its part of the configuration."""

from .data import data
from .model import gp
from .training import training

__all__ = ["data", "gp", "training"]
