"""One lock per model: predictions that change the model, by updating its sites, run in one thread at a time."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import tensorflow as tf

_KEY = "_lock"
_MAKING = threading.Lock()


class _Lock:
    """A reentrant lock. Copying or pickling a model drops it."""

    def __init__(self) -> None:
        self._held = threading.RLock()

    def __enter__(self) -> None:
        self._held.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def lock_of(model: Any) -> _Lock:
    """Return a model's lock, created at first use."""
    with _MAKING:
        if vars(model).get(_KEY) is None:
            vars(model)[_KEY] = _Lock()
        lock: _Lock = vars(model)[_KEY]
        return lock


# Atomic changes of a model: complete, or undone.


@contextmanager
def atomic(modules: Iterable[tf.Module], variables: Iterable[tf.Variable]) -> Iterator[None]:
    """
    Undo a change that does not complete: because of Ctrl-C between two assignments, say.

    :param modules: modules whose attributes the change may replace.
    :param variables: variables that the change may assign to.
    """
    attributes = [(module, dict(vars(module))) for module in modules]
    values = [(variable, variable.read_value()) for variable in variables]  # refers to the present values, no copies
    try:
        yield
    except BaseException:
        for module, before in attributes:
            for name, value in before.items():
                if vars(module).get(name) is not value:
                    setattr(module, name, value)
        for variable, earlier in values:
            variable.assign(earlier)
        raise
