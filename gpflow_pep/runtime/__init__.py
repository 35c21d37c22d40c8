"""TensorFlow internals: tracing, checks, custom gradients, devices, workers."""
