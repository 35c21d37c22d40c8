"""Multiply by inverses as on GPUs, or solve triangular systems as on CPUs, on any device."""

from typing import Any
from unittest import mock


def preferring_products(value: bool) -> Any:
    """Return a context in which traced graphs multiply by inverses if `value`."""
    return mock.patch("gpflow_pep.maths.linalg.prefers_products", return_value=value)
