"""TensorFlow's machinery: tracing, checks, custom gradients, devices, workers."""
