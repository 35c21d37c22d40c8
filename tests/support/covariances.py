"""Covariances by numpy, and covariances with their derivatives."""

import gpflow
import numpy as np
import tensorflow as tf


def Kuu_of(kernel, Z):
    """Return the covariance of inducing points, with the default jitter."""
    return kernel(Z).numpy() + gpflow.default_jitter() * np.eye(len(Z))


def whitened(kernel, Z, X):
    """Return V = L⁻¹ Kuf, where Kuu = L L'."""
    return np.linalg.solve(np.linalg.cholesky(Kuu_of(kernel, Z)), kernel(Z, X))


def values_and_slopes(covariances, sources):
    """
    Values of a function, and the derivatives of each of them, weighted at random, in the sources.
    """
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        values = covariances()
        weights = np.random.default_rng(1)
        totals = [tf.reduce_sum(weights.normal(size=value.shape) * value) for value in values]
    gradients = [tape.gradient(total, sources, unconnected_gradients="zero") for total in totals]
    for gradient in gradients:
        for part, source in zip(gradient, sources, strict=True):
            assert part.shape == source.shape
    parts = map(tf.convert_to_tensor, tf.nest.flatten(gradients))
    return [value.numpy() for value in values], [part.numpy() for part in parts]
