"""The options of a run: the keyword arguments of `fit`, their identity, and their checks."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
from small_models import MAKERS, X, Y

from gpflow_pep.saving.run_identity import differing
from gpflow_pep.training import fit, fitting
from gpflow_pep.training.options import FitOptions

FIELDS = {each.name: each for each in dataclasses.fields(FitOptions)}
CHANGED = {
    "optimizer": "adam",
    "learning_rate": 0.02,
    "natural_step": None,
    "train_inducing": True,
    "tolerance": 1e-3,
    "first_rows": 10,
    "n_restarts": 1,
    "batch_size": 5,
    "held_out": (X[:5], Y[:5]),
    "patience": 3,
    "interval": 2,
    "seed": 1,
}
WITHOUT_EFFECT = {
    "max_iterations": 3,
    "checkpoint": "c.npz",
    "checkpoint_seconds": 1.0,
    "tensorboard": "t",
    "callback": print,
    "progress": True,
    "jit_compile": True,
}


def test_the_keyword_arguments_of_fit_are_the_fields():
    """Names, order, types and defaults."""
    _, _, *arguments = inspect.signature(fit).parameters.values()
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in arguments)
    expected = [(each.name, each.type, each.default) for each in FIELDS.values()]
    assert [(each.name, each.annotation, each.default) for each in arguments] == expected


@pytest.mark.parametrize("name", FIELDS)
def test_every_argument_reaches_the_run(name, monkeypatch):
    """No argument is left out, or takes the place of another."""
    given = object()
    monkeypatch.setattr(fitting, "train", lambda model, options, data: options)
    assert fit(None, **{name: given}) == FitOptions(**{name: given})


def test_every_option_is_part_of_the_identity_or_has_no_effect():
    """
    A new option is in the identity: a run with another value does not resume from the checkpoint.
    """
    assert FIELDS.keys() == CHANGED.keys() | WITHOUT_EFFECT.keys()
    for name, value in (CHANGED | WITHOUT_EFFECT).items():
        identities = [options.identity() for options in (FitOptions(), FitOptions(**{name: value}))]
        assert differing(*identities) == [name] * (name in CHANGED)


def test_numbers_of_numpy_become_python_numbers():
    given = FitOptions(tolerance=np.float32(0.5), train_inducing=np.True_, seed=np.int32(2))
    identity = given.checked(MAKERS["PEPR"](), is_dataset=False).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["optimizer"] == "lbfgs" and identity["train_inducing"] is True
