"""Which parameters of a model are trained, and their weak priors, as JSON."""

import json

import tensorflow as tf
from gpflow.base import PriorOn
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict, set_trainable

from ..maths.log_prior import LogPrior


def parameter_settings(model: GPModel) -> str:
    """Return whether each parameter is trained, and the fields of its weak prior, by path."""
    found = {}
    for path, parameter in parameter_dict(model).items():
        fields = None
        if isinstance(parameter.prior, LogPrior):
            fields = vars(parameter.prior) | {"location": parameter.prior.location.numpy().tolist()}
        found[path] = [parameter.trainable, fields]
    return json.dumps(found)


def restore_parameter_settings(model: GPModel, text: str) -> None:
    """Restore the result of :func:`parameter_settings`; paths that the model lacks are left out."""
    try:
        saved = json.loads(text)
        for path, parameter in parameter_dict(model).items():
            trainable, fields = saved.get(path, [True, None])
            set_trainable(parameter, bool(trainable))
            if fields is not None:
                location = tf.Variable(
                    fields.pop("location"), trainable=False, dtype=parameter.dtype
                )
                parameter.prior = LogPrior(location, **fields)
                parameter.prior_on = PriorOn.CONSTRAINED
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the state's parameters must be JSON that a model wrote, got {text[:40]!r}."
        ) from error
