"""A model of each kind that the tests of a module share, so that it is compiled once."""

import gpflow
import pytest
from gpflow.utilities import multiple_assign, parameter_dict
from small_models import MAKERS, WITH_SITES, values


def _carried(model, name):
    """Return the state of a model with sites besides its parameters."""
    return (
        [model.sites.precision, model.sites.linear, model._status, model._warned]
        if name in WITH_SITES
        else []
    )


@pytest.fixture(scope="module")
def as_new():
    """
    A function that returns the model of a name as it is when it is made: the same object, with its
    first values.
    """
    made = {}

    def restored(name):
        if name not in made:
            model = MAKERS[name]()
            trained = {path: each.trainable for path, each in parameter_dict(model).items()}
            made[name] = (
                model,
                values(model),
                trained,
                [each.numpy() for each in _carried(model, name)],
            )
        model, parameters, trained, carried = made[name]
        multiple_assign(model, parameters)
        for path, parameter in parameter_dict(model).items():
            gpflow.set_trainable(parameter, trained[path])
        for variable, value in zip(_carried(model, name), carried, strict=True):
            variable.assign(value)
        return model

    return restored
