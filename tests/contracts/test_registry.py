"""The contract tests include every model of the package."""

import inspect

import gpflow
import numpy as np
import pytest
from model_registry import CLASSES, ENTRIES, OWN_Q, REGRESSION
from refusals import refused

import gpflow_pep


def test_every_model_is_registered():
    public = (getattr(gpflow_pep, name) for name in gpflow_pep.__all__)
    models = {
        each for each in public if inspect.isclass(each) and issubclass(each, gpflow.models.GPModel)
    }
    assert models == {entry.constructor for entry, _ in (*REGRESSION.values(), *CLASSES.values())}


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.constructor.__module__.startswith("gpflow_pep")]
)
def test_arguments_in_the_order_of_another_model_are_refused(entry):
    """Models with data are called as SVGP, models without as SGPR and PEP."""
    kernel = gpflow.kernels.Matern52()
    likelihood = gpflow.likelihoods.Gaussian()
    Z = np.eye(2)
    name = entry.constructor.__name__
    data = (Z, Z[:, :1])
    if entry.family == OWN_Q:
        expected = rf"^kernel must come first, .*: {name}\(kernel, likelihood, .*, num_data=N\)\.$"
        calls = [((data, kernel, likelihood, Z), {}), ((kernel, likelihood, Z), {"data": data})]
    else:
        expected = (
            rf"^data must come first, .* num_data, as for SVGP: {name}\(\(X, Y\), kernel, "
            r"\.\.\.\)\.$"
        )
        calls = [((kernel, likelihood, Z), {}), ((kernel, likelihood, Z), {"num_data": 2})]
    for arguments, options in calls:
        with refused(expected):
            entry.constructor(*arguments, **options)
