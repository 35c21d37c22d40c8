"""Identity of a training run: classes, settings, priors and data, equal in every process."""

import dataclasses
import enum
import functools
import sys
import types
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_jitter
from gpflow.kernels import Kernel
from gpflow.models import BayesianModel
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import parameter_dict

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, slice, range, tf.DType)
_PROBABILITY = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
# Packages whose classes and functions are identified by their names.
_PACKAGES = ("gpflow", "gpflow_pep", "tensorflow", "tensorflow_probability")
_CHANGING = ("_name", "_self_", "_compiled ")  # prefixes of attributes that are not settings


class NotComparable(ValueError):
    """Raised for functions and objects that cannot be identified by name."""


def run_identity(
    model: tf.Module, data: RegressionData | tf.data.Dataset | None
) -> dict[str, object]:
    """
    Return the identity of a training run as JSON data by name: public attributes, settable
    properties, fixed parameters and data of the model, and the private settings and arrays that its
    method ``run_identity()`` returns.

    :param data: X and Y for a model without data, or a dataset: types and shapes only, as passes
        may be shuffled.
    """
    identity: dict[str, object] = {**settings_of({"model": model}), "jitter": default_jitter()}
    for name in dir(type(model)):
        attribute = getattr(type(model), name)
        is_settable = isinstance(attribute, property) and attribute.fset is not None
        if is_settable and not name.startswith("_") and name != "data":
            identity[f"model.{name}"] = describe(getattr(model, name))
    for path, parameter in parameter_dict(model).items():
        identity[f"parameter{path}"] = list(parameter.shape)
        if not parameter.trainable:
            identity[f"parameter{path}"] = fingerprint(np.asarray(parameter))
    held: Any = getattr(model, "data", ()) if data is None else data
    if isinstance(held, tf.data.Dataset):
        identity["data"] = f"batches {held.element_spec}"
    else:
        identity["data"] = fingerprint(*map(np.asarray, held))
    return identity


def settings_of(whole: tf.Module | Mapping[str, object], *, strict: bool = False) -> dict[str, str]:
    """
    Describe classes, public settings, priors and the settings that models declare, by path, without
    parameter values; a part or parameter with several paths at the first path.

    :param strict: also describe private settings of a model's parts; reject objects that this does
        not determine.
    :raises NotComparable: if `strict`, for a part with several paths, a variable that is not a
        parameter, a class or function of another package, or any other object.
    """
    return dict(_settings(whole, "", {}, strict))


def differing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    """Return the sorted names of entries that differ or are missing in one of the two."""
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name, ...) != theirs.get(name, ...)
    )


def fingerprint(*values: AnyNDArray) -> int:
    """Compute a CRC-32 checksum of the values."""
    total = 0
    for value in values:
        total = zlib.crc32(np.ascontiguousarray(value).tobytes(), total)
    return total


def _settings(
    value: object, path: str, paths: dict[int, str], strict: bool
) -> Iterator[tuple[str, str]]:
    """
    List the settings of a value with their paths.

    :param paths: the first path of each module and variable so far, by `id`.
    """
    if isinstance(value, list | tuple) and any(
        isinstance(part, tf.Module | tf.Variable) for part in value
    ):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _settings(part, f"{path}.{name}" if path else str(name), paths, strict)
        return
    is_module = isinstance(value, tf.Module) and not isinstance(value, _PROBABILITY)
    if is_module or isinstance(value, tf.Variable):
        key = id(value.unconstrained_variable if isinstance(value, Parameter) else value)
        if strict and (key in paths or not _is_known(value)):
            raise NotComparable(path)
        if key in paths:
            yield path, f"same as {paths[key]}"
            return
        paths[key] = path
    if isinstance(value, Parameter):
        yield path, describe([value.transform, value.prior, value.prior_on], strict=strict)
    elif is_module:
        yield path, _name(type(value))
        if isinstance(value, Kernel):
            yield f"{path}.active_dims", describe(value.active_dims)
        is_model = isinstance(value, BayesianModel)
        hidden = _CHANGING if strict and not is_model else "_"
        shown = {name: part for name, part in vars(value).items() if not name.startswith(hidden)}
        if is_model:
            shown.pop("data", None)
        yield from _settings(dict(sorted(shown.items())), path, paths, strict)
        if is_model:
            for name, declared in getattr(value, "run_identity", dict)().items():
                yield f"{path}.{name}", describe(declared)
    elif not isinstance(value, tf.Variable):
        yield path, describe(value, strict=strict)


def describe(value: object, *, strict: bool = False) -> str:
    """Serialize a setting to a string, equal in every process; functions and classes by name."""
    described = functools.partial(describe, strict=strict)
    if isinstance(value, tf.Variable):
        value = value.read_value()  # NumPy cannot read a variable of several devices
    if isinstance(value, np.ndarray | tf.Tensor):
        array = np.asarray(value)
        values = described(array.tolist()) if array.dtype.hasobject else str(fingerprint(array))
        return f"{array.dtype} {array.shape} {values}"
    if isinstance(value, enum.Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Mapping):
        return _in_parentheses(
            f"{described(key)}: {described(part)}" for key, part in value.items()
        )
    if isinstance(value, set | frozenset | list | tuple):
        parts = map(described, value)
        return _in_parentheses(sorted(parts) if isinstance(value, set | frozenset) else parts)
    if strict and not _is_known(value):
        raise NotComparable(repr(value))
    if isinstance(value, NDiagGHQuadrature):
        return f"{_name(type(value))}{_in_parentheses([value.dim, value.n_gh])}"
    if isinstance(value, _PROBABILITY):
        parameters = {name: part for name, part in value.parameters.items() if name != "name"}
        return _name(type(value)) + described(parameters)
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if strict:  # variables of a prior are assigned, as parameters are
            fields = {
                name: part for name, part in fields.items() if not isinstance(part, tf.Variable)
            }
        return _name(type(value)) + described(fields)
    if isinstance(value, functools.partial):
        return _in_parentheses(map(described, (value.func, value.args, value.keywords)))
    return _name(value if hasattr(value, "__name__") else type(value))


def _is_known(value: object) -> bool:
    """Return whether an object is of one of `_PACKAGES`; functions must be importable by name."""
    module = str(getattr(value, "__module__", ""))
    if module.partition(".")[0] not in _PACKAGES:
        return False
    if isinstance(value, tf.Module | NDiagGHQuadrature) or dataclasses.is_dataclass(value):
        return True
    return getattr(sys.modules.get(module), getattr(value, "__qualname__", ""), None) is value


def _name(value: Any) -> str:
    if isinstance(value, types.MethodType):
        value = value.__func__
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}"


def _in_parentheses(parts: Any) -> str:
    return f"({', '.join(map(str, parts))})"
