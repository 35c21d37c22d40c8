"""Check that tables and arrays hold numbers. Errors name the column and how to convert it."""

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.sparse import issparse

_DAYS = (
    "convert times to a number of days from a fixed date, the same in fit and predict, such as "
    "(t - numpy.datetime64('2025-01-01')) / numpy.timedelta64(1, 'D')"
)
_CATEGORIES = "encode categories with OneHotEncoder or TargetEncoder of sklearn.preprocessing"
_LABELS = "SparseGPClassifier predicts labels"


def check_numbers(values: Any, name: str, *, is_text_accepted: bool = False) -> None:
    """Raise a `ValueError` for a mask, a sparse matrix, times, and text that is no number unless text is accepted."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must be an array without a mask, got a masked array: fill or drop values."
        )
    if issparse(values):
        found = type(values).__name__
        raise ValueError(f"{name} must be a dense array, got a sparse {found}: use .toarray().")
    for place, column in _columns_to_check(values, name):
        if column.dtype.kind in "mM":
            raise ValueError(f"{name} must hold numbers, got {column.dtype}{place}: {_DAYS}.")
        for value in column.flat:
            if isinstance(value, date | timedelta | np.datetime64 | np.timedelta64):
                found = type(value).__name__
                raise ValueError(f"{name} must hold numbers, got a {found}{place}: {_DAYS}.")
            if isinstance(value, str | bytes) and not is_text_accepted and not _is_number(value):
                remedy = _CATEGORIES if name == "X" else _LABELS
                raise ValueError(f"{name} must hold numbers, got {value!r}{place}: {remedy}.")


def _columns_to_check(values: Any, table: str) -> Iterator[tuple[str, AnyNDArray]]:
    """
    Yield the columns of a table or array that may hold more than numbers, each with its place, in words.

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
