"""Models of one structure: what was compiled for one serves all others, whose data and values are assigned to it."""

import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.models import GPModel
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import parameter_dict
from tensorflow_probability import bijectors, distributions

from ..engine import Blocks
from ..models.sparse import SparseGP
from ..saving.run_identity import declared_settings, public_attributes, settings_of, shared_paths

_KNOWN = ("gpflow", "gpflow_pep", "tensorflow_probability")
"""Packages whose classes say all that a model of them computes."""
_SETTINGS = (bool, int, float, str, bytes, type(None), slice, NDiagGHQuadrature)


def are_alike(kept: GPModel, new: GPModel) -> bool:
    """Whether data, alpha and parameter values are all that differs between two models with data of their own."""
    if not all(isinstance(model, SparseGP) and hasattr(model, "alpha") for model in (kept, new)):
        return False
    one_power = new.alpha.shape.rank == 0  # and not one per row or block
    return one_power and is_described(kept) and is_described(new) and _structure(kept) == _structure(new)


def _structure(model: GPModel) -> tuple[Any, ...]:
    parameters = {name: (each.shape, each.dtype, each.trainable) for name, each in parameter_dict(model).items()}
    columns = [values.shape[1] for values in model.data]
    sweeps = [float(getattr(model, name, np.inf)) for name in ("tol", "max_sweeps", "damping")]
    return settings_of(model) | declared_settings(model), parameters, model.alpha.shape.rank, columns, sweeps


def assign_values(kept: GPModel, new: GPModel) -> None:
    """Assign to `kept` the data, alpha, parameters and sites of `new`, which is like it (:func:`are_alike`)."""
    kept.data = tuple(values.numpy() for values in new.data)
    kept.alpha = new.alpha.numpy()
    for own, other in zip(parameter_dict(kept).values(), parameter_dict(new).values(), strict=True):
        own.unconstrained_variable.assign(other.unconstrained_variable)
    sites = getattr(new, "sites_variables", {})
    for name, variable in getattr(kept, "sites_variables", {}).items():
        variable.assign(sites[name])


def check_new_parts(last: GPModel | None, new: GPModel) -> None:
    """
    Check that two models that a user's function `make` returned train no variable of each other.

    :raises ValueError: if they do.
    """
    if last is new:
        return
    variables = {id(each) for each in getattr(last, "trainable_variables", ())}
    count = sum(id(each) in variables for each in getattr(new, "trainable_variables", ()))
    if count:
        raise ValueError(
            "make must construct new kernels, likelihoods and other parts, since training one model would change the "
            f"next, got a {type(new).__name__} that shares {count} trainable variables with the one before."
        )


def is_described(model: GPModel) -> bool:
    """
    Whether :func:`are_alike` certainly sees all that the model is made of.

    Classes are those of GPflow, TensorFlow Probability and this library, not subclasses of them; one path leads to each
    variable and part; settings are numbers, strings, arrays or named functions. A kernel that ties parameters, or that
    has code or objects of its own, is not described.
    """
    if not isinstance(model, SparseGP) or shared_paths(model):
        return False
    held = [value for _, value in public_attributes(model)]
    modules = [module for part in held if isinstance(part, tf.Module) for module in (part, *part.submodules)]
    known = all(map(_is_known, (model, *modules))) and all(map(_is_setting, held))
    return known and _has_regular_blocks(model) and all(map(_has_settings, modules))


def _is_known(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in _KNOWN


def _has_regular_blocks(model: SparseGP) -> bool:
    chunks, size = (vars(model).get(name) for name in ("_chunks", "_block_size"))
    return not isinstance(chunks, Blocks) or size is not None


def _has_settings(module: tf.Module) -> bool:
    """Whether nothing but parts, parameters and settings that are compared belongs to the module."""
    if isinstance(module, bijectors.Bijector | distributions.Distribution):
        return all(map(_is_value, module.parameters.values()))
    if isinstance(module, Parameter):
        return module.prior is None or _is_value(module.prior)
    return all(_is_setting(value) for _, value in public_attributes(module))


def _is_value(value: Any) -> bool:
    """Whether this is a value of a transform or of a prior."""
    if isinstance(value, bijectors.Bijector | distributions.Distribution):
        return _is_known(value) and all(map(_is_value, value.parameters.values()))
    if isinstance(value, tf.Tensor):
        return not tf.is_symbolic_tensor(value)
    return all(map(_is_value, value)) if isinstance(value, list | tuple) else _is_setting(value)


def _is_setting(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_setting, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_setting, value))
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, types.FunctionType):
        module = sys.modules.get(value.__module__ or "")
        is_of_package = value.__module__.partition(".")[0] in (*_KNOWN, "tensorflow")
        return is_of_package and getattr(module, value.__qualname__, None) is value
    return isinstance(value, tf.Module | tf.DType) or type(value) in _SETTINGS or isinstance(value, np.generic)
