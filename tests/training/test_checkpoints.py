"""An interrupted and resumed training run ends like an uninterrupted run."""

import json
import re

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal
from quick import partly_slow
from refusals import refused
from small_models import (
    MAKERS,
    At,
    X,
    Y,
    data_for,
    held_out_for,
    options_for,
    stop,
    values,
)

from gpflow_pep.saving.arrays_file import load_arrays, save_arrays
from gpflow_pep.training import fit


def press():
    raise KeyboardInterrupt


def interrupt(as_new, name, path, count, **options):
    """Train a new model until the count-th record."""
    with pytest.raises(KeyboardInterrupt):
        fit(
            as_new(name),
            data_for(name),
            checkpoint=path,
            checkpoint_seconds=0.0,
            callback=At(count, press),
            **options,
        )


# --- interrupted ----------------------------------------------------------------------------------


@partly_slow(
    ("name", "options"),
    [
        ("PEPR", {"optimizer": "adam", "max_iterations": 30}),
        ("TSVGP", {}),
        ("ARPEP", {}),
        ("SVGP", {"natural_step": None}),
        ("PEPClassifier", {"optimizer": "adam", "max_iterations": 10}),
        ("StreamingPEP", {"optimizer": "adam", "max_iterations": 10}),
        ("PEPClassifier", {"optimizer": "adam", "max_iterations": 14, "batch_size": 16}),
    ],
    1,
)
def test_adam_resumes_exactly(as_new, tmp_path, name, options):
    """
    Parameters, objectives and scores; of a PEPClassifier in minibatches after whole epochs of four.
    """
    options = {**options_for(name), **options, "held_out": held_out_for(name), "patience": 1000}
    model = as_new(name)
    expected = fit(model, data_for(name), **options)
    trained = values(model)
    path = tmp_path / "c.npz"
    interrupt(as_new, name, path, 2, **options)
    again = as_new(name)
    result = fit(again, data_for(name), checkpoint=path, checkpoint_seconds=0.0, **options)
    assert_equal(values(again), trained)
    assert result.objective == expected.objective
    assert result.held_out == expected.held_out
    assert (result.iterations, result.status, result.reason) == (
        expected.iterations,
        expected.status,
        expected.reason,
    )


def test_a_run_that_has_ended_is_not_repeated(as_new, tmp_path):
    """The same call says so, with the same end; with a larger limit training goes on from there."""
    options = {**options_for("TSVGP"), "max_iterations": 20, "checkpoint": tmp_path / "c.npz"}
    model = as_new("TSVGP")
    expected = fit(model, (X, Y), **options)
    trained = values(model)
    again = as_new("TSVGP")
    reports = []
    result = fit(again, (X, Y), callback=lambda *report: reports.append(report), **options)
    assert not reports
    assert (result.status, result.reason, result.objective) == (
        expected.status,
        f"Nothing was trained: the run in the checkpoint has ended. {expected.reason}",
        expected.objective,
    )
    assert_equal(values(again), trained)

    longer = fit(again, (X, Y), **{**options, "max_iterations": 30})
    assert longer.iterations == 30
    assert longer.objective[: len(expected.objective)] == expected.objective
    trained = values(again)
    fewer = fit(as_new("TSVGP"), (X, Y), **{**options, "max_iterations": 4})
    assert fewer.iterations == 30 and fewer.reason.startswith(
        "Nothing was trained: the checkpoint has 30 iterations, max_iterations=4."
    )
    assert_equal(values(again), trained)


def test_a_converged_search_is_not_repeated(as_new, tmp_path):
    options = {"checkpoint": tmp_path / "c.npz", "max_iterations": 300}
    expected = fit(as_new("PEPR"), **options)
    model = as_new("PEPR")
    reports = []
    result = fit(model, callback=lambda *report: reports.append(report), **options)
    assert result.converged and not reports
    assert result.seconds > 0.5 * expected.seconds  # those of the first call are counted
    assert_allclose(model.maximum_log_likelihood_objective(), expected.objective[-1], rtol=1e-12)


# --- of another run -------------------------------------------------------------------------------


def fixed(model):
    gpflow.set_trainable(model.kernel.variance, False)
    return model


# What tells runs apart otherwise: saving/test_run_identity.py and test_options.py.
OTHERS = {
    "another model": (MAKERS["BTSVGP"], (X, Y), {}, "model, model.scale differ"),
    "other data": (MAKERS["TSVGP"], (X, Y + 1e-9), {}, "data differs"),
    "two settings": (
        MAKERS["TSVGP"],
        (X, Y),
        {"seed": 1, "natural_step": 0.2},
        "natural_step, seed differ",
    ),
    "fewer parameters": (
        lambda: fixed(MAKERS["TSVGP"]()),
        (X, Y),
        {},
        "parameter.kernel.variance differs",
    ),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A checkpoint, and the options it goes with."""
    path = tmp_path_factory.mktemp("ended") / "c.npz"
    options = {**options_for("TSVGP"), "max_iterations": 10}
    fit(MAKERS["TSVGP"](), (X, Y), checkpoint=path, **options)
    return path, options


def test_a_checkpoint_of_another_run_is_refused(ended):
    """Check the error, and that neither model nor file has changed."""
    for other in OTHERS:
        path, options = ended
        make, data, changed, differing = OTHERS[other]
        model = make()
        written = path.read_bytes()
        before = values(model)
        with refused(rf"was written by a different run: {re.escape(differing)}\. Give"):
            fit(model, data, checkpoint=path, **{**options, **changed})
        assert_equal(values(model), before)
        assert path.read_bytes() == written


def test_a_checkpoint_of_another_format_is_refused(monkeypatch, ended):
    """A later version may use the same names with other meanings."""
    path, options = ended
    monkeypatch.setattr("gpflow_pep.training.checkpoints._VERSION", 2)
    with refused("was written by a different run: version differs"):
        fit(MAKERS["TSVGP"](), (X, Y), checkpoint=path, **options)


# --- damaged, foreign or hostile ------------------------------------------------------------------


def rewritten(change):
    """Return a function that saves other arrays in the file."""

    def write(path):
        arrays = load_arrays(path, "file")
        change(arrays)
        save_arrays(path, arrays)

    return write


def put(name, change):
    return rewritten(lambda arrays: arrays.update({name: change(arrays[name])}))


def of_course(**changed):
    """Files with other contents are rejected."""

    def change(text):
        about = json.loads(str(text))
        about["history"].update(changed)
        return np.array(json.dumps(about))

    return put("about", change)


SPOILT = {
    "NaN": (
        put("parameter.0", lambda value: np.full_like(value, np.nan)),
        "parameter.0 must be finite, got",
    ),
    "shape": (
        put("parameter.1", lambda value: np.zeros((7, 7))),
        r"parameter.1 must be float64 of shape \(",
    ),
    "no JSON": (put("about", lambda value: np.array("{")), "cannot be used: Expecting"),
    "other JSON": (put("about", lambda value: np.array("[1]")), "no record of a run"),
    "no history": (
        put("about", lambda value: np.array('{"run": {}}')),
        "no record of the training",
    ),
    "no record": (rewritten(lambda arrays: arrays.pop("about")), "is not a checkpoint of `fit`"),
    "a number": (put("about", lambda value: np.array(1.0)), "is not a checkpoint of `fit`"),
    "a key more": (rewritten(lambda arrays: arrays.update(more=np.zeros(2))), "run: more differs"),
    "a key less": (rewritten(lambda arrays: arrays.pop("parameter.0")), "run: parameter.0 differs"),
    "half of it": (lambda path: path.write_bytes(path.read_bytes()[:-500]), "not a zip file"),
}


WRONG_RECORDS = {
    "iterations": [-1, 10**400],
    "objective": [[10**400], ["1"]],
    "recorded": [3, [1.5]],
    "seconds": ["1"],
    "held_out": [[1.0]],
    "ended": [["well"], ["well", "so"]],
}
SPOILT |= {
    f"{name} {number}": (
        of_course(**{name: value}),
        f"record of the training cannot have {name} {re.escape(repr(value)[:6])}",
    )
    for name, values in WRONG_RECORDS.items()
    for number, value in enumerate(values)
}


def test_a_damaged_checkpoint_is_rejected(as_new, ended, tmp_path):
    """The error is one sentence with the path, raised before anything changes."""
    for name in SPOILT:
        source, options = ended
        path = tmp_path / "c.npz"
        path.write_bytes(source.read_bytes())
        spoil, message = SPOILT[name]
        spoil(path)
        model = as_new("TSVGP")
        before = values(model)
        with refused(message) as caught:
            fit(model, (X, Y), checkpoint=path, **options)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        assert_equal(values(model), before)


@pytest.mark.parametrize("stopped_again", [False, True])
def test_lbfgs_resumes_with_the_end_of_an_earlier_start(as_new, tmp_path, stopped_again):
    """
    Stopped while the second start is trained, the resumed run keeps the first one's end if it is
    better, even if it is stopped, too, at its first record.
    """
    options = {"n_restarts": 2, "train_inducing": False, "max_iterations": 300}
    path = tmp_path / "c.npz"
    once = fit(as_new("PEPR"), **{**options, "n_restarts": 0})
    interrupt(as_new, "PEPR", path, once.iterations + 2, **options)
    callback = At(1, stop) if stopped_again else None
    model = as_new("PEPR")
    result = fit(model, checkpoint=path, callback=callback, **options)
    assert result.objective[-1] >= once.objective[-1] - 1e-6
    assert_allclose(result.objective[-1], model.maximum_log_likelihood_objective(), rtol=1e-9)
