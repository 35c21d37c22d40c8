"""Describe kernels and likelihoods in one line, as scikit-learn describes its kernels."""

from copy import copy
from typing import Any

import numpy as np
from gpflow.base import Module, Parameter
from gpflow.kernels import Kernel, Product, Sum
from sklearn.base import BaseEstimator

_MOST = 6  # entries of an array that are shown


class Description:
    """A part of an estimator whose `repr` is a description."""

    def __init__(self, part: Module):
        self._text = described(part)

    def __repr__(self) -> str:
        return self._text


def with_descriptions(estimator: BaseEstimator) -> Any:
    """Return a copy of an estimator in which descriptions replace parts of GPflow."""
    shown = copy(estimator)
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, Module):
            setattr(shown, name, Description(value))
    return shown


def described(part: Module) -> str:
    """Return the class and the parameters of a part; sums and products as formulas."""
    if type(part) is Sum:
        return " + ".join(map(described, part.kernels))
    if type(part) is Product:
        return " * ".join(
            f"({described(each)})" if type(each) is Sum else described(each)
            for each in part.kernels
        )
    shown = []
    for name, value in vars(part).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Parameter):
            shown.append(f"{name}={_numbers(np.asarray(value))}")
        elif isinstance(value, Kernel):
            shown.append(f"{name}={described(value)}")
        elif name == "kernels":
            shown.append(f"[{', '.join(map(described, value))}]")
    if isinstance(part, Kernel) and part.active_dims != slice(None):
        dims = part.active_dims
        shown.append(
            f"active_dims={dims if isinstance(dims, slice) else np.asarray(dims).tolist()}"
        )
    return f"{type(part).__name__}({', '.join(shown)})"


def _numbers(values: Any) -> str:
    if values.ndim > 1:
        return f"<array of shape {list(values.shape)}>"
    if values.ndim == 0:
        return f"{values:.3g}"
    shown = [f"{value:.3g}" for value in values[:_MOST]] + ["..."] * (len(values) > _MOST)
    return f"[{', '.join(shown)}]"
