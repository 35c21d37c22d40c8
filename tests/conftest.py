"""Memory of the test process: models and graphs, which are cycles, are collected after each module."""

import ctypes
import gc
from collections.abc import Iterator

import pytest
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import gradient_registry

from gpflow_pep.graphs import hand_over

_C = ctypes.CDLL(None)


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """Set aside what was imported: a collection does not visit it, is fast, and comes after fewer new objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected(imported: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Release what the tests of a module cached and traced, and the exported models that they loaded."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and value.__module__ == request.module.__name__:
            value.cache_clear()
    hand_over()
    entries = gradient_registry._registry
    for name in list(entries):  # the loader registers gradients of its own, which never go
        if getattr(entries[name]["type"], "__module__", "").startswith("tensorflow.python.saved_model"):
            del entries[name]
    gc.collect()
    context.context().clear_kernel_cache()  # of operations that ran eagerly
    if hasattr(_C, "malloc_trim"):  # glibc keeps what is freed, up to a gigabyte here
        _C.malloc_trim(0)
