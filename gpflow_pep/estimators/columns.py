"""
Check that tables and arrays hold numbers, or labels. Errors name the column and how to convert it.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from numbers import Real
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.sparse import issparse

from ..training.coordinates import spreads

_DAYS = (
    "convert times to a number of days from a fixed date, the same in fit and predict, such as "
    "(t - numpy.datetime64('2025-01-01')) / numpy.timedelta64(1, 'D')"
)
_CATEGORIES = "encode categories with OneHotEncoder or TargetEncoder of sklearn.preprocessing"
_LABELS = "SparseGPClassifier predicts labels"
_SHOWN = 5  # largest number of columns that a message lists
# The least distance of X to the limits of floating point numbers: training changes lengthscales.
_MARGIN = 1e6


def check_numbers(values: Any, name: str) -> None:
    """
    Raise a `ValueError` for a mask, a sparse matrix, times, text that is no number, and missing
    values of a table of pandas.
    """
    _check_array(values, name)
    for place, column in _columns_to_check(values, name):
        if column.dtype.kind in "mM":
            raise ValueError(f"{name} must hold numbers, got {column.dtype}{place}: {_DAYS}.")
        for value in column.flat:
            if isinstance(value, date | timedelta | np.datetime64 | np.timedelta64):
                found = type(value).__name__
                raise ValueError(f"{name} must hold numbers, got a {found}{place}: {_DAYS}.")
            if isinstance(value, str | bytes) and not _is_number(value):
                remedy = _CATEGORIES if name == "X" else _LABELS
                raise ValueError(f"{name} must hold numbers, got {value!r}{place}: {remedy}.")
    if hasattr(values, "columns") and hasattr(values, "isna"):
        _check_finite(values, name)


def check_range(X: AnyNDArray) -> None:
    """Raise a `ValueError` if kernels of a column of X [N, D] may leave floating point range."""
    limits = np.finfo(X.dtype)
    largest = limits.max / _MARGIN
    sizes = np.max(np.abs(X), axis=0)
    if np.any(sizes > largest):
        column = int(np.argmax(sizes))
        found = f"got {sizes[column]:g} in column {column}"
        raise ValueError(
            f"X must be at most {largest:.1g} in absolute value, {found}: try another unit."
        )
    smallest = limits.tiny * _MARGIN
    deviations = spreads(X)  # 1 if a column is constant
    if np.any(deviations < smallest):
        column = int(np.argmin(deviations))
        found = f"got {deviations[column]:g} in column {column}"
        raise ValueError(
            "X must have columns that are constant or have a standard deviation of at least "
            f"{smallest:.1g}, {found}: try another unit."
        )


def checked_labels(values: Any, name: str) -> Any:
    """
    Return class labels as an array. Python numbers become an array of numbers.

    :raises ValueError: naming the first label that is neither text nor a number, or of another
        type than the labels before it, and its row.
    """
    _check_array(values, name)
    if values is None:
        return None  # scikit-learn's error names the estimator
    is_sequence = isinstance(values, list | tuple)
    labels = np.asarray(values, dtype=object if is_sequence else None)
    if labels.dtype.kind in "fiubcU":  # scikit-learn refuses NaN, fractions and complex numbers
        return labels
    accepted = f"{name} must hold labels of one type, text or whole numbers or booleans"
    if labels.dtype.kind != "O":
        raise ValueError(f"{accepted}, got an array of dtype {labels.dtype}.")
    kinds = [_kind_of_label(label) for label in labels.flat]
    for row, (label, kind) in enumerate(zip(labels.flat, kinds, strict=True)):
        if kind is None or kind is not kinds[0]:
            raise ValueError(f"{accepted}, got {label!r} in row {row}.")
    return labels if str in kinds else np.array(labels.tolist())


def _kind_of_label(label: Any) -> type | None:
    """Return `str` or `Real`; None for NaN, and for an object that is no label."""
    if isinstance(label, str):
        return str
    if isinstance(label, Real | np.bool_) and label == label:
        return Real
    return None


def _check_finite(table: Any, name: str) -> None:
    """Raise a `ValueError` that names the columns with missing or infinite values."""
    drop = "drop these rows"
    fill = "fill the values in, as sklearn.impute.SimpleImputer does"
    remedy = f"{drop}, or {fill}" if name == "X" else drop
    is_missing = table.isna()
    _check_none(is_missing, f"{name} must hold no missing values", remedy)
    is_infinite = is_missing | np.isinf(table.to_numpy(dtype=float))  # a table with its columns
    _check_none(is_infinite, f"{name} must hold no infinite values", drop)


def _check_none(table: Any, accepted: str, remedy: str) -> None:
    """Raise a `ValueError` that names the columns in which the table of booleans is true."""
    found = [f"{count} in column {column!r}" for column, count in table.sum().items() if count]
    if not found:
        return
    shown = ", ".join(found[:_SHOWN])
    if len(found) > _SHOWN:
        shown = f"{shown} and some in {len(found) - _SHOWN} more columns"
    raise ValueError(f"{accepted}, got {shown}: {remedy}.")


def _check_array(values: Any, name: str) -> None:
    """Raise a `ValueError` for a mask or a sparse matrix."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must be an array without a mask, got a masked array: fill or drop values."
        )
    if issparse(values):
        found = type(values).__name__
        raise ValueError(f"{name} must be a dense array, got a sparse {found}: use .toarray().")


def _columns_to_check(values: Any, table: str) -> Iterator[tuple[str, AnyNDArray]]:
    """
    Yield the columns of a table or array that may hold more than numbers, each with its place, in
    words.

    :raises ValueError: if columns of a table have equal names.
    """
    if hasattr(values, "columns"):
        repeated = [repr(each) for each, count in Counter(values.columns).items() if count > 1]
        if repeated:
            found = ", ".join(repeated)
            raise ValueError(
                f"{table} must have distinct column names, got {found} more than once."
            )
        for name, dtype in zip(values.columns, values.dtypes, strict=True):
            if getattr(dtype, "kind", "O") not in "fiub":
                yield f" in column {name!r}", np.asarray(values[name])
        return
    array = np.asarray(values)
    if array.dtype.kind in "fiubc":
        return
    if array.ndim == 2:
        for number, column in enumerate(array.T):
            yield f" in column {number}", column
    else:
        yield "", array


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
