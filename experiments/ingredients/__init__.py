"""Common parts of experiments: data, model and training, each a Sacred ingredient with its configuration."""
