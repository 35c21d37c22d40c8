"""Memory of the test process: graphs, which are cycles, are collected after each module, and often within it."""

import gc
from collections.abc import Iterator

import pytest
from tensorflow.python.framework.ops import gradient_registry

from gpflow_pep.graphs import hand_over


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """Set aside what was imported: a collection does not visit it, is fast, and comes after fewer new objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected(imported: None) -> Iterator[None]:
    """Release what the tests of a module traced, and the exported models that they loaded."""
    yield
    hand_over()
    entries = gradient_registry._registry
    for name in list(entries):  # the loader registers gradients of its own, which never go
        if getattr(entries[name]["type"], "__module__", "").startswith("tensorflow.python.saved_model"):
            del entries[name]
    gc.collect()
