"""What each likelihood accepts as Y, checked at the door."""

from functools import singledispatch

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
    SwitchedLikelihood,
)

from .likelihoods import Logit, MultiClassRobustMax, Probit
from .validation import positive_integer


def check_observations(likelihood: Likelihood, Y: AnyNDArray) -> None:
    """
    Refuse values that a likelihood would take for something else, or that have probability 0 wherever f is.

    :param Y: finite observations [N, P].
    :raises ValueError: naming the first such value and what is accepted.
    """
    accepted, what, hint = _accepted(likelihood, Y)
    if not accepted.all():
        row = int(np.argwhere(~accepted)[0][0])
        value = Y[row][~accepted[row]][0]
        count = int((~accepted).sum())
        raise ValueError(
            f"data[1] (Y) must hold {what} for {type(likelihood).__name__}, got {value:g} in row {row} "
            f"({count} such values).{hint}"
        )


@singledispatch
def _accepted(likelihood: Likelihood, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    """Which values are accepted [N, P], what they are called, and a hint."""
    return np.ones(Y.shape, dtype=bool), "real numbers", ""


@_accepted.register(Probit)
@_accepted.register(Logit)
def _binary(likelihood: Probit | Logit, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    low, high = likelihood.labels
    return np.isin(Y, likelihood.labels), f"the labels {low} and {high}", " Other codings: labels=(0, 1) or (-1, 1)."


@_accepted.register
def _bernoulli(likelihood: Bernoulli, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    hint = " For -1 and 1 use gpflow_pep.likelihoods.Probit(labels=(-1, 1)) or Logit."
    return np.isin(Y, (0, 1)), "the labels 0 and 1", hint


@_accepted.register
def _poisson(likelihood: Poisson, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    return (Y >= 0) & (np.floor(Y) == Y), "counts 0, 1, 2, ...", ""


@_accepted.register(Gamma)
@_accepted.register(Exponential)
def _positive(likelihood: Gamma | Exponential, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    return Y > 0.0, "positive numbers", ""


@_accepted.register
def _beta(likelihood: Beta, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    return (Y > 0.0) & (Y < 1.0), "numbers between 0 and 1", ""


@_accepted.register
def _ordinal(likelihood: Ordinal, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    return np.isin(Y, np.arange(likelihood.num_bins)), f"whole numbers from 0 to {likelihood.num_bins - 1}", ""


@_accepted.register(MultiClassRobustMax)
@_accepted.register(MultiClass)
@_accepted.register(Softmax)
def _classes(likelihood: MultiClassRobustMax | MultiClass | Softmax, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    if Y.shape[1] != 1:
        raise ValueError(f"data[1] (Y) must have one column of labels, got {Y.shape[1]} columns.")
    num_classes = positive_integer(likelihood.num_classes, "likelihood.num_classes")
    return np.isin(Y, np.arange(num_classes)), f"the labels 0, 1, ..., {num_classes - 1}", ""


@_accepted.register
def _switched(likelihood: SwitchedLikelihood, Y: AnyNDArray) -> tuple[AnyNDArray, str, str]:
    count = len(likelihood.likelihoods)
    accepted = np.ones(Y.shape, dtype=bool)
    accepted[:, -1] = np.isin(Y[:, -1], np.arange(count))
    return accepted, f"in its last column whole numbers from 0 to {count - 1}", ""
