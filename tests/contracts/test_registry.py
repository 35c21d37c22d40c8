"""No model of the package is left out of the contracts."""

import inspect

import gpflow
from model_registry import CLASSES, REGRESSION

import gpflow_pep


def test_every_model_has_an_entry():
    public = (getattr(gpflow_pep, name) for name in gpflow_pep.__all__)
    models = {each for each in public if inspect.isclass(each) and issubclass(each, gpflow.models.GPModel)}
    assert models == {entry.constructor for entry, _ in (*REGRESSION.values(), *CLASSES.values())}
