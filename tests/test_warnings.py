"""
What pyproject.toml makes of warnings: our own code may not cause any, but may give some to its
users.
"""

import warnings

import numpy as np
import pytest


def warn(category, module):
    """As if line 1 of a module caused it."""
    warnings.warn_explicit("as an example", category, f"{module}.py", 1, module)


def test_warnings_of_our_own_code_are_errors():
    categories = (
        RuntimeWarning,
        DeprecationWarning,
        ResourceWarning,
        np.exceptions.VisibleDeprecationWarning,
    )
    for module in ("gpflow_pep", "gpflow_pep.training.lbfgs", "experiments.demo"):
        for category in categories:
            with pytest.raises(category, match="as an example"):
                warn(category, module)


@pytest.mark.parametrize(
    ("category", "module"),
    [
        (UserWarning, "gpflow_pep.models.pep"),
        (UserWarning, "experiments.demo"),
        (RuntimeWarning, "scipy.optimize"),
        (RuntimeWarning, "gpflow_peptide"),
        (RuntimeWarning, "other.experiments"),
    ],
)
def test_warnings_to_users_and_of_others_are_none(category, module):
    with warnings.catch_warnings(
        record=True
    ) as told:  # by the same filters; pytest.warns has its own
        warn(category, module)
    assert [each.category for each in told] == [category]
