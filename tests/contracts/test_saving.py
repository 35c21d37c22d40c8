"""Every model is listed, copied, restored and exported; copies are bit-identical unless stated."""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_equal
from contract_models import XNEW, N, holds_data, perturb, same_predictions
from gpflow.utilities import deepcopy, freeze, parameter_dict, print_summary
from model_registry import CLASSES
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow

SPEC = [tf.TensorSpec([None, 2], tf.float64)]
EXACT = 1e-11  # Graphs fuse and reorder operations of order one; first calls may do without one.
# Settings that save different variables.
SETTINGS = [
    "PEPR alpha per block",
    "T-PEP learned",
    "TSGPR",
    "BTSGPR shared",
    "PEP scale learned",
    "BlockPEP",
    "StreamingPEP",
    "StreamingSGPR",
]
QUICK = ("StreamingSGPR",)
saved_regression = partly_slow("subject", SETTINGS, quick=QUICK, indirect=True)
saved = partly_slow(
    "subject", [*SETTINGS, *CLASSES], quick=[*QUICK, "ARPEP", "PEP scale learned"], indirect=True
)
exported = pytest.mark.parametrize("subject", [*SETTINGS, *CLASSES], indirect=True)


@saved_regression
def test_summary_and_parameters_exclude_data(model, capsys):
    print_summary(model, fmt="simple")
    printed = capsys.readouterr().out
    names = list(parameter_dict(model))
    assert {
        ".kernel.variance",
        ".kernel.lengthscales",
        ".likelihood.variance",
        ".inducing_variable.Z",
    } <= set(names)
    for name in names:
        assert name[1:] in printed
    for unwanted in ("_data", "_chunks", "_alpha", "_rows"):
        assert unwanted not in printed
        assert not any(unwanted in name for name in names)
    assert all(variable.shape[:1] != [12] for variable in model.trainable_variables)


@saved
def test_copy_is_independent(subject, model):
    subject.loss(model)()
    loss = subject.loss(model)()
    predictions = model.predict_f(XNEW)
    other = deepcopy(model)
    assert type(other) is type(model)
    assert_allclose(subject.loss(other)(), loss, rtol=EXACT)
    other.kernel = deepcopy(other.kernel)
    perturb(other, size=0.1)
    subject.change_settings(other)
    changed = subject.loss(other)()
    assert abs(changed - loss) > EXACT * abs(loss)
    assert_allclose(subject.loss(model)(), loss, rtol=EXACT)
    same_predictions(model.predict_f(XNEW), predictions, EXACT)
    perturb(model, seed=9, size=0.1)
    assert abs(subject.loss(model)() - loss) > EXACT * abs(loss)
    assert_allclose(subject.loss(other)(), changed, rtol=EXACT)


@saved
def test_checkpoint_restores_parameters_and_settings(subject, make, model, tmp_path):
    """Restore into a model with different data, q and alpha; then assign the data again."""
    trained = model
    with_data = holds_data(model)
    perturb(trained, size=0.1)
    powers = getattr(trained, "alpha", None)
    if powers is not None and not getattr(trained, "_optimal_scale", False):
        trained.alpha = 0.5 * powers + 0.125
    path = tf.train.Checkpoint(model=trained).save(str(tmp_path / "checkpoint"))

    sizes = {name: shape for name, shape in tf.train.list_variables(path)}
    assert not [name for name in sizes if "/_data" in name or "_chunks" in name]
    by_row = [name for name, shape in sizes.items() if shape[:1] == [N]]
    assert all("_sites" in name for name in by_row)  # sites that were learned, row by row

    fresh = make(seed=3, fitted=False)
    data = [values.numpy() for values in fresh.data] if with_data else []
    if not with_data:
        fresh.num_data = 5
    tf.train.Checkpoint(model=fresh).restore(
        path
    ).assert_existing_objects_matched().assert_consumed()
    assert_all_equal(fresh.trainable_variables, trained.trainable_variables)
    if powers is not None:
        assert_array_equal(fresh.alpha, trained.alpha)
    if with_data:
        for actual, expected, other in zip(fresh.data, data, trained.data, strict=True):
            assert_array_equal(actual, expected)
            assert not np.array_equal(actual, other)
        fresh.data = tuple(values.numpy() for values in trained.data)
        if by_row:  # which other data made void
            tf.train.Checkpoint(model=fresh).restore(path)
    else:
        assert_array_equal(fresh.num_data, trained.num_data)
    assert_allclose(subject.loss(fresh)(), subject.loss(trained)(), rtol=EXACT)
    same_predictions(fresh.predict_f(XNEW), trained.predict_f(XNEW), EXACT)


@exported
def test_frozen_model_predicts_the_same(subject, model):
    frozen = freeze(model)
    assert frozen.trainable_variables == ()
    assert_allclose(subject.loss(frozen)(), subject.loss(model)(), rtol=EXACT)
    for predict in (frozen.predict_f, tf.function(frozen.predict_f)):
        for full_cov in (False, True):
            expected = model.predict_f(XNEW, full_cov)
            same_predictions(predict(XNEW, full_cov), expected, EXACT)


@saved_regression
def test_exported_posterior_predicts_the_same(model, tmp_path):
    perturb(model)
    posterior = model.posterior("variable")
    module = tf.Module()
    module.posterior = posterior
    module.predict = tf.function(posterior.predict_f, input_signature=SPEC)
    module.predict_with_cov = tf.function(
        lambda X: posterior.predict_f(X, full_cov=True), input_signature=SPEC
    )
    tf.saved_model.save(module, str(tmp_path))
    expected = model.predict_f(XNEW)
    whole = model.predict_f(XNEW, full_cov=True)
    perturb(model, seed=7)
    loaded = tf.saved_model.load(str(tmp_path))
    same_predictions(loaded.predict(XNEW), expected, EXACT)
    same_predictions(loaded.predict_with_cov(XNEW), whole, EXACT)
    assert loaded.predict(XNEW[:2])[0].shape == [2, 1]


@exported
def test_exported_model_predicts_the_same(make, tmp_path):
    """
    GPflow's documented way: a compiled function as an attribute of the model. Later changes do not
    matter.
    """
    model = make()
    perturb(model, size=0.1)
    model.compiled_predict_f = tf.function(lambda X: model.predict_f(X), input_signature=SPEC)
    model.compiled_predict_y = tf.function(lambda X: model.predict_y(X), input_signature=SPEC)
    tf.saved_model.save(model, str(tmp_path))
    expected = model.predict_f(XNEW)
    observed = model.predict_y(XNEW)
    perturb(model, seed=7)
    loaded = tf.saved_model.load(str(tmp_path))
    same_predictions(loaded.compiled_predict_f(XNEW), expected, EXACT)
    same_predictions(loaded.compiled_predict_y(XNEW), observed, EXACT)
