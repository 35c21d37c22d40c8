"""Which parameters of a model are trained, and their weak priors, as JSON."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import tensorflow as tf
from gpflow.base import Parameter, PriorOn
from gpflow.utilities import set_trainable

from ..maths.log_prior import LogPrior


def parameter_settings(parameters: Mapping[str, Parameter]) -> str:
    """Return by name whether each parameter is trained, and the fields of its weak prior."""
    found = {}
    for name, parameter in parameters.items():
        fields = None
        if isinstance(parameter.prior, LogPrior):
            fields = vars(parameter.prior) | {"location": parameter.prior.location.numpy().tolist()}
        found[name] = [parameter.trainable, fields]
    return json.dumps(found)


def restore_parameter_settings(parameters: Mapping[str, Parameter], text: str) -> None:
    """
    Restore the result of :func:`parameter_settings`, except priors of parameters that have others.
    """
    with written_as_json("parameters", text):
        saved = json.loads(text)
        for name, parameter in parameters.items():
            trainable, fields = saved.get(name, [parameter.trainable, None])
            set_trainable(parameter, bool(trainable))
            if isinstance(parameter.prior, LogPrior):
                parameter.prior = None
            if fields is not None and parameter.prior is None:
                location = tf.Variable(
                    fields.pop("location"), trainable=False, dtype=parameter.dtype
                )
                parameter.prior = LogPrior(location, **fields)
                parameter.prior_on = PriorOn.CONSTRAINED


@contextmanager
def written_as_json(name: str, text: str) -> Iterator[None]:
    """Turn errors of reading the JSON `text`, an array of a state, into a ValueError naming it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the state's {name} must be JSON that a model wrote, got {text[:40]!r}."
        ) from error
