"""StreamingSVGP: a reference, limits, and updates of q(u) by batches and new inducing points."""

import copy
import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from configuration import configured
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, StudentT
from model_values import in_q, loss_and_gradient, references
from numpy.testing import assert_allclose, assert_array_equal
from refusals import stopped
from waves import line

from gpflow_pep import StreamingSGPR, StreamingSVGP
from gpflow_pep.likelihoods import MultiClassRobustMax, Probit

(CASE,) = references("streaming_classification")
rng = np.random.default_rng(6)
X = np.sort(rng.uniform(0.0, 6.0, (60, 1)), axis=0)
Y = np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape)
Z = line(0.0, 6.0, 8)
FIRST = (X[:30], Y[:30])
SECOND = (X[30:], Y[30:])


def kernel():
    return SquaredExponential(1.3, 0.9)


@pytest.mark.usefixtures("no_jitter")
def test_matches_reference():
    """At q(u) of both steps as given; objectives of size 10 by quadrature of 1e-12 relative."""
    inputs = CASE["inputs"]
    expected = CASE["expected"]
    old = inputs["kernel_old"]
    model = StreamingSVGP(
        SquaredExponential(old["variance"], old["lengthscales"]),
        Probit(),
        np.array(inputs["Z_old"]),
        q_mu=np.array(inputs["m_old"])[:, None],
        q_sqrt=np.linalg.cholesky(inputs["S_old"])[None],
        whiten=False,
    )
    data = np.array(inputs["X"]), np.reshape(inputs["Y01"], (-1, 1))
    model.update(data, np.array(inputs["Z"]))
    model.kernel.variance.assign(inputs["kernel"]["variance"])
    model.kernel.lengthscales.assign(inputs["kernel"]["lengthscales"])
    model.q_mu.assign(np.reshape(inputs["q_mu"], (-1, 1)))
    model.q_sqrt.assign(np.array(inputs["q_sqrt"])[None])
    assert_near(-model.training_loss(data), expected["objective"], 1e-9)


@pytest.mark.parametrize("whiten", [True, False])
def test_equals_svgp_before_updates(whiten):
    q_mu = rng.normal(size=(8, 1))
    q_sqrt = np.tril(0.3 * rng.normal(size=(1, 8, 8))) + np.eye(8)
    options = {"q_mu": q_mu, "q_sqrt": q_sqrt, "whiten": whiten, "num_data": 60}
    model = StreamingSVGP(kernel(), StudentT(), Z, **options)
    reference = gpflow.models.SVGP(kernel(), StudentT(), Z, **options)
    assert_allclose(model.training_loss(FIRST), reference.training_loss(FIRST), rtol=1e-10)
    assert_all_near(model.predict_f(X), reference.predict_f(X), 1e-8)


def test_a_q_that_is_replaced_is_absorbed():
    """As one that is assigned: by the same operations, in a function that is traced again."""
    models = [StreamingSVGP(kernel(), StudentT(), Z, num_data=30) for _ in range(2)]
    q_mu = rng.normal(size=(8, 1))
    for model, replaces in zip(models, (True, False), strict=True):
        model.update(SECOND)
        if replaces:
            model.q_mu = gpflow.Parameter(q_mu)
        else:
            model.q_mu.assign(q_mu)
        model.update(FIRST)
    assert_allclose(*(model.state.arrays["old.linear"] for model in models), rtol=1e-14)


def test_the_jitter_of_a_model_equals_a_default_jitter():
    """Before and after points move, by the same operations."""

    def predictions(jitter):
        q = {"q_mu": np.cos(Z), "q_sqrt": 0.3 * np.eye(8)[None]}
        model = StreamingSVGP(kernel(), StudentT(), Z, num_data=30, **q)
        model.jitter = jitter
        model.update(SECOND, np.concatenate([Z[:5], Z[5:] - 0.2]))
        return [model.training_loss(SECOND), *model.predict_f(X)]

    own = predictions(1e-4)
    default = predictions(None)
    with configured(jitter=1e-4):
        expected = predictions(None)
    for value, other, wanted in zip(own, default, expected, strict=True):
        assert_allclose(value, wanted, rtol=1e-13)
        assert np.abs(other - wanted).max() > 1e-6  # the jitter shows


def optimum(model, collapsed):
    """Assign the q(u) of the collapsed model, which is optimal with Gaussian noise."""
    mean, covariance = collapsed.compute_qu()
    model.q_mu.assign(mean)
    model.q_sqrt.assign(np.linalg.cholesky(covariance)[None])


def test_optimal_q_gives_collapsed_bound():
    """Batch after batch, with inducing points that move and change in number."""
    noise = Gaussian(0.04)
    model = StreamingSVGP(kernel(), noise, Z, num_data=30, whiten=False)
    collapsed = StreamingSGPR(FIRST, kernel(), Z, noise_variance=0.04)
    optimum(model, collapsed)
    assert_allclose(model.training_loss(FIRST), collapsed.training_loss(), rtol=1e-7)
    for each in (model, collapsed):
        each.update(SECOND, line(0.1, 6.1, 10))
    optimum(model, collapsed)
    assert_allclose(model.training_loss(SECOND), collapsed.training_loss(), rtol=1e-6)
    loss, slopes = loss_and_gradient(model, SECOND, variables=in_q(model))
    for slope in slopes:
        # Kuu^-1 of 1e4 times the rounding of q_mu and q_sqrt.
        assert np.abs(slope).max() < 1e-4 * abs(loss)


def test_compiled_functions_use_updates():
    model = StreamingSVGP(kernel(), Gaussian(0.1), Z, num_data=30)
    loss = tf.function(
        model.training_loss, input_signature=[(tf.TensorSpec([None, 1], tf.float64),) * 2]
    )
    for batch in (SECOND, (X[:7], Y[:7])):
        model.q_mu.assign(rng.normal(size=(8, 1)))
        model.update(batch)
        assert model.num_data == len(batch[0])
        assert_allclose(loss(batch), model.training_loss(batch), rtol=1e-12)
    assert loss.experimental_get_tracing_count() == 1
    model.update(SECOND, Z[:5])
    with stopped("compile it again"):
        loss(SECOND)
    assert np.isfinite(model.training_loss(SECOND))


@pytest.mark.parametrize(("whiten", "q_diag"), [(False, False), (True, True)])
def test_q_is_projected_to_moved_inducing_points(whiten, q_diag):
    """Predictions at the new points are unchanged."""
    model = StreamingSVGP(kernel(), MultiClassRobustMax(3), Z, whiten=whiten, q_diag=q_diag)
    model.q_mu.assign(rng.normal(size=(8, 3)))
    model.q_sqrt.assign(0.4 * model.q_sqrt)
    new = line(0.3, 5.7, 7)
    before = model.predict_f(new)
    model.update((X, np.zeros_like(X)), new)
    after = model.predict_f(new)
    assert_near(after[0], before[0], 1e-4)  # the jitter of Kuu
    if not q_diag:  # a diagonal covariance cannot represent the projection to new points
        assert_near(after[1], before[1], 1e-4)
    before = model.predict_f(X)
    model.update((X, np.zeros_like(X)))
    assert_array_equal(model.predict_f(X)[0], before[0])


def test_q_wider_than_prior_is_clipped():
    model, fresh = (
        StreamingSVGP(kernel(), Gaussian(0.1), Z, q_sqrt=2.0 * np.eye(8)[None]) for _ in range(2)
    )
    model.update(SECOND)
    assert_allclose(model.training_loss(SECOND), fresh.training_loss(SECOND), rtol=1e-10)


def test_copy_accepts_any_number_of_points():
    """Bit-identical to the model: copying does not fix the shapes of the old posterior."""
    model = StreamingSVGP(kernel(), Gaussian(), Z)
    copies = model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    for each in copies:
        each.update(SECOND, Z[:2])
    first, *others = (each.predict_f(X) for each in copies)
    assert_array_equal(others, [first] * 2)
