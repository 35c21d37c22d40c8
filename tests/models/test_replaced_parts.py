"""
Parts replaced after construction are checked as in the constructor; a refused part leaves the model
unchanged.
"""

import gpflow
import numpy as np
import pytest
from gpflow.kernels import Matern32, Matern52
from gpflow.likelihoods import Gaussian, Softmax
from kinds import EVERY, N, X, Y, Z, made
from model_values import positive_parameter
from refusals import refused

from gpflow_pep import PEPR, TSVGP


@pytest.mark.parametrize("kind", EVERY)
def test_a_checkpoint_holds_the_parts_of_the_model_after_one_was_refused(kind):
    """TensorFlow lists a part before the model refuses it."""
    model = made(kind)
    children = model._trackable_children()
    parts = {"kernel": Matern32(lengthscales=np.ones(3)), "likelihood": Softmax(3)}
    for name, part in parts.items():
        with refused("must"):
            setattr(model, name, part)
    assert model._trackable_children() == children
    model.kernel = Matern32()
    model.inducing_variable = Z + 0.1
    for name in ("kernel", "inducing_variable"):
        assert model._trackable_children()[name] is getattr(model, name)


class WithAttributes(PEPR):
    """A model of a user, with attributes of its own and a condition on its parts."""

    def __init__(self, *arguments, largest, **options):
        self.minibatch = 10
        super().__init__(*arguments, **options)
        self.largest = largest
        self.new_data = [1, 2]

    def _check(self):
        super()._check()
        if self.kernel.variance.numpy() > self.largest:
            raise ValueError("kernel has too large a variance.")


def test_attributes_that_are_no_parts_are_stored():
    model = WithAttributes((X, Y), Matern52(), Z, largest=2.0)
    model.powers = 2.0
    model.block_sizes = None
    assert (model.minibatch, model.powers, model.block_sizes) == (10, 2.0, None)
    assert list(model.new_data) == [1, 2]


def test_a_subclass_extends_the_check_which_sees_the_complete_model():
    kernel = Matern52()
    model = WithAttributes((X, Y), kernel, Z, largest=2.0)
    with refused("too large a variance"):
        model.kernel = Matern52(variance=3.0)
    assert model.kernel is kernel
    with refused("too large a variance"):
        WithAttributes((X, Y), Matern52(variance=3.0), Z, largest=2.0)


def test_a_posterior_must_have_the_parts_of_its_model():
    model = PEPR((X, Y), Matern52(), Z)
    posterior = model.posterior()
    model.mean_function = gpflow.functions.Constant([3.0])
    with refused(r"one was replaced: call posterior\(\) again"):
        posterior.update_cache()
    new = model.posterior()
    expected = PEPR((X, Y), Matern52(), Z, mean_function=model.mean_function)
    np.testing.assert_allclose(new.predict_f(X)[0], expected.predict_f(X)[0], rtol=1e-12)
    model.mean_function = None
    assert model.training_loss() == PEPR((X, Y), Matern52(), Z).training_loss()


def test_numbers_and_tensors_are_assigned_to_parameters():
    """They took the place of a parameter, which then was no longer trained."""
    model = PEPR((X, Y), Matern52(), Z, scale=positive_parameter(0.5))
    scale = model.scale
    for value in (scale * 1.5, 0.75):
        scale.assign(0.5)
        model.scale = value
        assert model.scale is scale and scale.trainable and scale.numpy() == pytest.approx(0.75)
    minibatch = TSVGP(Matern52(), Gaussian(), Z, num_data=N)
    minibatch.q_mu = minibatch.q_mu + 1.0
    assert isinstance(minibatch.q_mu, gpflow.Parameter)


def test_an_optimal_scale_stays_optimal():
    model = PEPR((X, Y), Matern52(), Z, alpha=0.0, scale="optimal")
    with refused(r"scale must stay 'optimal', got 2\.0: construct a new model"):
        model.scale = 2.0
