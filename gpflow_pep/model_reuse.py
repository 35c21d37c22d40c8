"""Models of one structure: what was compiled for one serves all others, whose data and values are assigned to it."""

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict
from tensorflow_probability import bijectors

from .identity import settings_of
from .models.sparse import SparseGP


def are_alike(kept: GPModel, new: GPModel) -> bool:
    """Whether data, alpha and parameter values are all that differs between two models with data of their own."""
    models = (kept, new)
    if not all(isinstance(model, SparseGP) and hasattr(model, "alpha") for model in models):
        return False
    settings, parameters, shapes = (
        [of(model) for model in models]
        for of in (
            lambda model: list(settings_of(model)),
            lambda model: {name: (p.shape, p.dtype, p.trainable) for name, p in parameter_dict(model).items()},
            lambda model: [model.alpha.shape.as_list(), *(values.shape[1] for values in model.data)],
        )
    )
    return settings[0] == settings[1] and parameters[0] == parameters[1] and shapes[0] == shapes[1] and not shapes[0][0]


def assign_values(kept: GPModel, new: GPModel) -> None:
    """Assign to `kept` the data, alpha, parameters and sites of `new`, which is like it (:func:`are_alike`)."""
    kept.data = tuple(values.numpy() for values in new.data)
    kept.alpha = new.alpha.numpy()
    for own, other in zip(parameter_dict(kept).values(), parameter_dict(new).values(), strict=True):
        own.unconstrained_variable.assign(other.unconstrained_variable)
    sites = getattr(new, "sites_variables", {})
    for name, variable in getattr(kept, "sites_variables", {}).items():
        variable.assign(sites[name])


def is_described_by_values(model: SparseGP) -> bool:
    """Whether :func:`are_alike` sees all that its parts are made of: none holds a tensor or a variable of its own."""
    parts = (model.kernel, model.likelihood, model.inducing_variable, model.mean_function)
    held = (
        value
        for part in parts
        for module in (part, *part.submodules)
        if not isinstance(module, Parameter | bijectors.Bijector)
        for value in vars(module).values()
    )
    return not any(isinstance(value, tf.Tensor | tf.Variable) for value in held)
