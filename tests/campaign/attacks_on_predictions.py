"""Attacks with rows: new inputs, observations, minibatches and categories."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.kernels import Coregion, Matern32, SquaredExponential
from gpflow.likelihoods import Poisson, StudentT

from campaign.attack_subjects import (
    Attack,
    Attacks,
    Model,
    Pair,
    Rows,
    drawn,
    masked,
    models,
)
from gpflow_pep import PEP, PEPR


def _predicting(*values: Any) -> Callable[[Model], None]:
    """Predict by one of the methods at inputs that must be refused."""

    def act(s: Model) -> None:
        method = drawn(s, ["predict_f", "predict_y", "posterior"])
        predict = (
            s.model.posterior().predict_f if method == "posterior" else getattr(s.model, method)
        )
        predict(drawn(s, values))

    return act


def _converted(s: Model) -> Pair:
    """Inputs in another form, or in batches, are those numbers."""
    whole = np.round(3.0 * s.Xnew)
    forms = [
        whole.tolist(),
        whole.astype(int),
        whole.astype(np.float32),
        pd.DataFrame(whole),
        whole.astype(object),
    ]
    found, expected = (s.model.predict_f(each) for each in (drawn(s, forms), whole))
    batches = s.model.predict_f(np.stack([s.Xnew, whole]))
    one = s.model.predict_f(s.Xnew)
    numbers = {
        "mean": found[0],
        "variance": found[1],
        "first": batches[0][0],
        "second": batches[1][1],
    }
    return numbers, {
        "mean": expected[0],
        "variance": expected[1],
        "first": one[0],
        "second": expected[1],
    }


def _category_like_numbers(s: Rows) -> Pair:
    """If all rows have the same category, the kernel of categories is a constant factor."""
    X = np.column_stack([s.X[:, 0], np.zeros(len(s.X))])
    category = Coregion(2, 1, active_dims=[1])
    kernel = Matern32(active_dims=[0]) * category
    plain = Matern32(float(category.output_covariance()[0, 0]), active_dims=[0])
    found, expected = (PEPR((X, s.Y), each, X[:4]) for each in (kernel, plain))
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


def _far_from_zero(s: Rows) -> Pair:
    """
    Predict wide marginals of f at 3 to 28 standard deviations from 0, far from the data. Student's
    t adds its variance to the prior of f, and a softplus changes nothing there.
    """
    variance = 10.0 ** s.rng.uniform(0.0, 4.0)
    level = s.rng.choice([-1.0, 1.0]) * s.rng.uniform(3.0, 28.0) * np.sqrt(variance)
    likelihood = drawn(s, [StudentT(1.0, df=4.0), Poisson(tf.nn.softplus)])
    if isinstance(likelihood, Poisson):
        level = abs(level) + 7.0 * np.sqrt(variance) + 40.0
        Y = np.round(level + s.Y)
        noise = level
    else:
        Y = level + s.Y
        noise = 2.0
    model = PEP(
        (s.X, Y),
        SquaredExponential(variance),
        likelihood,
        s.X[:4].copy(),
        mean_function=gpflow.mean_functions.Constant(level),
    )
    mean, spread = model.predict_y(s.Xnew + 1e3)
    ones = np.ones((len(s.Xnew), 1))
    return {"mean": mean, "variance": spread}, {
        "mean": level * ones,
        "variance": (variance + noise) * ones,
    }


ATTACKS: Attacks = {
    "observations far from zero": Attack(Rows, _far_from_zero),
    "inputs in other forms": Attack(models(), _converted),
    "inputs": Attack(
        models(),
        _predicting(
            3.0,
            lambda s: s.X.astype("M8[s]"),
            lambda s: s.X + np.inf,
            lambda s: masked(s.X),
            lambda s: pd.DataFrame(s.X).assign(third=1.0, fourth=2.0),
            lambda s: s.X[:, 0],
        ),
        "Xnew",
    ),
    "covariance of observations": Attack(
        models(),
        lambda s: s.model.predict_y(s.X, **{drawn(s, ["full_cov", "full_output_cov"]): True}),
        "full_cov",
    ),
    "one category": Attack(Rows, _category_like_numbers),
}
