"""Predictions of every model: shapes, batches, posteriors, chunks and gradients.

Two ways to the same numbers differ in the order of sums of at most 12 terms of order one, after a
Cholesky factor of condition number below 1e3: 1e3 eps = 2e-13, so 1e-11 is safe and far below any
mistake.
"""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from configuration import configured
from contract_models import XNEW, holds_data, is_gaussian, perturb, same_predictions
from differences import assert_gradients
from gpflow.posteriors import PrecomputeCacheType
from model_registry import IN_REGRESSION, ONE_IN_REGRESSION, ONE_OF_ALL
from numpy.testing import assert_allclose
from refusals import refused, stopped
from scipy.stats import norm
from tensorflow.python.autograph.impl import api as autograph

from gpflow_pep.models.stream import Stream

EXACT = 1e-11
FORMS = {  # shapes of covariances, and the variances [n, P] in them
    (False, False): (lambda n, P: [n, P], "np->np"),
    (True, False): (lambda n, P: [P, n, n], "pnn->np"),
    (False, True): (lambda n, P: [n, P, P], "npp->np"),
    (True, True): (lambda n, P: [n, P, n, P], "npnp->np"),
}


def test_all_covariance_forms_agree(many):
    n = len(XNEW)
    P = many.num_latent_gps
    posterior = many.posterior()
    found = {}
    mean, variance = many.predict_f(XNEW)
    assert np.all(variance > 0.0)
    for form, (shape, diagonal) in FORMS.items():
        for predict in (many.predict_f, posterior.predict_f, posterior.fused_predict_f):
            m, cov = predict(XNEW, *form)
            assert m.dtype == cov.dtype == tf.float64
            assert m.shape == [n, P]
            assert cov.shape == shape(n, P)
            same_predictions((m, np.einsum(diagonal, cov)), (mean, variance), EXACT)
        found[form] = cov.numpy()
    whole = found[True, False]
    everything = found[True, True]
    assert np.min(np.linalg.eigvalsh(whole)) > -EXACT
    for p in range(P):
        assert_near(everything[:, p, :, p], whole[p], EXACT)
        for q in set(range(P)) - {p}:
            assert not everything[:, p, :, q].any()
            assert not found[False, True][:, p, q].any()


@ONE_OF_ALL
def test_accepts_leading_batch_dimensions(many):
    batch = np.stack([XNEW + shift for shift in (0.0, 0.3, -0.5, 1.0)])
    for form in ((False, False), (True, True)):
        parts = [many.predict_f(each, *form) for each in batch]
        expected = [np.stack(values) for values in zip(*parts, strict=True)]
        for lead in ([4], [2, 2]):
            found = many.predict_f(batch.reshape(*lead, 7, 2), *form)
            for values, wanted in zip(found, expected, strict=True):
                assert values.shape == [*lead, *wanted.shape[1:]]
                assert_near(np.reshape(values, wanted.shape), wanted, EXACT)


def test_predict_y_adds_likelihood(subject, shared):
    """Gaussian noise adds its variance; probabilities of labels sum to 1, to 1e-10 each."""
    for P in {1, subject.columns} if subject.is_regression else {3}:
        model = shared(P)
        X, Y = subject.observations(model, seed=5)
        mean, variance = (value.numpy() for value in model.predict_y(X))
        density = model.predict_log_density((X, Y))
        assert density.shape == [len(X)] and density.dtype == tf.float64
        if is_gaussian(model):
            f_mean, f_var = model.predict_f(X)
            assert_near(mean, f_mean, EXACT)
            assert_near(variance, f_var + model.likelihood.variance, EXACT)
            expected = np.sum(norm.logpdf(Y, mean, np.sqrt(variance)), axis=1)
        else:
            assert np.all((mean > 0.0) & (mean < 1.0))
            assert_near(np.sum(mean, axis=1), 1.0, 1e-8)
            assert_allclose(variance, mean * (1.0 - mean), rtol=1e-14)
            expected = np.log(np.take_along_axis(mean, Y.astype(int), axis=1)[:, 0])
        assert_near(density, expected, 1e-10)


@ONE_OF_ALL
def test_samples_have_predicted_moments(many):
    P = many.num_latent_gps
    assert many.predict_f_samples(XNEW).shape == [7, P]
    assert many.predict_f_samples(XNEW, 3).shape == [3, 7, P]
    assert many.predict_f_samples(XNEW, 3, full_cov=False, full_output_cov=True).shape == [3, 7, P]
    tf.random.set_seed(0)
    draws = many.predict_f_samples(XNEW[:2], 20_000).numpy()
    mean, cov = many.predict_f(XNEW[:2], full_cov=True)
    # Five standard errors: sd / sqrt(n) of a mean; of an empirical covariance at most sqrt(2 / n)
    # times the variance.
    largest = np.max(cov)
    assert_allclose(draws.mean(axis=0), mean, atol=5 * np.sqrt(largest / 20_000))
    for p in range(P):
        assert_allclose(np.cov(draws[:, :, p].T), cov[p], atol=5 * np.sqrt(2 / 20_000) * largest)


@ONE_OF_ALL
def test_posterior_predicts_the_same(subject, model):
    subject.loss(model)()  # sites whose classes were shifted repeat from the next evaluation on
    for cache in (*PrecomputeCacheType, "tensor", "variable", None):
        posterior = model.posterior(cache)
        same_predictions(posterior.fused_predict_f(XNEW), model.predict_f(XNEW), EXACT)
        if cache in (PrecomputeCacheType.NOCACHE, None):
            with refused("Cache has not been precomputed"):
                posterior.predict_f(XNEW)
            continue
        for full_cov in (False, True):
            same_predictions(
                posterior.predict_f(XNEW, full_cov),
                model.predict_f(XNEW, full_cov),
                EXACT,
            )


def test_variable_cache_updates_in_compiled_graph(many):
    posterior = many.posterior("variable")
    compiled = tf.function(posterior.predict_f)
    old = compiled(XNEW)
    same_predictions(old, many.predict_f(XNEW), EXACT)
    perturb(many)
    posterior.update_cache()
    new = compiled(XNEW)
    same_predictions(new, many.predict_f(XNEW), EXACT)
    assert np.abs(new[0] - old[0]).max() > 1e-3
    assert compiled.experimental_get_tracing_count() == 1


def test_tensor_cache_updates_on_demand(subject, model):
    """
    The cache does not follow the data. (A posterior shares kernel and mean function with its
    model.)
    """
    posterior = model.posterior()
    old = posterior.predict_f(XNEW)
    if subject.is_regression:
        model.data[1].assign_add(tf.ones_like(model.data[1]))
        same_predictions(posterior.predict_f(XNEW), old)
    else:
        perturb(model)
    assert np.abs(model.predict_f(XNEW)[0] - old[0]).max() > 1e-3
    posterior.update_cache()
    same_predictions(posterior.predict_f(XNEW), model.predict_f(XNEW), EXACT)


@ONE_IN_REGRESSION
def test_predicts_several_chunks(many):
    Xnew = np.random.default_rng(0).uniform(-3.0, 3.0, size=(10_001, 2))
    posterior = many.posterior()
    mean, variance = posterior.predict_f(Xnew)
    assert mean.shape == variance.shape == [10_001, many.num_latent_gps]
    for start in range(0, 10_001, 997):
        m, v = posterior.predict_f(Xnew[start : start + 997])
        assert_near(mean[start : start + 997], m, EXACT)
        assert_near(variance[start : start + 997], v, EXACT)
    compiled = tf.function(many.predict_f, input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    for n in (10_001, 4096, 1, 0):
        m, v = compiled(Xnew[:n])
        assert_near(m, mean[:n], EXACT)
        assert_near(v, variance[:n], EXACT)


@IN_REGRESSION
@pytest.mark.parametrize(
    ("full_cov", "compiled"),
    [(True, False), (False, True)],
    ids=["covariances eager", "variances compiled"],
)
def test_prediction_gradients_match_finite_differences(model, full_cov, compiled):
    """
    Gradients of means and (co)variances with random weights in Xnew and all hyperparameters. The
    rule's error, h^4/30 times a fifth derivative of up to 1e4, is 1e-11; rounding is 1e-13 / h. The
    old and the new inducing points of a stream coincide: they share the jitter, 1e-6, and have two
    next to it.
    """
    tolerance = 1e-6 if isinstance(model, Stream) else 1e-7
    Xnew = tf.Variable(XNEW[:3])
    # Sites follow the hyperparameters, but predictions are differentiated as if the sites were
    # constants.
    sources = [Xnew] if hasattr(model, "sites") else [Xnew, *model.trainable_variables]
    weights = np.random.default_rng(8).normal(size=(2, 3, 3))

    def value():
        mean, cov = model.predict_f(Xnew, full_cov=full_cov)
        return tf.reduce_sum(weights[0, :, :1] * mean) + tf.reduce_sum(
            weights[1, :, : 3 if full_cov else 1] * cov
        )

    evaluate = tf.function(value) if compiled else value
    assert_gradients(evaluate, sources, h=4e-4, tolerance=tolerance)


@ONE_IN_REGRESSION
def test_samples_of_singular_covariance_raise(shared):
    """Twenty copies of one input without jitter raise an error instead of giving NaN."""
    with (
        configured(jitter=0.0),
        stopped(r"posterior samples are not finite\. Try: a larger jitter"),
    ):
        shared(1).predict_f_samples(np.repeat(XNEW[:1], 20, axis=0))


@ONE_OF_ALL
@pytest.mark.parametrize(
    "method",
    [
        "predict_f",
        "predict_y",
        "predict_log_density",
        "predict_f_samples",
        "training_loss",
        "log_posterior_density",
        "elbo",
        "upper_bound",
        "loo_log_predictive_density",
        "compute_qu",
        "surrogate",
        "posterior",
    ],
)
def test_autograph_converts_no_code_of_the_package(model, subject, method, monkeypatch):
    """
    AutoGraph prints warnings about functions that it cannot convert, once for each function in a
    process.
    """
    refused = ("loo_log_predictive_density", "surrogate") if subject.name == "BlockPEP" else ()
    if not hasattr(model, method) or method in refused:
        pytest.skip(f"the model has no {method}")
    converted = []
    convert = autograph._convert_actual

    def recorded(entity, context):
        converted.append(entity.__code__.co_filename)
        return convert(entity, context)

    monkeypatch.setattr(autograph, "_convert_actual", recorded)
    X, Y = subject.observations(model)
    rows = () if holds_data(model) else ((X, Y),)
    arguments = {
        "predict_f": (X,),
        "predict_y": (X,),
        "predict_f_samples": (X,),
        "predict_log_density": ((X, Y),),
        "training_loss": rows,
        "log_posterior_density": rows,
        "elbo": rows,
    }
    function = tf.function(lambda *given: tf.nest.flatten(getattr(model, method)(*given)))
    if method == "posterior":
        function = tf.function(lambda: model.posterior().predict_f(X))
    function.get_concrete_function(*arguments.get(method, ()))
    assert [file for file in converted if "gpflow_pep" in file] == []
