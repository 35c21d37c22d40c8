"""
Memory of the test process. Tests run as users run: shapes are checked, graphs are optimized, oneDNN
is on; see `OPTIMIZED` for the exceptions.

TensorFlow keeps some hundred kilobytes of every graph that a process has traced. Models and graphs,
which are cycles, are collected after each module, and within modules that trace many.
"""

import ctypes
import functools
import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import gradient_registry

from gpflow_pep.runtime.tracing import release_graphs

# Shells let processes in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# NaN is close to nothing, unless a test says equal_nan=True.
np.testing.assert_allclose = functools.partial(np.testing.assert_allclose, equal_nan=False)

_C = ctypes.CDLL(None)
_STATM = Path("/proc/self/statm")  # of Linux
# Bytes after which a test is followed by a collection; Python by itself would let it grow much
# further.
_GROWTH = 200e6


OPTIMIZED = ("contracts/", "devices/", "ep/", "experiments/", "training/")
"""
Folders whose graphs are optimized, as users have them. The other tests run their graphs, of
thousands of operations, a few times only: to optimize them takes a sixth of the time.
"""


SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().splitlines())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that are listed as slow."""
    if item.nodeid.split("[")[0] in SLOW:
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def graphs(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    """Leave the graphs of most folders unoptimized."""
    path = request.path.relative_to(Path(__file__).parent).as_posix()
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": not path.startswith(OPTIMIZED)}
    )
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """
    Freeze imported objects: a collection does not visit it, is fast, and comes after fewer new
    objects.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """
    Release the objects that tests leave behind, when pytest no longer refers to the last test's
    fixtures.
    """
    result = yield
    if nextitem is None or nextitem.path != item.path:
        _release_module(item)
    elif _resident() > _after_release[-1] + _GROWTH:
        _release()
    return result


def _release_module(item: pytest.Item) -> None:
    """
    Release everything that the tests of a module cached and traced, and the exported models that
    they loaded.
    """
    module = getattr(item, "module", None)
    for value in vars(module).values() if module else ():
        if hasattr(value, "cache_clear") and value.__module__ == module.__name__:
            value.cache_clear()
    release_graphs()
    entries = gradient_registry._registry
    for name in list(entries):  # the loader registers gradients of its own, which never go
        if getattr(entries[name]["type"], "__module__", "").startswith(
            "tensorflow.python.saved_model"
        ):
            del entries[name]
    gc.collect()
    context.context().clear_kernel_cache()  # of operations that ran eagerly
    _release()


def _release() -> None:
    release_graphs()
    gc.collect()
    if hasattr(_C, "malloc_trim"):  # glibc keeps freed memory, up to a gigabyte here
        _C.malloc_trim(0)
    _after_release.append(_resident())


def _resident() -> float:
    """Bytes that the process occupies; 0 where that is not known."""
    return (
        float(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if _STATM.exists()
        else 0.0
    )


_after_release = [_resident()]
