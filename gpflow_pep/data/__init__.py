"""Data: metrics, minibatches and readers of files."""
