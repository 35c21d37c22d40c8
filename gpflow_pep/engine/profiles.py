"""GPflow's isotropic kernels as functions of a multiple of the squared distance, with their derivatives written out.

With r the distance in lengthscales and s a multiple of it:

| kernel              | t                          | k                            | dk/dt               |
|---------------------|----------------------------|------------------------------|---------------------|
| squared exponential | log variance - r²/2        | exp(t)                       | k                   |
| Matern 1/2          | s² = r²                    | variance e^-s                | -k / (2 s)          |
| Matern 3/2          | s² = 3 r²                  | variance (1 + s) e^-s        | -variance e^-s / 2  |
| Matern 5/2          | s² = 5 r²                  | variance (1 + s + s²/3) e^-s | -variance (1 + s) e^-s / 6 |
| exponential         | s² = r²/4                  | variance e^-s                | -k / (2 s)          |
| rational quadratic  | r² / (2 alpha)             | variance (1 + t)^-alpha      | -alpha k / (1 + t)  |
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import (
    Exponential,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)

from .kernel_matrices import ACCURACY

_EXPONENT_ACCURACY = 0.2  # eps^this is the error that an exponent may have: 1e-3 in double precision
_LEAST_SQUARE = 1e-36  # of a distance, as in GPflow: below it nothing has a slope, and no root is infinitely steep

PullBack = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]


class Profile(NamedTuple):
    """One kind of kernel; `others` are its parameters besides variance and lengthscales."""

    others: Callable[[Any], tuple[Any, ...]]
    """The kernel's other parameters."""
    slope: Callable[..., Any]
    """Derivative of t in r², [], from the others."""
    offset: Callable[[tf.Tensor], Any]
    """t at r = 0, [], from log variance."""
    evaluate: Callable[..., tuple[tf.Tensor, PullBack]]
    """
    From t [..., M, n], log variance and the others: k, and a function from the derivative in k to that in t, up to
    `factor`, and to those in log variance and the others.
    """
    factor: Callable[..., Any]
    """By which the derivative in t that `evaluate` gives is to be multiplied, [], from the others."""
    accuracy: float
    """eps^this is the error that t may have."""


def profile_of(kernel: Kernel) -> Profile | None:
    """That of a kernel of exactly these classes: a class derived from one may have a covariance of its own."""
    return _PROFILES.get(type(kernel))


def _squared_exponential(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    K = tf.exp(t)
    return K, lambda bar: (bar * K, tf.zeros_like(log_variance))  # log variance is in t


def _root(t: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(t, _LEAST_SQUARE))


def _matern12(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    K = tf.exp(log_variance - s)

    def pull_back(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G = bar * K
        return tf.where(t > _LEAST_SQUARE, G / s, tf.zeros_like(s)), tf.reduce_sum(G)

    return K, pull_back


def _matern32(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    E = tf.exp(log_variance - s)
    K = E + s * E
    return K, lambda bar: (bar * E, tf.reduce_sum(bar * K))


def _matern52(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    E = tf.exp(log_variance - s)
    F = E + s * E
    K = F + E * (t / 3.0)
    return K, lambda bar: (bar * F, tf.reduce_sum(bar * K))


def _rational_quadratic(t: tf.Tensor, log_variance: tf.Tensor, alpha: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    base = 1.0 + t
    log_base = tf.math.log1p(t)
    K = tf.exp(log_variance - alpha * log_base)

    def pull_back(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G = bar * K
        return G / base, tf.reduce_sum(G), -tf.reduce_sum(G * log_base)

    return K, pull_back


def _of_root(evaluate: Callable[..., Any], slope: float, factor: float) -> Profile:
    """A kernel of s = sqrt(slope) r."""
    return Profile(lambda _: (), lambda: slope, lambda _: 0.0, evaluate, lambda: factor, ACCURACY)


_PROFILES: dict[type, Profile] = {
    SquaredExponential: Profile(
        lambda _: (),
        lambda: -0.5,
        lambda log_variance: log_variance,
        _squared_exponential,
        lambda: 1.0,
        _EXPONENT_ACCURACY,
    ),
    Matern12: _of_root(_matern12, slope=1.0, factor=-0.5),
    Matern32: _of_root(_matern32, slope=3.0, factor=-0.5),
    Matern52: _of_root(_matern52, slope=5.0, factor=-1.0 / 6.0),
    Exponential: _of_root(_matern12, slope=0.25, factor=-0.5),
    RationalQuadratic: Profile(
        lambda kernel: (tf.convert_to_tensor(kernel.alpha),),
        lambda alpha: 0.5 / alpha,
        lambda _: 0.0,
        _rational_quadratic,
        lambda alpha: -alpha,
        ACCURACY,
    ),
}
