"""
Check arguments: return the checked value, or raise a ValueError that names argument, value and
accepted values.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float, default_likelihood_positive_minimum
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import positive

from .runtime import asserted

_REAL = (bool, int, float, np.bool_, np.integer, np.floating)
_TENSORS = (tf.Tensor, tf.Variable, Parameter)
REMEDY = (
    "subtract an offset, or convert them to floating point numbers yourself if rounding does no "
    "harm"
)


def matrix(values: object, name: str, columns: str, dtype: object = None) -> AnyNDArray:
    """Return a finite, non-empty array [rows, columns] of `dtype`; None: ``default_float()``."""
    given = _numpy(values)
    array = _real(given, name)
    if array.ndim != 2:
        hint = "; for one column pass np.reshape(values, [-1, 1])" if array.ndim == 1 else ""
        raise ValueError(
            f"{name} must have shape [rows, {columns}], got shape {list(array.shape)}{hint}."
        )
    if 0 in array.shape:
        raise ValueError(
            f"{name} must have at least one row and one column, got shape {list(array.shape)}."
        )
    array = _as_floats(array, given, name, dtype)
    if found := not_finite(array):
        raise ValueError(f"{name} must be finite in {array.dtype}, got {found}.")
    return array


def not_finite(values: Any) -> str:
    """
    Describe how many values [..., rows, columns] are not finite, and the first such row; "" if all
    are finite.
    """
    bad = np.atleast_1d(~np.isfinite(values))
    if not bad.any():
        return ""
    return (
        f"{bad.sum()} values that are NaN or infinite, the first in row "
        f"{np.argwhere(bad)[0][max(0, bad.ndim - 2)]}"
    )


def real_numbers(values: object, name: str) -> tf.Tensor:
    """Return real numbers as a tensor of ``default_float()``, also in a graph."""
    if not isinstance(values, _TENSORS):
        return tf.constant(_as_floats(_real(values, name), values, name))
    if not (values.dtype.is_floating or values.dtype.is_integer or values.dtype.is_bool):
        raise ValueError(
            f"{name} must hold real numbers, got a tensor of dtype {values.dtype.name}."
        )
    numbers = tf.cast(values, default_float())
    if not values.dtype.is_integer:
        return numbers
    if tf.executing_eagerly():
        check_integers(values.numpy(), numbers.numpy(), name)
        return numbers
    message = f"{name} must hold integers that are exact in {numbers.dtype.name}: {REMEDY}."
    return asserted(numbers, ~rounded_integers(values, numbers), message)


def check_integers(given: object, converted: AnyNDArray, name: str) -> None:
    """
    Raise a ValueError if an integer has changed by conversion to floating point numbers.

    :param given: an array, or a table with columns of several types.
    """
    has_no_integers = isinstance(given, np.ndarray) and given.dtype.kind in "fb"
    if has_no_integers or not may_round(converted):
        return
    parts = [(given, converted)]
    if hasattr(given, "iloc") and converted.ndim == 2:
        # Column by column: NumPy would convert all columns of a table to one type.
        parts = [(given.iloc[:, number], column) for number, column in enumerate(converted.T)]
    for values, numbers in parts:
        is_large = np.abs(numbers) >= _largest_exact(numbers.dtype)
        array = np.asarray(values)
        if array.dtype.kind == "f" and isinstance(values, list | tuple):
            # NumPy converts integers in lists that also hold floating point numbers.
            array = np.asarray(values, dtype=object)
        integers = array[is_large].tolist()
        for value, rounded in zip(integers, numbers[is_large].tolist(), strict=True):
            if isinstance(value, int | np.integer) and int(value) != rounded:
                raise ValueError(
                    f"{name} must hold integers that are exact in {numbers.dtype}, got {value}, "
                    f"which {numbers.dtype} rounds to {rounded:.0f}: {REMEDY}."
                )


def may_round(converted: AnyNDArray) -> bool:
    """
    Return whether conversion to floating point numbers may have changed an integer; True with NaN.
    """
    largest = _largest_exact(converted.dtype)
    are_smaller = converted.max(initial=0.0) < largest and converted.min(initial=0.0) > -largest
    return not are_smaller


def rounded_integers(values: tf.Tensor, converted: tf.Tensor) -> tf.Tensor:
    """
    Return a tensor of bool: True where conversion to floating point numbers has changed an integer.
    """
    dtype = values.dtype
    largest = _largest_exact(converted.dtype.as_numpy_dtype)
    if not dtype.is_integer or dtype.max <= largest:
        return tf.zeros(tf.shape(values), tf.bool)
    is_beyond = converted >= tf.cast(dtype.max, converted.dtype)  # rounded up, cannot be cast back
    is_same = tf.equal(tf.cast(converted, dtype), values)
    return (tf.abs(converted) >= largest) & (is_beyond | ~is_same)


def _largest_exact(dtype: Any) -> int:
    """
    Return 2^p of a floating point type with p significant bits: integers up to it are exact, the
    next is rounded.
    """
    return int(2 ** (np.finfo(dtype).nmant + 1))


def _as_floats(array: AnyNDArray, given: object, name: str, dtype: object = None) -> AnyNDArray:
    """
    Convert `array`, the numbers of `given`, to `dtype`, None: ``default_float()``; refuse to round
    integers.
    """
    with np.errstate(over="ignore"):  # becomes infinite
        converted: AnyNDArray = array.astype(dtype or default_float(), copy=False)
    check_integers(given, converted, name)
    return converted


def inputs(values: object, name: str) -> tf.Tensor:
    """
    Return inputs as a tensor [..., N, D]. Finiteness is checked in eager mode only: a graph checks
    its results.
    """
    X = real_numbers(values, name)
    if found := not_finite(X) if tf.executing_eagerly() else "":
        raise ValueError(f"{name} must be finite, got {found}.")
    return X


def _real(given: object, name: str) -> AnyNDArray:
    """
    Return an array of numbers or booleans; object arrays of numbers (pandas with missing values)
    are converted.
    """
    if isinstance(given, np.ma.MaskedArray) and given.mask.any():
        raise ValueError(
            f"{name} must have no masked entries, got {given.mask.sum()}; leave these rows out."
        )
    array = np.asarray(given)
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind != "O":
        raise ValueError(f"{name} must hold real numbers, got an array of dtype {array.dtype}.")
    wrong = [place for place, value in np.ndenumerate(array) if not isinstance(value, _REAL)]
    if wrong:
        values = "value" if len(wrong) == 1 else "values"
        place = f" in column {given.columns[wrong[0][1]]!r}" if hasattr(given, "columns") else ""
        raise ValueError(
            f"{name} must hold real numbers, got {array[wrong[0]]!r}{place} ({len(wrong)} such "
            f"{values})."
        )
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(
            f"{name} must be finite in float64, got an integer beyond its range."
        ) from None


def regression_data(data: object) -> tuple[AnyNDArray, AnyNDArray]:
    """Return X [N, D] and Y [N, P] as finite arrays of ``default_float()``."""
    if not isinstance(data, tuple | list):
        raise ValueError(f"data must be a pair (X, Y), got {type(data).__name__}.")
    if len(data) != 2:
        raise ValueError(f"data must be a pair (X, Y), got a sequence of length {len(data)}.")
    X = matrix(data[0], "data[0] (X)", "D")
    Y = matrix(data[1], "data[1] (Y)", "P")
    if len(X) != len(Y):
        raise ValueError(
            f"data[0] (X) and data[1] (Y) must have the same number of rows, got {len(X)} and "
            f"{len(Y)}."
        )
    return X, Y


def kind(value: object) -> str:
    """Return the class of an object of another kind than expected, as messages name it."""
    if isinstance(value, type):
        return f"the class {value.__name__}: construct it, {value.__name__}()"
    return type(value).__name__


def gpflow_model(model: object) -> None:
    """Check that a model is GPflow's or derives from GPflow's models."""
    if not isinstance(model, GPModel):
        raise ValueError(f"model must be a GPflow model, got {kind(model)}.")


def positive_number(value: object, name: str) -> float:
    """Return a finite number above 0."""
    return _number(value, name, "a positive number", lambda number: 0.0 < number < np.inf)


def fraction(value: object, name: str) -> float:
    """Return a number in (0, 1]."""
    return _number(value, name, "a number in (0, 1]", lambda number: 0.0 < number <= 1.0)


def share(value: object, name: str) -> float:
    """Return a number in [0, 1]."""
    return _number(value, name, "a number in [0, 1]", lambda number: 0.0 <= number <= 1.0)


def checkpoint_seconds(value: object) -> float:
    """Return the seconds between checkpoints, 0 to infinity."""
    return _number(
        value,
        "checkpoint_seconds",
        "a number of at least 0 (math.inf: only at the end)",
        lambda number: number >= 0.0,
    )


def _number(value: object, name: str, accepted: str, is_accepted: Callable[[float], bool]) -> float:
    array = np.asarray(_numpy(value))
    # Integers of 64 bits or fewer.
    if array.ndim or array.dtype.kind not in "fiu" or not is_accepted(float(array)):
        raise ValueError(f"{name} must be {accepted}, got {value!r}.")
    return float(array)


def boolean(value: object, name: str) -> bool:
    """Return True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def seed(value: object) -> int:
    """Return a seed for NumPy and scikit-learn."""
    return whole_number(value, "seed", 0, 2**32 - 1)  # their limit


def gaussian(likelihood: object) -> Gaussian:
    """Return a Gaussian likelihood; its noise may depend on x."""
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            f"likelihood must be a gpflow.likelihoods.Gaussian, got {type(likelihood).__name__}."
        )
    if type(likelihood)._scalar_log_prob is not Gaussian._scalar_log_prob:
        raise ValueError(
            "likelihood must have the density of gpflow.likelihoods.Gaussian, got "
            f"{type(likelihood).__name__}, which overrides _scalar_log_prob: use gpflow_pep.PEP."
        )
    if isinstance(likelihood.variance, Parameter) and likelihood.variance.shape.num_elements() != 1:
        raise ValueError(
            "likelihood must have one noise variance, got shape "
            f"{likelihood.variance.shape.as_list()}."
        )
    return likelihood


def noise_variance(value: object) -> float:
    """Return the variance of a Gaussian likelihood, above GPflow's lower bound."""
    smallest = default_likelihood_positive_minimum()
    variance = positive_number(value, "noise_variance")
    if variance <= smallest:
        raise ValueError(
            f"noise_variance must be above {smallest:g} "
            f"(gpflow.config.set_default_likelihood_positive_minimum), got {variance:g}."
        )
    return variance


def positive_integer(value: object, name: str) -> int:
    """
    Return an integer from 1 to the largest 32-bit integer: TensorFlow counts rows, sweeps and steps
    in 32 bits.
    """
    return whole_number(value, name, 1, 2**31 - 1)


def chunk_size(value: object) -> int | None:
    """
    Return the number of rows per chunk: None, or an integer that may exceed the number of rows.
    """
    if value is None:
        return None
    return whole_number(value, "chunk_size", 1, None)


def num_data(value: object) -> int:
    """Return N of a minibatch model."""
    return whole_number(value, "num_data", 1, 2**53)  # a float64 counts exactly up to here


def whole_number(value: Any, name: str, smallest: int, largest: int | None) -> int:
    """Return an integer (Python or NumPy) from `smallest` to `largest`; None: no limit."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < smallest or (largest is not None and value > largest):
        accepted = f"of at least {smallest}" if largest is None else f"from {smallest} to {largest}"
        raise ValueError(f"{name} must be a whole number {accepted}, got {value!r}.")
    return int(value)


def partition(blocks: object, num_data: int) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Return N rows in the order of their blocks [N], and the sizes of the blocks [B].

    :param blocks: block size | integer labels [N], blocks in ascending order | list of arrays of
        row indices.
    """
    if isinstance(blocks, list | tuple) and any(np.ndim(block) > 0 for block in blocks):
        return _partition_of_indices(list(map(np.asarray, blocks)), num_data)
    labels = np.asarray(blocks)
    if labels.ndim == 0:
        labels = np.arange(num_data) // positive_integer(blocks, "blocks")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            "blocks must be None, a size, integer labels [N] or arrays of row indices, got an "
            f"array of dtype {labels.dtype} and shape {list(labels.shape)}."
        )
    if len(labels) != num_data:
        raise ValueError(
            f"blocks given as labels must have one for each of the {num_data} rows, got "
            f"{len(labels)}."
        )
    return np.argsort(labels, kind="stable"), np.unique(labels, return_counts=True)[1]


def _partition_of_indices(
    blocks: Sequence[AnyNDArray], num_data: int
) -> tuple[AnyNDArray, AnyNDArray]:
    for number, block in enumerate(blocks):
        if block.ndim != 1 or block.size == 0 or block.dtype.kind not in "iu":
            raise ValueError(
                f"blocks[{number}] must be a non-empty array of row indices, got dtype "
                f"{block.dtype} and shape {list(block.shape)}."
            )
    rows = np.concatenate(blocks)
    outside = rows[(rows < 0) | (rows >= num_data)]
    if outside.size:
        raise ValueError(f"blocks must hold row indices in 0..{num_data - 1}, got {outside[0]}.")
    times = np.bincount(rows, minlength=num_data)
    if (times != 1).any():
        row = int(np.flatnonzero(times != 1)[0])
        raise ValueError(
            f"blocks must be a partition of the {num_data} rows: {(times == 0).sum()} rows are in "
            f"no block and {(times > 1).sum()} in several; the first such row, {row}, is in "
            f"{times[row]}."
        )
    return rows, np.array([len(block) for block in blocks])


def cache_type(value: PrecomputeCacheType | str | None) -> PrecomputeCacheType:
    """Return GPflow's type of posterior cache; None: no cache."""
    if value is None:
        return PrecomputeCacheType.NOCACHE
    try:
        return PrecomputeCacheType(value.lower() if isinstance(value, str) else value)
    except ValueError:
        accepted = ", ".join(repr(kind.value) for kind in PrecomputeCacheType)
        raise ValueError(
            f"precompute_cache must be one of {accepted} or None, got {value!r}."
        ) from None


def scale(value: object, count: int | None = None, unit: str = "block") -> Parameter:
    """
    Return m > 0, one number [] or one per block [count], as a parameter; numbers become a fixed
    one.
    """
    if isinstance(value, tf.Variable):
        raise ValueError("scale must be a number or a gpflow.Parameter, got a tf.Variable.")
    numbers = positive_numbers(value, "scale", count, unit)
    if not isinstance(value, Parameter):
        return Parameter(numbers, transform=positive(), trainable=False)
    if value.dtype != default_float():
        raise ValueError(
            f"scale must have the type {default_float().__name__}, got {value.dtype.name}."
        )
    return value


def positive_numbers(value: object, name: str, count: int | None, unit: str) -> AnyNDArray:
    """Return finite numbers above 0, one [] or one per `unit` [count]."""
    return _each(value, name, "in (0, inf)", lambda m: (m > 0.0) & (m < np.inf), count, unit)


def power(alpha: object, count: int | None = None, unit: str = "block") -> AnyNDArray:
    """Return alpha in [0, 1], one number [] or one per block or row [count]."""
    if isinstance(alpha, Parameter):
        raise ValueError(
            "alpha must be a number or an array of numbers, got a gpflow.Parameter: alpha cannot "
            "be learned, since the objective is not a bound."
        )
    return _each(
        alpha, "alpha", "in [0, 1]", lambda values: (values >= 0.0) & (values <= 1.0), count, unit
    )


def _each(
    given: object, name: str, accepted: str, is_accepted: Any, count: int | None, unit: str
) -> AnyNDArray:
    """Return accepted numbers, one [] or one per block or row [count]; one if count is None."""
    numbers = "one number" if count is None else f"one number or one per {unit} [{count}]"
    if (
        isinstance(given, np.ma.MaskedArray)
        or (values := np.asarray(_numpy(given))).dtype.kind not in "fiu"
    ):
        raise ValueError(f"{name} must be {numbers} {accepted}, got {given!r}.")
    if values.shape not in ((), (count,)):
        raise ValueError(f"{name} must be {numbers} {accepted}, got shape {list(values.shape)}.")
    if (refused := values[~is_accepted(values)]).size:
        raise ValueError(f"{name} must be {accepted}, got {refused.reshape(-1)[0]}.")
    return values.astype(default_float())


def shaped(values: object, shape: tuple[int, ...], default: AnyNDArray, name: str) -> AnyNDArray:
    """Return a finite array of a given shape; None gives `default`."""
    given = default
    if values is not None:
        given = _numpy(values)
    array = _as_floats(_real(given, name), given, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(array.shape)}.")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, got {(~np.isfinite(array)).sum()} NaN or infinite values."
        )
    return array


def _numpy(values: object) -> Any:
    if isinstance(values, _TENSORS):
        return values.numpy()
    return values
