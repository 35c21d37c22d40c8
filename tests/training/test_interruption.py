"""Ctrl-C and callbacks end training with a result, and the same call resumes."""

import signal
import threading
from contextlib import nullcontext

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_equal
from gpflow.kernels import Matern52
from gpflow.utilities import multiple_assign
from numpy.testing import assert_allclose, assert_equal
from quick import partly_slow
from small_models import WITH_SITES, At, X, Y, data_for, options_for, stop, values

from gpflow_pep import select_alpha
from gpflow_pep.training import fit
from gpflow_pep.training.history import recorded_interruption
from gpflow_pep.training.lbfgs import LBFGS


@pytest.fixture(autouse=True)
def _handled():
    """
    Python's own handler, also where the tests were started with Ctrl-C ignored, in the background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


@partly_slow(
    ("name", "action", "status", "reason"),
    [
        ("PEPR", press, "interrupted", "Interrupted"),
        ("PEPR", stop, "stopped early", "Stopped by the callback"),
        ("TSVGP", press, "interrupted", "Interrupted"),
        ("PEPClassifier", press, "interrupted", "Interrupted"),
    ],
    2,
)
def test_ctrl_c_returns_the_result_so_far(as_new, name, action, status, reason, tmp_path):
    options = {**options_for(name), "interval": 1, "max_iterations": 12}
    callback = At(3, action)
    model = as_new(name)
    warns = (
        pytest.warns(UserWarning, match="^Interrupted after 3 ")
        if action is press
        else nullcontext()
    )
    with warns:
        result = fit(
            model, data_for(name), callback=callback, checkpoint=tmp_path / "c.npz", **options
        )
    assert result.status == status and result.reason == f"{reason} after 3 iterations."
    assert result.iterations == 3 == len(callback.records)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    resumed = fit(as_new(name), data_for(name), checkpoint=tmp_path / "c.npz", **options)
    assert resumed.iterations > 3 and resumed.status in ("limit", "converged")
    assert [value for _, value in callback.records] == list(resumed.objective[:3])


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(FloatingPointError, ["mine"]), (tf.errors.InvalidArgumentError, [None, None, "mine"])],
)
@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_errors_of_the_callback_are_raised(as_new, optimizer, error, arguments):
    """
    Errors that a model could have raised, too. (Made here: an error keeps the frames that it was
    raised in.)
    """

    def fail():
        raise error(*arguments)

    with pytest.raises(error, match="mine"):
        fit(as_new("PEPR"), optimizer=optimizer, callback=At(2, fail), max_iterations=5)


@partly_slow("name", ["PEPR", WITH_SITES[0], "SGPR"], 1)
def test_a_callback_that_replaces_the_data_is_refused(as_new, name):
    """The model has its earlier data and finite parameters; equal data are no replacement."""
    model = as_new(name) if name != "SGPR" else gpflow.models.SGPR((X, Y), Matern52(), X[:5])
    before = [np.array(part) for part in model.data]

    def replace(factor):
        inputs, targets = before
        model.data = tf.constant(factor * inputs), tf.constant(targets)

    def replace_and_raise(error):
        replace(2.0)
        raise error

    replaced = r"^callback must leave model.data as it is"
    for action, error, message in (
        (lambda: replace(2.0), ValueError, replaced),
        (lambda: replace_and_raise(StopIteration), ValueError, replaced),
        (lambda: replace_and_raise(KeyError("mine")), KeyError, "mine"),
    ):
        with pytest.raises(error, match=message):
            fit(model, callback=At(2, action), max_iterations=5)
        assert_all_equal(model.data, before)
    fit(model, callback=At(2, lambda: replace(1.0)), max_iterations=3)
    assert np.isfinite(model.training_loss())


def test_the_last_parameters_are_kept_not_the_best(as_new):
    """The first record has the best held-out score, which `patience` would restore."""
    model = as_new("PEPR")
    seen = []

    def stop_at_four(iteration, objective):
        seen.append(values(model))
        if iteration == 4:
            raise StopIteration

    X, Y = (array.numpy() for array in model.data)
    options = {"optimizer": "adam", "learning_rate": 0.5, "patience": 50}
    result = fit(model, held_out=(X + 100.0, Y), callback=stop_at_four, **options)
    assert result.status == "stopped early" and result.iterations == 4
    assert_equal(values(model), seen[-1])


def test_an_evaluation_is_not_begun_after_ctrl_c(as_new):
    """Press Ctrl-C within a line search: training ends at the best parameters evaluated."""
    model = as_new("PEPR")
    start = model.maximum_log_likelihood_objective()
    evaluate = type(model).maximum_log_likelihood_objective
    count = []

    def counted():
        count.append(0)
        return evaluate(model)

    def pressed(iteration, objective):
        count.clear()
        press()

    model.maximum_log_likelihood_objective = counted
    result = fit(model, callback=pressed)
    assert not count
    assert result.iterations == 1 and result.objective[-1] > start
    assert_allclose(evaluate(model), result.objective[-1], rtol=1e-12)


def test_ctrl_c_before_the_first_step_ends_at_the_best_evaluation(as_new, monkeypatch):
    """
    Press Ctrl-C before the only start is evaluated, and in each of the first four evaluations of
    several starts.
    """
    model = as_new("PEPClassifier")
    model.kernel.lengthscales.assign(0.01 * model.kernel.lengthscales)
    start = values(model)
    evaluate, rank = LBFGS._loss_and_gradient, LBFGS._ranked_starts
    losses = []

    def ranked(search):
        if last > 0:
            return rank(search)
        press()
        return [search._state]

    def evaluated(search, coordinates):
        found = evaluate(search, coordinates)
        losses.append(found[0])
        if len(losses) == last:
            press()
        return found

    monkeypatch.setattr(LBFGS, "_ranked_starts", ranked)
    monkeypatch.setattr(LBFGS, "_loss_and_gradient", evaluated)
    for last in range(5):
        multiple_assign(model, start)
        losses.clear()
        with pytest.warns(UserWarning, match="^Interrupted after 0 "):
            result = fit(model)
        assert len(losses) == max(1, last)
        # The sites of a comparison converge to a coarse tolerance.
        assert_allclose(result.objective[-1], -min(losses), rtol=1e-3)
        assert_allclose(model.training_loss(), min(losses), rtol=1e-3)


def test_a_second_ctrl_c_raises_at_once(as_new):
    def twice():
        press()
        press()

    with pytest.raises(KeyboardInterrupt):
        fit(as_new("PEPR"), callback=At(1, twice))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_ends_a_comparison_of_powers(as_new):
    compared = []

    def make(data, alpha):
        compared.append(alpha)
        model = as_new("PEPR")
        model.alpha = alpha
        return model

    def train(model):
        return fit(model, callback=At(1, press))

    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="Interrupted"):
        select_alpha(make, (X, Y), [0.0, 1.0], train=train)
    assert compared == [0.0]


def test_a_handler_of_the_program_stays(as_new):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        result = fit(as_new("PEPR"), callback=At(2, press), max_iterations=4)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1] and result.status != "interrupted"


def test_with_several_workers_ctrl_c_raises_at_once():
    with recorded_interruption(enabled=False), pytest.raises(KeyboardInterrupt):
        press()


def test_other_threads_get_no_signals():
    entered = []

    def enter():
        with recorded_interruption() as interrupted:
            entered.append(interrupted())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [False]
