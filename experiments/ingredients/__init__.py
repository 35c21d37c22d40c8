"""What experiments share: data, model and training, each a Sacred ingredient with its part of the configuration."""
