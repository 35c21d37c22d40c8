"""How deep the classes of models are: what a model does is found in few files."""

import inspect

import pytest

import gpflow_pep

MODELS = [each for name in gpflow_pep.__all__ if inspect.isclass(each := getattr(gpflow_pep, name))]


def above_gpflow(kind):
    """Classes of this package from this one to the first one of another package, along the longest way; 0: no way."""
    if not kind.__module__.startswith("gpflow_pep"):
        return 1 if kind.__module__.startswith("gpflow.") else 0
    depths = [above_gpflow(base) for base in kind.__bases__]
    return max(depths) + 1 if any(depths) else 0


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_three_classes_at_most(kind):
    assert above_gpflow(kind) - 1 <= 3


def test_all_models_are_models_of_gpflow():
    assert sum(above_gpflow(kind) > 0 for kind in MODELS) >= 14
