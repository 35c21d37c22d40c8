"""The identity of a training run: the model's parts and settings, and its data, but not the values that are learned."""

from typing import Any

import numpy as np
from gpflow.base import RegressionData
from gpflow.config import default_jitter
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from ..identity import fingerprint, settings_of


def run_identity(model: GPModel, data: RegressionData | None) -> dict[str, Any]:
    """
    Return the identity of a run as JSON data: equal exactly if parameters have the same meaning in both runs.

    :param data: X and Y for a model without data of its own.
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
