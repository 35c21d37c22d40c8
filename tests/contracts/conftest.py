"""Fixtures of the contract tests: models that the tests of a module share."""

import pytest
import tensorflow as tf
from contract_models import C, Subject
from model_registry import CLASSES, QUICK, REGRESSION
from quick import some_slow


@pytest.fixture(params=some_slow([*REGRESSION, *CLASSES], quick=QUICK))
def subject(request):
    return Subject(request.param)


@pytest.fixture
def make(subject):
    return subject.new


def _variables(whole, seen):
    """All variables of a model, trainable or not."""
    if id(whole) in seen:
        return
    seen.add(id(whole))
    if isinstance(whole, tf.Variable):
        yield whole
    elif isinstance(whole, list | tuple | dict):
        for each in whole.values() if isinstance(whole, dict) else whole:
            yield from _variables(each, seen)
    elif isinstance(whole, tf.Module) or type(whole).__module__.startswith("gpflow_pep"):
        yield from _variables(vars(whole), seen)


@pytest.fixture(scope="module")
def _kept():
    return {}


@pytest.fixture
def shared(subject, _kept):
    """
    Return a function that returns a model shared by the tests of a module, compiled once. Its
    variables are reset to their initial values. Tests that replace a part or change the set of
    trained parameters construct a new model.
    """

    def as_new(P=1):
        key = subject.name, P if subject.is_regression else C
        if key not in _kept:
            model = subject.new(P)
            _kept[key] = (
                model,
                [(variable, variable.numpy()) for variable in _variables(model, set())],
            )
        model, values = _kept[key]
        for variable, value in values:
            variable.assign(value)
        return model

    return as_new


@pytest.fixture
def model(shared):
    """A model with one output or three classes."""
    return shared()


@pytest.fixture
def many(shared, subject):
    """A model with several outputs."""
    return shared(subject.columns)


@pytest.fixture
def compiled(subject, _kept):
    """A function that returns the compiled objective of a shared model."""

    def loss_of(model):
        key = "loss", id(model)
        if key not in _kept:
            _kept[key] = subject.compiled_loss(model)
        return _kept[key]

    return loss_of
