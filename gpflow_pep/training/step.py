"""The compiled training loss and gradient of a model, traced once for each structure that the model has."""

from functools import partial
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float, default_jitter
from gpflow.models import GPModel

from ..runtime.checks import with_plain_errors
from ..runtime.custom_gradients import derivatives
from ..runtime.devices import in_replica
from ..runtime.tracing import compiled, differ, structure_of

_KEY = "_training_step"
_ABORTED = "Collective ops is aborted"


def training_step(model: GPModel) -> "TrainingStep":
    """Return the model's compiled step. The model keeps it, so that a second training run does not trace it again."""
    step = vars(model).get(_KEY)
    if step is None:
        step = model.__dict__[_KEY] = TrainingStep(model)
    training_step: TrainingStep = step
    training_step.renew()
    training_step.jit_compile = False
    return training_step


class TrainingStep:
    """
    Loss and its gradient in the trainable variables, for the model's own data or for given rows.

    Functions that XLA compiles return NaN in place of errors. Such steps are repeated without XLA, where the error is
    raised.
    """

    jit_compile: bool
    """Whether XLA compiles the next steps."""

    def __init__(self, model: GPModel):
        self._model, self._traced_for = model, list[Any]()
        self._compiled: dict[tuple[bool, tuple[tf.TensorSpec, ...]], Any] = {}

    def renew(self) -> None:
        """Trace again if a part or a setting of the model was replaced."""
        structure = structure_of([self._model], [default_jitter(), default_float()])
        if differ(structure, self._traced_for):
            self._traced_for, self._compiled = structure, {}

    @property
    def is_compiled(self) -> bool:
        """Whether it has been called since it was last renewed."""
        return bool(self._compiled)

    def __call__(self, *rows: TensorType) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """
        Compute the training loss [] and its gradient.

        :param rows: X [n, D] and Y [n, P] of a model that has no data of its own; any n. (XLA compiles for each n.)
        :raises tf.errors.InvalidArgumentError: if they cannot be computed.
        :raises NotImplementedError: if XLA cannot compile the model.
        """
        tensors = tuple(map(tf.constant, rows))
        loss, gradient = self._run(tensors, self.jit_compile)
        if self.jit_compile and not _are_finite(loss, *gradient):
            return self._run(tensors, False)
        return loss, gradient

    def _run(self, rows: tuple[tf.Tensor, ...], jit_compile: bool) -> tuple[tf.Tensor, list[tf.Tensor]]:
        signature = tuple(tf.TensorSpec([None, values.shape[1]], values.dtype) for values in rows)
        key = jit_compile, signature
        if key not in self._compiled:
            xla = {"jit_compile": True} if jit_compile else {}
            self._compiled[key] = compiled(
                partial(in_replica, self._loss_and_gradient), input_signature=signature, **xla
            )
        try:
            loss, gradient = with_plain_errors(self._compiled[key], *rows)
        except tf.errors.InvalidArgumentError as error:
            if _ABORTED in error.message:  # another worker has failed
                raise tf.errors.AbortedError(None, None, error.message) from error
            raise
        return loss, gradient

    def _loss_and_gradient(self, *rows: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        variables = self._model.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = self._model.training_loss(*([rows] if rows else []))
        gradient, workers = list(derivatives(tape, loss, variables)), getattr(self._model, "_workers", None)
        if workers is not None:  # the last digit must be the same everywhere, or steps would part
            loss, *gradient = workers.broadcast_from_chief([loss, *gradient])
        return loss, gradient

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Drop the compiled step from copied and pickled models."""
        return type(None), ()


def _are_finite(*values: tf.Tensor) -> bool:
    return all(bool(tf.reduce_all(tf.math.is_finite(value))) for value in values)
