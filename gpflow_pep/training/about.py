"""What a training is of: a model's parts and settings, and its data, but for the parameters that are learned."""

import types
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_jitter
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

_PLAIN = (bool, int, float, str, np.generic)
_IGNORED = ("_self_", "_num_rows", "_num_points", "_training_step")  # what TensorFlow counts, and what data decide


def about(model: GPModel, data: RegressionData | None) -> dict[str, Any]:
    """
    Equal for two models exactly if the same parameters mean the same in both, as JSON can write it.

    :param data: X and Y of a model that has none of its own.
    """
    parameters = parameter_dict(model)
    fixed = {name: parameter for name, parameter in parameters.items() if not parameter.trainable}
    held = [getattr(model, name, None) for name in ("_chunks", "_old")]
    variables = [variable for each in held if each is not None for variable in each.variables]
    chosen = {name: getattr(model, name, None) for name in ("alpha", "num_data", "tol", "max_sweeps", "damping")}
    return {
        "model": type(model).__name__,
        "settings": [list(each) for each in settings_of(model)],
        "shapes of parameters": {name: list(p.shape) for name, p in parameters.items() if p.trainable},
        "fixed parameters": {name: fingerprint(np.asarray(parameter)) for name, parameter in fixed.items()},
        **{name: None if value is None else np.asarray(value).tolist() for name, value in chosen.items()},
        "blocks or old posterior": fingerprint(*map(np.asarray, variables)),
        "data": fingerprint(*map(np.asarray, model.data if data is None else data)),
        "jitter": default_jitter(),
    }


def fingerprint(*values: AnyNDArray) -> int:
    """A number that other values do not have, all but certainly."""
    total = 0
    for value in values:
        total = zlib.crc32(np.ascontiguousarray(value).tobytes(), total)
    return total


def settings_of(model: GPModel) -> Iterator[tuple[str, ...]]:
    """Classes and plain settings of all parts, and priors."""
    for part in (model, *model.submodules):
        yield (type(part).__qualname__,)
        for name, value in sorted(vars(part).items()):
            if name.startswith(_IGNORED):
                continue
            if isinstance(value, _PLAIN):
                yield name, str(value)
            elif isinstance(value, slice | list | tuple | np.ndarray) and not _holds_modules(value):
                yield name, repr(value)
            elif isinstance(value, types.FunctionType):
                yield name, value.__qualname__, str(zlib.crc32(value.__code__.co_code)), repr(value.__code__.co_consts)
        if isinstance(part, Parameter) and part.prior is not None:
            described = {name: repr(value) for name, value in part.prior.parameters.items()}
            yield type(part.prior).__name__, str(sorted(described.items()))


def _holds_modules(value: Any) -> bool:
    return isinstance(value, list | tuple) and not all(isinstance(each, _PLAIN) for each in value)
