"""The number of threads of BLAS, for fits that overlap in several threads."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import threadpool_limits

_LOCK = threading.Lock()
_users: list[object] = []
_limits = ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """
    Limit BLAS to one thread. The limit is of the process: the last of overlapping users restores
    the number before the first.
    """
    user = object()
    with _LOCK:
        if not _users:
            _limits.enter_context(threadpool_limits(1, user_api="blas"))
        _users.append(user)
    try:
        yield
    finally:
        with _LOCK:
            _users.remove(user)
            if not _users:
                _limits.close()
