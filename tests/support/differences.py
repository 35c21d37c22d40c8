"""
Derivatives by tapes, and by differences of fourth order: errors of h^4 F(5)/30, and of rounding
over h.
"""

import numpy as np
import pytest
import tensorflow as tf


def derivative(function, x):
    """Return the gradient of a function in a tensor."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return tape.gradient(value, x)


def in_direction(value, variables, directions, h):
    """The derivative of a function along directions of variables, which keep their values."""
    start = [variable.numpy() for variable in variables]
    values = []
    for steps in (-2, -1, 1, 2):
        for variable, at, direction in zip(variables, start, directions, strict=True):
            variable.assign(at + steps * h * direction)
        values.append(float(value()))
    for variable, at in zip(variables, start, strict=True):
        variable.assign(at)
    return (8.0 * (values[2] - values[1]) - (values[3] - values[0])) / (12.0 * h)


def assert_gradients(value, variables, h, tolerance):
    """
    The gradient in each variable, along a random direction of length 1, is that of the function.
    Return the gradients.
    """
    generator = np.random.default_rng(0)
    with tf.GradientTape() as tape:
        tape.watch(variables)
        total = value()
    gradients = [tf.convert_to_tensor(each) for each in tape.gradient(total, variables)]
    for variable, gradient in zip(variables, gradients, strict=True):
        direction = generator.normal(size=variable.shape)
        direction /= np.linalg.norm(direction)
        slope = np.sum(direction * gradient)
        difference = in_direction(value, [variable], [direction], h)
        assert slope == pytest.approx(difference, rel=tolerance, abs=tolerance), variable.name
    return gradients


def slope_and_curvature(values, h):
    """Of a function with these values at -2 h, -h, 0, h and 2 h."""
    before, left, here, right, after = values
    slope = (8.0 * (right - left) - (after - before)) / (12.0 * h)
    return slope, (16.0 * (right + left) - (after + before) - 30.0 * here) / (12.0 * h**2)
