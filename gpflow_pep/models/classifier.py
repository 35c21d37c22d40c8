"""PEPClassifier: PEP for class labels."""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from ..engine import DatasetChunks
from ..likelihoods import Logit, MultiClassRobustMax, Probit
from ..runtime import Workers
from ..tilted import Projection
from .pep import PEP
from .sparse import checked_data, columns

CLASSIFICATION = (Bernoulli, Logit, MultiClass, MultiClassRobustMax, Probit, Softmax)
"""Likelihoods of class labels."""


class PEPClassifier(PEP):
    """
    :class:`PEP` for class labels.

    Takes the arguments of :class:`PEP`; without `likelihood` it is chosen from the labels. Labels 0
    and 1, or -1 and +1, get :class:`gpflow_pep.likelihoods.Probit`; labels 0, 1, ..., C - 1 with C
    > 2 get :class:`gpflow_pep.MultiClassRobustMax`.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y = (np.sin(X) > 0.0).astype(float)
    >>> model = PEPClassifier((X, Y), gpflow.kernels.Matern52(), inducing_variable=X[::10], alpha=0.5)
    >>> probability, _ = model.predict_y(np.array([[1.5], [4.5]]))
    >>> (probability.numpy() > 0.5).ravel().tolist()
    [True, False]
    """

    def __init__(
        self,
        data: RegressionData | tf.data.Dataset | DatasetChunks,
        kernel: Kernel,
        likelihood: Likelihood | None = None,
        inducing_variable: InducingPointsLike | None = None,
        *,
        alpha: object = 0.5,
        scale: float | Parameter = 1.0,
        projection: str | Projection = "kl",
        tol: float | None = None,
        max_sweeps: int = 1000,
        damping: float = 1.0,
        mean_function: MeanFunction | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        See :class:`PEP` for the arguments; `likelihood`: of class labels, chosen from the labels by
        default.
        """
        if not isinstance(likelihood, Likelihood | None):
            found = type(likelihood).__name__
            hint = "inducing_variable=Z: inducing points are the argument after it"
            if isinstance(likelihood, str | type):
                found = repr(likelihood)
                hint = "an object: likelihoods.Probit(), gpflow.likelihoods.Softmax(3), ..."
            raise ValueError(
                f"likelihood must be a gpflow Likelihood or None, got {found}; give {hint}."
            )
        if inducing_variable is None:
            raise ValueError(
                "inducing_variable must be given: Z [M, D] or a gpflow inducing variable, got None."
            )
        if likelihood is None:
            if Workers.of_strategy().count > 1:
                raise ValueError(
                    "likelihood must be given with several workers, as no single worker sees all "
                    "labels."
                )
            data = checked_data(data, chunk_size)
            likelihood = _likelihood_for(_labels(data), columns(data)[1])
        super().__init__(
            data,
            kernel,
            likelihood,
            inducing_variable,
            alpha=alpha,
            scale=scale,
            projection=projection,
            tol=tol,
            max_sweeps=max_sweeps,
            damping=damping,
            mean_function=mean_function,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )

    @override
    def _check(self) -> None:
        if not isinstance(self.likelihood, CLASSIFICATION):
            names = ", ".join(kind.__name__ for kind in CLASSIFICATION)
            raise ValueError(
                f"likelihood must be one of class labels ({names}) or None, got "
                f"{type(self.likelihood).__name__}; use gpflow_pep.PEP for any other."
            )
        super()._check()


def _labels(data: RegressionData | DatasetChunks) -> AnyNDArray:
    """
    Return all labels in ascending order; reject one-hot labels, which would be read as independent
    outputs.
    """
    found, one_hot = [], columns(data)[1] > 1
    for _, Y in data.batches() if isinstance(data, DatasetChunks) else [data]:
        Y = np.asarray(Y)
        found.append(np.unique(Y))
        one_hot = one_hot and bool(np.isin(Y, (0, 1)).all() and (Y.sum(axis=1) == 1).all())
    if one_hot:
        raise ValueError(
            "data[1] (Y) must be one column of labels, got rows that each hold a single 1: give "
            "np.argmax(Y, axis=1)[:, None] or, for outputs of two classes each, "
            "likelihood=Probit()."
        )
    return np.unique(np.concatenate(found))


def _likelihood_for(labels: AnyNDArray, num_outputs: int) -> Likelihood:
    """Choose probit for labels 0, 1 or -1, +1, and robust-max for 0, ..., C - 1."""
    if np.isin(labels, (0, 1)).all():
        return Probit()
    if np.isin(labels, (-1, 1)).all():
        return Probit(labels=(-1, 1))
    # Allocate nothing of the size of the largest label, which may be huge (seconds since 1970, for
    # example).
    are_labels = (
        labels[0] >= 0.0 and labels[-1] < 2**31 and np.array_equal(labels, np.floor(labels))
    )
    if num_outputs == 1 and labels[-1] >= 2.0 and are_labels:
        num_classes = int(labels[-1]) + 1
        if len(labels) < num_classes:
            missing = np.flatnonzero(labels != np.arange(len(labels)))[0]
            raise ValueError(
                "data[1] (Y) must hold every label 0, 1, ..., C - 1 if likelihood is None, got "
                f"labels up to {num_classes - 1} but none of class {missing}; give "
                f"gpflow_pep.MultiClassRobustMax({num_classes}) if that is intended."
            )
        return MultiClassRobustMax(num_classes)
    raise ValueError(
        "data[1] (Y) must hold the labels 0 and 1, or -1 and 1, or one column of labels 0, 1, ..., "
        f"C - 1 if likelihood is None, got {', '.join(f'{value:g}' for value in labels[:5])} among "
        f"{len(labels)} values."
    )
