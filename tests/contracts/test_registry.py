"""The contract tests include every model of the package."""

import inspect

import gpflow
from model_registry import CLASSES, REGRESSION

import gpflow_pep


def test_every_model_is_registered():
    public = (getattr(gpflow_pep, name) for name in gpflow_pep.__all__)
    models = {
        each for each in public if inspect.isclass(each) and issubclass(each, gpflow.models.GPModel)
    }
    assert models == {entry.constructor for entry, _ in (*REGRESSION.values(), *CLASSES.values())}
