"""Covariances of inducing variables with those of an old posterior."""

from typing import NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .covariances import Prior, independent_parts, stacked


class OldCovariances(NamedTuple):
    """Of inducing variables u at M points with old ones, a, at Ma points; separate ones lead, [C, ...]."""

    same: tf.Tensor
    """1 where a new point equals the old one, otherwise 0, [M, Ma]."""
    Kba: tf.Tensor
    """[M, Ma], without jitter."""
    Kaa: tf.Tensor
    """[Ma, Ma], with it."""


def old_covariances(
    inducing_variable: InducingVariables, kernel: Kernel, Z_old: tf.Tensor, jitter: float
) -> OldCovariances:
    """
    Covariances with old inducing points.

    :param Z_old: [1 or C, Ma, D], the same for all latent functions or one for each.
    """
    Z_old = tf.convert_to_tensor(Z_old)
    parts = independent_parts(inducing_variable, kernel)
    found = [
        _old_covariances(*part, Z_old[number % Z_old.shape[0]], jitter) for number, part in enumerate(parts)
    ]  # (the remainder is 0 where they are the same)
    return OldCovariances(*(stacked(values) for values in zip(*found, strict=True)))


def _old_covariances(
    inducing_variable: InducingVariables, kernel: Kernel, Z_old: tf.Tensor, jitter: float
) -> OldCovariances:
    Z, prior = tf.convert_to_tensor(inducing_variable.Z), Prior(inducing_variable, kernel)
    Kba, Kaa = prior.Kuf(Z_old, *prior.inputs), prior.Kff(Z_old, *prior.inputs)
    return OldCovariances(_same(Z, Z_old), Kba, Kaa + jitter * tf.eye(tf.shape(Z_old)[0], dtype=Z.dtype))


def _same(Z: tf.Tensor, Z_old: tf.Tensor) -> tf.Tensor:
    """Whether points are equal, [M, Ma]; duplicates are matched in order, the first with the first and so on."""
    with tf.device("CPU"):  # other devices have it for vectors only
        both = tf.concat([Z, Z_old], axis=0) + 0.0  # -0 is 0
        place = tf.raw_ops.UniqueV2(x=both, axis=[0]).idx  # the same for the same point
    new, old = tf.split(place, [tf.shape(Z)[0], tf.shape(Z_old)[0]])
    same = (new[:, None] == old) & (_occurrence(new)[:, None] == _occurrence(old))
    return tf.cast(same, Z.dtype)


def _occurrence(place: tf.Tensor) -> tf.Tensor:
    """Count the earlier points equal to each one, [n]."""
    return tf.reduce_sum(tf.linalg.band_part(tf.cast(place[:, None] == place, tf.int32), -1, 0), axis=-1)
