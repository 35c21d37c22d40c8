"""Identity of a model and of a training run: classes, settings, functions, priors and data, alike in every process."""

import enum
import functools
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_jitter
from gpflow.models import GPModel
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import parameter_dict

from ..engine import DatasetRows

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_OF_PROBABILITY = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
# Names, and attributes that change while a model is used.
_IGNORED = frozenset(
    {
        "_eager_sweeps",
        "_name",
        "_name_scope",
        "_num_points",
        "_num_rows",
        "_num_rows_of_all_workers",
        "_traces",
        "_training_step",
    }
)
_IGNORED_PREFIXES = ("_self_",)
_IN_VARIABLES = ("alpha", "num_data", "tol", "max_sweeps", "damping")
"""Settings that models hold in variables, so that compiled functions see them change."""
_INSTALLED = ("gpflow", "gpflow_pep", "tensorflow", "tensorflow_probability", "tf_keras", "keras", "numpy", "builtins")
"""Packages whose functions and classes are known by name."""


def run_identity(model: tf.Module, data: RegressionData | tf.data.Dataset | None) -> dict[str, Any]:
    """
    Return the identity of a training run as JSON data: equal exactly if parameters have the same meaning in both runs.

    :param data: X and Y for a model without data of its own; of a dataset only the types and shapes of its batches
        count, since each pass may shuffle.
    """
    parameters = parameter_dict(model)
    fixed = {name: parameter for name, parameter in parameters.items() if not parameter.trainable}
    held = [getattr(model, name, None) for name in ("_chunks", "_old")]
    variables = [variable for part in held if part is not None for variable in part.variables]
    values = {name: getattr(model, name, None) for name in _IN_VARIABLES}
    return {
        "model": type(model).__name__,
        "settings": [list(setting) for setting in settings_of(model)],
        "shapes of parameters": {name: list(p.shape) for name, p in parameters.items() if p.trainable},
        "fixed parameters": {name: fingerprint(np.asarray(parameter)) for name, parameter in fixed.items()},
        **{name: None if value is None else _values(value).tolist() for name, value in values.items()},
        "blocks or old posterior": fingerprint(*map(_values, variables)),
        "data": _identity_of_data(model, data),
        "jitter": default_jitter(),
    }


def _values(value: Any) -> AnyNDArray:
    """The value of a variable, also of a mirrored one, or of anything that NumPy converts."""
    array: AnyNDArray = value.numpy() if isinstance(value, tf.Variable) else np.asarray(value)
    return array


def _identity_of_data(model: tf.Module, data: RegressionData | tf.data.Dataset | None) -> Any:
    chunks = getattr(model, "_chunks", None)
    if isinstance(chunks, DatasetRows):
        return list(chunks.identity)
    if isinstance(data, tf.data.Dataset):
        return f"batches {data.element_spec}"
    return fingerprint(*map(np.asarray, model.data if data is None else data))


def settings_of(*parts: tf.Module) -> Iterator[tuple[str, ...]]:
    """Classes and settings of the parts and all parts of theirs, priors, and what is shared; no parameter values."""
    for part in _with_submodules(parts):
        kind = type(part).__qualname__
        yield (kind, *_code_of_class(type(part)))
        if isinstance(part, tfp.bijectors.Bijector):  # its attributes are private to another version's
            yield f"{kind}.parameters", described(part)
            continue
        for name, value in attributes_of(part):
            if _is_setting(value):
                yield f"{kind}.{name}", described(value)
        if isinstance(part, Parameter) and part.prior is not None:
            yield f"{kind}.prior", described(part.prior)
    for paths in shared(*parts):
        yield "what is shared", *paths


def attributes_of(part: tf.Module) -> list[tuple[str, Any]]:
    """Names and values of what the part holds, sorted, without names of the part and what changes in use."""
    held = sorted(vars(part).items())
    return [(name, value) for name, value in held if name not in _IGNORED and not name.startswith(_IGNORED_PREFIXES)]


def shared(*parts: tf.Module) -> list[tuple[str, ...]]:
    """The paths to each variable and each part that several paths lead to; those to what these hold are left out."""
    found: dict[int, list[str]] = {}
    for number, part in enumerate(parts):
        _find_paths(part, str(number), found)
    return [tuple(paths) for paths in found.values() if len(paths) > 1]


def _find_paths(value: Any, path: str, found: dict[int, list[str]]) -> None:
    """Add the paths to all variables and parts in the value, by their `id`."""
    if isinstance(value, Mapping):
        value = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        value = {str(number): part for number, part in enumerate(value)}
    elif isinstance(value, (tf.Module, tf.Variable)) and not isinstance(value, _OF_PROBABILITY):
        value = value.unconstrained_variable if isinstance(value, Parameter) else value
        paths = found.setdefault(id(value), [])
        paths.append(path)
        if isinstance(value, tf.Variable) or len(paths) > 1:
            return
        own = isinstance(value, GPModel)  # whose private attributes are data, sites and what is computed from them
        value = {name: part for name, part in attributes_of(value) if not (own and name.startswith("_"))}
    else:
        return
    for name, part in value.items():
        _find_paths(part, f"{path}.{name}", found)


def difference(some: Iterable[Iterable[str]], others: Iterable[Iterable[str]]) -> str | None:
    """Name the first setting in which two models differ, or None if they agree."""
    ours, theirs = ([list(setting) for setting in settings] for settings in (some, others))
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return one[0] if one[0] == other[0] else f"{one[0]} or {other[0]}"
    rest = max(ours, theirs, key=len)[min(len(ours), len(theirs)) :]
    return rest[0][0] if rest else None


def fingerprint(*values: AnyNDArray) -> int:
    """Compute a CRC-32 checksum of the values."""
    total = 0
    for value in values:
        total = zlib.crc32(np.ascontiguousarray(value).tobytes(), total)
    return total


def described(value: Any, outer: tuple[int, ...] = ()) -> str:
    """
    A value in words: plain ones by their values, functions by their code and what it refers to, others by their class.

    :param outer: what this is in, which is not gone into again.
    """
    if id(value) in outer:
        return "itself"
    outer = (*outer, id(value))
    if isinstance(value, (tf.Variable, Parameter)):  # the value is not what a model is
        return f"{type(value).__qualname__} {value.dtype.name} {value.shape}"
    if isinstance(value, np.ndarray | tf.Tensor):
        return _described_array(value)
    if isinstance(value, enum.Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, NDiagGHQuadrature):
        return _in_parentheses([_name(type(value)), value.dim, value.n_gh])
    if isinstance(value, _OF_PROBABILITY):
        parameters = {name: part for name, part in value.parameters.items() if name != "name"}
        return _in_parentheses([_name(type(value)), *_code_of_class(type(value), outer), described(parameters, outer)])
    if isinstance(value, (*_PLAIN, slice, range)):
        return repr(value)
    if isinstance(value, Mapping):
        return _in_parentheses({described(key, outer): described(part, outer) for key, part in value.items()}.items())
    if isinstance(value, set | frozenset):
        return _in_parentheses(sorted(described(part, outer) for part in value))
    if isinstance(value, list | tuple):
        return _in_parentheses(described(part, outer) for part in value)
    if isinstance(value, types.CodeType):
        return _in_parentheses([str(zlib.crc32(value.co_code)), str(value.co_names), described(value.co_consts, outer)])
    return _described_callable(value, outer) if callable(value) else _name(type(value))


def _described_array(value: Any) -> str:
    if isinstance(value, tf.Tensor) and tf.is_symbolic_tensor(value):
        return "a tensor of a graph"
    array = np.asarray(value)
    values = described(array.tolist()) if array.dtype.hasobject else str(fingerprint(array))
    return f"{array.dtype} {array.shape} {values}"


def _described_callable(value: Any, outer: tuple[int, ...]) -> str:
    if isinstance(value, functools.partial):
        return _in_parentheses(described(part, outer) for part in (value.func, value.args, value.keywords))
    if isinstance(value, types.MethodType):
        return _in_parentheses(described(part, outer) for part in (value.__func__, value.__self__))
    inner = getattr(value, "python_function", None)  # of tf.function
    if inner is not None:
        return described(inner, outer)
    if isinstance(value, types.FunctionType):
        return _name(value) if _is_installed(value) else _described_function(value, outer)
    if isinstance(value, type):
        return _in_parentheses([_name(value), *_code_of_class(value, outer)])
    if hasattr(value, "__qualname__"):  # compiled code
        return _name(value)
    kind = type(value)
    state = {} if _is_installed(kind) else getattr(value, "__dict__", {})
    name = getattr(value, "__name__", "")  # of ufuncs
    return _in_parentheses([_name(kind), name, *_code_of_class(kind, outer), described(state, outer)])


def _described_function(function: types.FunctionType, outer: tuple[int, ...]) -> str:
    code = function.__code__
    enclosed = [described(cell.cell_contents, outer) for cell in function.__closure__ or () if _is_filled(cell)]
    values = {name: function.__globals__[name] for name in _names(code) if name in function.__globals__}
    referred = {name: described(value, outer) for name, value in sorted(values.items()) if _is_referred(value)}
    defaults = described((function.__defaults__, function.__kwdefaults__), outer)
    return _in_parentheses([_name(function), described(code, outer), defaults, *enclosed, *map(str, referred.items())])


def _names(code: types.CodeType) -> set[str]:
    """What the code refers to by name, also that of functions in it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _is_referred(value: Any) -> bool:
    """Whether a global says what a function does: values and functions do, modules are known by name."""
    return isinstance(value, (*_PLAIN, np.ndarray, tuple, list, types.FunctionType, functools.partial))


def _code_of_class(kind: type, outer: tuple[int, ...] = ()) -> list[str]:
    """Of the functions of a class, and of those that it inherits from; nothing of installed ones."""
    own = [base for base in kind.__mro__ if not _is_installed(base)]
    functions = ((name, _function(value)) for base in own for name, value in sorted(vars(base).items()))
    return [f"{name} {described(value, outer)}" for name, value in functions if value is not None]


def _function(value: Any) -> Callable[..., Any] | None:
    """What runs when an attribute of a class is used."""
    value = getattr(value, "fget", None) if isinstance(value, property) else getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def _is_filled(cell: Any) -> bool:
    return bool(cell != types.CellType())


def _is_installed(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _INSTALLED


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}"


def _is_setting(value: Any) -> bool:
    """Whether a value belongs to what a part is; parts of it, variables and tensors are looked at elsewhere."""
    if isinstance(value, (tf.Module, tf.Variable, tf.Tensor, type(None))):
        return False
    if isinstance(value, list | tuple):
        return not any(isinstance(part, (tf.Module, tf.Variable)) for part in value)
    if isinstance(value, Mapping):
        return _is_setting(list(value.values()))
    return isinstance(value, (*_PLAIN, enum.Enum, NDiagGHQuadrature, slice, np.ndarray, set, frozenset)) or callable(
        value
    )


def _with_submodules(parts: Iterable[tf.Module]) -> Iterator[tf.Module]:
    for part in parts:
        yield part
        yield from part.submodules


def _in_parentheses(parts: Iterable[Any]) -> str:
    return f"({', '.join(map(str, parts))})"
