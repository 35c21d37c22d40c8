"""Reuse compiled models: compiling takes .5 to 6 s, more than training on a few hundred rows.

TensorFlow never releases some hundred kilobytes of a graph. So the kept models take any number of
rows and, if this library trains them, of inducing points: refits on growing data compile once.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict, set_trainable

from ..engine import BlockChunks
from ..models import PEP, PEPR, PEPClassifier
from ..models.gpr import ClosedFormGPR
from ..models.kernels_and_inducing_variables import are_inducing_points, free_number_of_points
from ..runtime import assign_all, local_variable
from ..saving.run_identity import NotComparable, settings_of
from ..training.priors import locations

# Structures and idle compiled models, each with one row of data, the most recently used last.
_kept: list[tuple[Any, GPModel]] = []
_LOCK = threading.Lock()


@contextmanager
def compiled_model(model: GPModel, *, free_points: bool) -> Iterator[GPModel]:
    """
    Yield a compiled model with the values of `model`. Copy the values back, and priors and flags if
    they have changed. Yield `model` itself if it is not comparable.

    :param free_points: take any number of inducing points. Z then has no static shape, which Keras
        rejects.
    """
    free_points = free_points and hasattr(model, "inducing_variable")
    key = structure(model, free_points=free_points)
    if key is None:
        yield model
        return
    with _LOCK:
        places = [place for place, (other, _) in enumerate(_kept) if other == key]
        if places:
            worker = _kept.pop(places[0])[1]
    if places:
        assign_values(worker, model)
    else:
        worker = deepcopy(model)
        if isinstance(worker, ClosedFormGPR):
            worker.data = tuple(
                local_variable(values, values.dtype, [None, values.shape[1]])
                for values in worker.data
            )
        if free_points and are_inducing_points(worker.inducing_variable):
            free_number_of_points(worker.inducing_variable)
    before = structure(worker, free_points=free_points)
    yield worker
    is_changed = structure(worker, free_points=free_points) != before  # by a user's training
    if is_changed:
        for ours, theirs in zip(_parameters(model), _parameters(worker), strict=True):
            set_trainable(ours, theirs.trainable)
            ours.prior = theirs.prior
            ours.prior_on = theirs.prior_on
    assign_values(model, worker)
    if not is_changed:
        _assign_data(worker, tuple(values[:1] for values in worker.data))
        with _LOCK:
            _kept.append((key, worker))
            del _kept[:-6]  # each takes 10 MB (regression) to 100 MB


def assign_values(model: GPModel, other: GPModel) -> None:
    """Assign data, alpha, parameters, priors and sites of another model of the same structure."""
    for ours, theirs in zip(_parameters(model), _parameters(other), strict=True):
        ours.unconstrained_variable.assign(theirs.unconstrained_variable)
    assign_all(locations(model), locations(other))
    # After Z, since the number of points may change.
    _assign_data(model, other.data)
    if hasattr(model, "alpha"):
        model.alpha = other.alpha
    for name, variable in getattr(model, "sites_variables", {}).items():
        variable.assign(other.sites_variables[name])


def _parameters(model: GPModel) -> list[Parameter]:
    """Return all parameters in the order of their paths, without data that variables hold."""
    return [each for each in parameter_dict(model).values() if isinstance(each, Parameter)]


def _assign_data(model: GPModel, data: RegressionData) -> None:
    """
    Assign X and Y. A GPR that is a worker holds them in variables; any other GPR keeps its own.
    """
    if not isinstance(model, ClosedFormGPR):
        model.data = data
    elif isinstance(model.data[0], tf.Variable):
        assign_all(model.data, data)


def check_made(
    new: GPModel, last: GPModel | None, data: RegressionData, Z: AnyNDArray | None = None
) -> None:
    """Raise a `ValueError` if a new model has other data or points, or parts of the last one."""
    name = type(new).__name__
    own = getattr(new, "data", data)
    if isinstance(own, tuple) and not all(map(np.array_equal, own, data)):
        raise ValueError(f"make must use the data it is given, got a {name} of other data.")
    if Z is not None:
        points = new.inducing_variable
        number = int(points.num_inducing)
        if number != len(Z):
            raise ValueError(
                f"make(data, Z) returned a model with {number} inducing points, but Z has {len(Z)}."
            )
        if type(points) is InducingPoints and not np.array_equal(points.Z, Z):
            raise ValueError(
                f"make must use the inducing points it is given, Z {list(Z.shape)}, got others."
            )
    variables, earlier = (
        set(map(id, getattr(model, "trainable_variables", ()))) for model in (new, last)
    )
    shared = variables & earlier
    if shared and last is not new:
        raise ValueError(
            "make must build a new kernel, likelihood and inducing variable each time, got a "
            f"{name} that shares {len(shared)} trainable parameters with the previous model."
        )


def structure(model: GPModel, *, free_points: bool = False) -> tuple[Any, ...] | None:
    """
    Return everything that compiled functions depend on except data, alpha, parameter values, sites
    and, with `free_points`, the number of inducing points; None if that cannot be compared: a
    dataset, alpha or scale by row or block, irregular blocks, several workers or devices, tied
    parameters, a class or function of another package, or any other object.
    """
    if type(model) not in (PEPR, PEP, PEPClassifier, ClosedFormGPR) or tf.distribute.has_strategy():
        return None
    chunks = getattr(model, "_chunks", None)
    is_irregular = isinstance(chunks, BlockChunks) and model._block_size is None
    numbers = [getattr(model, name, None) for name in ("alpha", "scale")]
    are_of_rows = any(each is not None and each.shape.rank for each in numbers)
    if is_irregular or are_of_rows or isinstance(model.data, tf.data.Dataset):
        return None
    try:
        settings = settings_of({"model": model}, strict=True)
    except NotComparable:
        return None
    points: set[int] = set()
    if free_points and are_inducing_points(model.inducing_variable):
        points = {id(each) for each in parameter_dict(model.inducing_variable).values()}
    parameters = []
    for each in parameter_dict(model).values():
        shape = each.shape
        if id(each) in points:
            shape = shape[1:]
        parameters.append((shape, each.dtype, each.trainable))
    sweeps = [float(getattr(model, name, np.inf)) for name in ("tol", "max_sweeps", "damping")]
    columns = [values.shape[1] for values in model.data]
    return settings, parameters, sweeps, columns, default_jitter()
