"""Describe kernels and likelihoods in one line, as scikit-learn describes its kernels."""

from copy import copy
from typing import Any

import numpy as np
from gpflow.base import Module, Parameter
from gpflow.kernels import Kernel, Product, Sum
from sklearn.base import BaseEstimator

_MAX_SHOWN = 6  # entries of an array that are shown


class Description:
    """A stand-in for a kernel or likelihood, whose `repr` is its description."""

    def __init__(self, part: Module):
        self._text = described(part)

    def __repr__(self) -> str:
        return self._text


def with_descriptions(estimator: BaseEstimator) -> Any:
    """Return a copy of an estimator in which descriptions replace kernel and likelihood."""
    shown = copy(estimator)
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, Module):
            setattr(shown, name, Description(value))
    return shown


def described(part: Module) -> str:
    """Return class and parameters of a kernel or likelihood; a sum or product is a formula."""
    if type(part) is Sum:
        return " + ".join(map(described, part.kernels))
    if type(part) is Product:
        factors = []
        for each in part.kernels:
            factor = described(each)
            if type(each) is Sum:
                factor = f"({factor})"
            factors.append(factor)
        return " * ".join(factors)
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
        if not isinstance(dims, slice):
            dims = np.asarray(dims).tolist()
        shown.append(f"active_dims={dims}")
    return f"{type(part).__name__}({', '.join(shown)})"


def _numbers(values: Any) -> str:
    if values.ndim > 1:
        return f"<array of shape {list(values.shape)}>"
    if values.ndim == 0:
        return f"{values:.3g}"
    shown = [f"{value:.3g}" for value in values[:_MAX_SHOWN]]
    if len(values) > _MAX_SHOWN:
        shown.append("...")
    return f"[{', '.join(shown)}]"
