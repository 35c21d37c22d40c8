"""Experiments with more than two classes."""

from unittest.mock import patch

import numpy as np
import pytest
from gpflow.kernels import Matern52
from numpy.testing import assert_allclose

from experiments.ingredients import classifier
from experiments.ingredients.classifier import _likelihood, build_classifier


@pytest.mark.parametrize("train_epsilon", [True, False])
def test_epsilon(train_epsilon):
    likelihood = _likelihood(None, 3, 0.01, train_epsilon)
    assert likelihood.num_classes == 3 and likelihood.epsilon.trainable == train_epsilon
    assert_allclose(likelihood.epsilon, 0.01, rtol=1e-12)


@pytest.mark.parametrize("weak_priors", [False, True])
def test_weak_priors_are_of_trained_parameters(weak_priors):
    X = np.random.RandomState(0).normal(size=(12, 2))
    Y = np.arange(12.0)[:, None] % 3
    config = {"model": "PEP", "alpha": 0.5, "M": 3, "separate": True, "train_inducing": True}
    config |= {"white": 1e-2, "train_kernel": True, "max_sweeps": 10, "max_jitter": None}
    config |= {"_seed": 0}
    with patch.multiple(
        classifier,
        _stationary_kernel=lambda X: Matern52(lengthscales=[1.0, 1.0]),
        _likelihood=lambda num_classes: _likelihood(None, num_classes, 1e-3, False),
    ):
        model = build_classifier(X, Y, 3, weak_priors=weak_priors, **config)
    with_priors = [parameter.prior is not None for parameter in model.kernel.parameters]
    assert with_priors == [weak_priors] * len(with_priors)
    assert model.likelihood.epsilon.prior is None
