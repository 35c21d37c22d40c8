"""What TensorFlow needs: tracing, checks, gradients, devices and workers."""
