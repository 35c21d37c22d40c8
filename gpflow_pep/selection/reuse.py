"""
Reuse one compiled model for all models of the same structure.

Compiling takes 0.5 s for regression and 3 to 6 s for classification, more than training on a few hundred rows.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from ..engine import Blocks
from ..models import PEP, PEPR, PEPClassifier
from ..saving.run_identity import NotComparable, declared_settings, settings_of

_MODELS = (PEPR, PEP, PEPClassifier)
_MOST_KEPT = 8  # compiled models; each takes some megabytes
_kept: list[tuple[Any, GPModel]] = []
"""Structures and idle compiled models, each with one row of data, the most recently used last."""
_LOCK = threading.Lock()


@contextmanager
def compiled_model(model: GPModel) -> Iterator[GPModel]:
    """
    Yield a compiled model with the values of `model`, and copy the values back at the end.

    Yield `model` itself if its structure cannot be compared. Threads use different compiled models.
    """
    key = structure(model)
    if key is None:
        yield model
        return
    with _LOCK:
        place = next((place for place, (other, _) in enumerate(_kept) if other == key), None)
        worker = None if place is None else _kept.pop(place)[1]
    if worker is None:
        worker = deepcopy(model)
    else:
        assign_values(worker, model)
    yield worker
    assign_values(model, worker)
    worker.data = tuple(values[:1].numpy() for values in worker.data)
    with _LOCK:
        _kept.append((key, worker))
        del _kept[:-_MOST_KEPT]


def assign_values(kept: GPModel, new: GPModel) -> None:
    """Assign the data, alpha, parameters and sites of `new` to `kept`, a model of the same structure."""
    kept.data = tuple(values.numpy() for values in new.data)
    kept.alpha = new.alpha.numpy()
    for own, other in zip(parameter_dict(kept).values(), parameter_dict(new).values(), strict=True):
        own.unconstrained_variable.assign(other.unconstrained_variable)
    sites = getattr(new, "sites_variables", {})
    for name, variable in getattr(kept, "sites_variables", {}).items():
        variable.assign(sites[name])


def check_new_parts(last: GPModel | None, new: GPModel) -> None:
    """Raise a `ValueError` if two models returned by a user's function `make` share trainable variables."""
    if last is new:
        return
    variables = {id(each) for each in getattr(last, "trainable_variables", ())}
    count = sum(id(each) in variables for each in getattr(new, "trainable_variables", ()))
    if count:
        raise ValueError(
            f"make must build a new kernel, likelihood and inducing variable each time; this {type(new).__name__} "
            f"shares {count} trainable parameters with the previous model."
        )


def structure(model: GPModel) -> tuple[Any, ...] | None:
    """
    Return everything that compiled functions depend on except data, alpha, parameter values and sites.

    :return: None if the comparison cannot cover the whole model: a dataset, alpha by row or block, irregular blocks,
        several workers or devices, tied parameters, a class or function of another package, or any other object.
    """
    if type(model) not in _MODELS or tf.distribute.has_strategy():
        return None
    if isinstance(model.data, tf.data.Dataset) or model.alpha.shape.rank > 0:
        return None
    if isinstance(model._chunks, Blocks) and model._block_size is None:
        return None
    try:
        parts = settings_of({n: part for n, part in vars(model).items() if not n.startswith("_")}, strict=True)
    except NotComparable:
        return None
    parameters = [(each.shape, each.dtype, each.trainable) for each in parameter_dict(model).values()]
    sweeps = [float(getattr(model, name, np.inf)) for name in ("tol", "max_sweeps", "damping")]
    columns = [values.shape[1] for values in model.data]
    return type(model), parts, parameters, declared_settings(model), sweeps, columns, default_jitter()
