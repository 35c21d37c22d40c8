"""
Checks of values, also in compiled functions, with errors that begin with the reason; warnings at
the user's line.
"""

import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from .tracing import enabled, in_xla, leaves_out_rare_branches

try:
    from tensorflow.python.util.tf_stack import StackTraceFilter as _StackTraceFilter
except ImportError:  # private to TensorFlow; without it errors list more files
    from contextlib import nullcontext as _StackTraceFilter

_MAX_SHOWN = 3  # entries of a tensor in a message, to keep it short
_LIBRARIES = tuple(
    {str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}
)
# TensorFlow's descriptions of the graph and the dataset, which precede the exception.
_BEFORE_EXCEPTION = (
    r"^(Graph execution error:.*most recent call last\):\n(<stack traces unavailable>\n|\s*\n| +File .*?\n)*)?"
    r"(\{\{.*?\}\} )?(Error in user-defined function passed to \S* transformation with iterator: \S*: )?"
)
_AUTOGRAPH = "__autograph_generated_file"  # in the names of files that TensorFlow has converted
_CREATE_OPERATION = frozenset(
    str(Path(tf.__file__).parent / "python" / file)
    for file in ("util/tf_export.py", "ops/gen_logging_ops.py", "framework/op_def_library.py")
)

RARE = "A branch that was left out is needed"
"""The message of the error of a graph traced in `without_rare_branches` that needs such a branch."""

_IS_REPEATED = ContextVar("is_repeated", default=False)
_IS_SILENT = ContextVar("is_silent", default=False)


def repeated() -> AbstractContextManager[None]:
    """
    Leave out checks, a few per cent of the time of a loop, of values that are computed again for
    derivatives.
    """
    return enabled(_IS_REPEATED)


def asserted(value: tf.Tensor, accepted: tf.Tensor, *message: Any) -> tf.Tensor:
    """
    Check that all of `accepted` holds, and return `value`. Under XLA, which cannot raise errors, a
    failed check returns NaN, also in the derivatives.

    :param value: floating point numbers, if compiled by XLA; `message`: strings and tensors.
    :raises tf.errors.InvalidArgumentError: with the message, if not all of `accepted` holds.
    """
    accepted = tf.convert_to_tensor(accepted)
    if accepted.shape.rank != 0:
        accepted = tf.reduce_all(accepted)
    if in_xla():
        return value * tf.where(
            accepted, tf.ones([], value.dtype), tf.constant(np.nan, value.dtype)
        )
    if _IS_REPEATED.get():
        return tf.identity(value)
    if tf.executing_eagerly():
        if not bool(accepted):
            parts = (part for tensor in message for part in np.ravel(tensor)[:_MAX_SHOWN])
            text = (part.decode() if isinstance(part, bytes) else str(part) for part in parts)
            raise tf.errors.InvalidArgumentError(None, None, " ".join(text))
        return tf.identity(value)
    # The operation itself, without the branch that tf.debugging.Assert puts around it.
    data = [tf.convert_to_tensor(part) for part in message]
    with _UserFrames():
        checked = tf.raw_ops.Assert(condition=accepted, data=data, summarize=_MAX_SHOWN)
    with tf.control_dependencies([checked]):
        return tf.identity(value)


def rarely(condition: tf.Tensor, branch: Callable[[], Any], usual: Any) -> Any:
    """
    Return the results of `branch` if the condition holds, which is seldom, else the `usual` ones.

    :raises tf.errors.InvalidArgumentError: with the message `RARE`, if the branch was left out of
        the graph and the condition holds.
    """
    if _IS_REPEATED.get() or not leaves_out_rare_branches():
        return tf.cond(condition, branch, lambda: usual)
    with tf.control_dependencies([asserted(condition, ~condition, RARE)]):
        return tf.nest.map_structure(tf.identity, usual)


class UnreadableData(ValueError):
    """An error in reading a dataset."""


def with_plain_errors(
    function: Callable[..., Any], *args: object, place: Callable[[], str] = str
) -> Any:
    """
    Call a compiled function; errors of its checks and of datasets omit TensorFlow's description of
    the graph.

    :param place: returns where reading has ended, in words for the error of a dataset; by default
        none, as ``str()``.
    """
    try:
        return function(*args)
    except tf.errors.OpError as error:
        if not tf.executing_eagerly():
            raise
        reason = reason_of(error)
        if "IteratorGetNext" in error.message:  # the operation that reads
            raise UnreadableData(f"data: the dataset cannot be read{place()}: {reason}") from error
        if not isinstance(error, tf.errors.InvalidArgumentError) or reason == error.message:
            raise
    raise tf.errors.InvalidArgumentError(None, None, reason)


def reason_of(error: BaseException) -> str:
    """Return an error's message without TensorFlow's description of the graph."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if "natural_gradient_steps" in text:  # GPflow's own check, which gives no reason
        return "the natural gradient's step is not finite; try a smaller natural_step."
    text, traceback, _ = text.partition("Traceback (most recent call last)")
    if traceback:  # of a Python function in a dataset
        return " ".join(re.sub(_BEFORE_EXCEPTION, "", text, flags=re.DOTALL).split())
    match = re.search(r"assertion failed: \[(.*?)\]\s*(\n|$)", text, re.DOTALL)
    if match:
        return match.group(1).replace("] [", " ")
    return text


def silent() -> AbstractContextManager[None]:
    """Ignore warnings of this library in this thread; `warnings.catch_warnings` acts on all."""
    return enabled(_IS_SILENT)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, as if from the line of the user's code that led here."""
    if _IS_SILENT.get():
        return
    frame = sys._getframe()
    level = 1
    while frame.f_back is not None and _is_of_library(frame.f_code.co_filename):
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_of_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or _AUTOGRAPH in file


class _UserFrames(_StackTraceFilter):
    """Record only the user's files as the origin of operations, which errors list."""

    @override
    def get_filtered_filenames(self) -> frozenset[str]:
        names = {frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe())}
        return _CREATE_OPERATION.union(filter(_is_of_library, names))
