"""Checks of observations Y: each likelihood accepts certain values."""

from functools import singledispatch
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import likelihoods
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood, SwitchedLikelihood

from ..maths.linalg import finite
from ..runtime import asserted
from ..validation import not_finite, positive_integer, real_numbers
from . import Logit, MultiClassRobustMax, Probit
from .robust_max import listed_labels

_NAME = "data[1] (Y)"
_ADVICE = "leaving out rows whose observation is missing"


class Accepted(NamedTuple):
    """
    The observations that a likelihood accepts.

    `mask` [N, P] is True for accepted values of Y, `values` describes them in error messages, and
    `hint` is appended to these messages.
    """

    mask: tf.Tensor
    values: str
    hint: str = ""


def check_observations(
    likelihood: Likelihood, Y: TensorType, num_outputs: int | None = None, first_row: int = 0
) -> tf.Tensor:
    """
    Return Y [N, P]; reject values that a likelihood would misinterpret, or that have probability 0
    for every f.

    :param num_outputs: the number of latent functions that the likelihood observes; None: not
        checked.
    :param first_row: the index of the first row, for error messages.
    :raises ValueError: naming the first rejected value and the accepted values, or the number of
        columns.
    :raises tf.errors.InvalidArgumentError: in a graph, naming the accepted values.
    """
    Y = real_numbers(Y, _NAME)
    is_scalar = isinstance(likelihood, likelihoods.ScalarLikelihood)
    if Y.shape.rank is None:
        Y = tf.ensure_shape(Y, [None, None])
    switches = isinstance(likelihood, SwitchedLikelihood)
    also = ", and one with the index of each row's likelihood" if switches else ""
    if num_outputs is not None and is_scalar:
        must = f"have a column for each of {num_outputs} latent functions{also}"
        Y = _with_columns(Y, num_outputs + switches, must)
    elif isinstance(likelihood, MultiClassRobustMax | likelihoods.MultiClass | likelihoods.Softmax):
        Y = _with_columns(Y, 1, "have one column of labels")
    if not tf.executing_eagerly():
        Y = finite(Y, name=_NAME, advice=_ADVICE)
    elif found := not_finite(Y):
        raise ValueError(f"{_NAME} must be finite, got {found}. Try: {_ADVICE}")
    values = tf.cast(Y, tf.float64)
    mask, accepted, hint = accepted_observations(likelihood, values)
    message = f"{_NAME} must hold {accepted} for {type(likelihood).__name__}, got"
    if not tf.executing_eagerly():
        return asserted(Y, mask, message, tf.boolean_mask(values, ~mask))
    rejected = np.argwhere(~mask.numpy())
    if len(rejected):
        row, column = rejected[0]
        value = float(Y[row, column])
        count = len(rejected)
        raise ValueError(
            f"{message} {value:g} in row {first_row + row} ({count} such values).{hint}"
        )
    return Y


def _with_columns(Y: tf.Tensor, expected: int, must: str) -> tf.Tensor:
    """Return Y [N, P], P = `expected`, also in a graph in which P is unknown."""
    found = Y.shape[1]
    if found not in (None, expected):
        raise ValueError(f"{_NAME} must {must}, got {found} columns.")
    if found is None:
        Y = asserted(
            Y,
            tf.equal(tf.shape(Y)[1], expected),
            f"{_NAME} must {must}; number of columns:",
            tf.shape(Y)[1],
        )
    return tf.ensure_shape(Y, [None, expected])


def check_assigned(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return X [N, D] and Y [N, P] of variables; raise an error that names the accepted values of Y.
    """
    if accepted_observations.dispatch(type(likelihood)) is accepted_observations.dispatch(
        Likelihood
    ):
        return X, Y  # accepts all real numbers; NaN makes the objective NaN, which raises an error
    mask, accepted, _ = accepted_observations(likelihood, tf.cast(Y, tf.float64))
    message = f"{_NAME} must hold {accepted} for {type(likelihood).__name__}"
    # Under XLA X becomes NaN: not all likelihoods propagate NaN in Y.
    return asserted(X, mask, f"{message}: set model.data = (X, Y) instead of assigning"), Y


@singledispatch
def accepted_observations(likelihood: Likelihood, Y: tf.Tensor) -> Accepted:
    """
    Return which of the observations Y [N, P] a likelihood accepts. Register custom likelihoods
    here, with TensorFlow operations: compiled functions also check values that were assigned to the
    data of a model.
    """
    return Accepted(tf.ones_like(Y, tf.bool), "real numbers")


def _is_whole(Y: tf.Tensor, below: float = np.inf) -> tf.Tensor:
    """Return a mask of the values 0, 1, ..., below - 1."""
    return (Y >= 0.0) & (below > Y) & tf.equal(tf.floor(Y), Y)


@accepted_observations.register(likelihoods.Bernoulli)
@accepted_observations.register(Probit)
@accepted_observations.register(Logit)
def _binary(likelihood: likelihoods.Bernoulli | Probit | Logit, Y: tf.Tensor) -> Accepted:
    low, high = getattr(likelihood, "labels", (0, 1))
    hint = " Give gpflow_pep.likelihoods.Probit or Logit with labels=(0, 1) or (-1, 1)."
    return Accepted(tf.equal(Y, low) | tf.equal(Y, high), f"the labels {low} and {high}", hint)


@accepted_observations.register
def _poisson(likelihood: likelihoods.Poisson, Y: tf.Tensor) -> Accepted:
    return Accepted(_is_whole(Y), "counts 0, 1, 2, ...")


@accepted_observations.register(likelihoods.Gamma)
@accepted_observations.register(likelihoods.Exponential)
def _positive(likelihood: likelihoods.Gamma | likelihoods.Exponential, Y: tf.Tensor) -> Accepted:
    return Accepted(Y > 0.0, "positive numbers")


@accepted_observations.register
def _beta(likelihood: likelihoods.Beta, Y: tf.Tensor) -> Accepted:
    return Accepted((Y > 0.0) & (Y < 1.0), "numbers between 0 and 1")


@accepted_observations.register
def _ordinal(likelihood: likelihoods.Ordinal, Y: tf.Tensor) -> Accepted:
    if not np.all(np.diff(likelihood.bin_edges) > 0.0):
        raise ValueError(
            f"likelihood: bin_edges of Ordinal must increase, got {likelihood.bin_edges}."
        )
    return Accepted(
        _is_whole(Y, likelihood.num_bins), f"whole numbers from 0 to {likelihood.num_bins - 1}"
    )


@accepted_observations.register(MultiClassRobustMax)
@accepted_observations.register(likelihoods.MultiClass)
@accepted_observations.register(likelihoods.Softmax)
def _classes(
    likelihood: MultiClassRobustMax | likelihoods.MultiClass | likelihoods.Softmax, Y: tf.Tensor
) -> Accepted:
    num_classes = positive_integer(likelihood.num_classes, "likelihood.num_classes")
    return Accepted(_is_whole(Y, num_classes), f"the labels {listed_labels(num_classes)}")


@accepted_observations.register
def _switched(likelihood: SwitchedLikelihood, Y: tf.Tensor) -> Accepted:
    count = len(likelihood.likelihoods)
    mask = tf.concat([tf.ones_like(Y[:, :-1], tf.bool), _is_whole(Y[:, -1:], count)], axis=1)
    return Accepted(mask, f"in its last column whole numbers from 0 to {count - 1}")
