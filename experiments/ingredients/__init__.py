"""What experiments share: data, model and training, each a Sacred ingredient with its part of the configuration."""

from .data import data, labeled_data
from .model import gp
from .site_training import site_training
from .training import training

__all__ = ["data", "gp", "labeled_data", "site_training", "training"]
