"""Models of one structure: what was compiled for one serves all others, whose data and values are assigned to it."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict
from tensorflow_probability import bijectors

from .identity import settings_of
from .models.sparse import SparseGP


def are_alike(kept: GPModel, new: GPModel) -> bool:
    """Whether data, alpha and parameter values are all that differs between two models with data of their own."""
    if not all(isinstance(model, SparseGP) and hasattr(model, "alpha") for model in (kept, new)):
        return False
    one_power = new.alpha.shape.rank == 0  # and not one per row or block
    return one_power and _structure(kept) == _structure(new)


def _structure(model: GPModel) -> tuple[Any, ...]:
    parameters = {name: (each.shape, each.dtype, each.trainable) for name, each in parameter_dict(model).items()}
    columns = [values.shape[1] for values in model.data]
    return list(settings_of(model)), parameters, model.alpha.shape.rank, columns


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
    modules = (module for part in parts for module in (part, *part.submodules))
    held = (vars(module) for module in modules if not isinstance(module, Parameter | bijectors.Bijector))
    return not any(isinstance(value, tf.Tensor | tf.Variable) for value in _leaves(held))


def _leaves(values: Any) -> Iterator[Any]:
    """All that lists, dictionaries and what is in them hold."""
    for value in values.values() if isinstance(values, Mapping) else values:
        if isinstance(value, Mapping | list | tuple):
            yield from _leaves(value)
        else:
            yield value
