"""One lock per model: predictions that change the model, by updating its sites, run in one thread at a time."""

import threading
from types import TracebackType
from typing import Any

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
