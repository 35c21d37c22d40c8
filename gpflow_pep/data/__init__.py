"""Data: metrics, minibatches and file readers."""
