"""Limits of the threads of numerical libraries, for fits that overlap in several threads."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_LOCK = threading.Lock()
_users: Counter[str] = Counter()
_limits: dict[str, threadpool_limits] = {}


@contextmanager
def one_thread(user_api: str) -> Iterator[None]:
    """
    Limit "blas" or "openmp" to one thread. The limit is of the process: the last of overlapping
    users restores the number before the first.
    """
    with _LOCK:
        if not _users[user_api]:
            _limits[user_api] = threadpool_limits(1, user_api=user_api)
        _users[user_api] += 1
    try:
        yield
    finally:
        with _LOCK:
            _users[user_api] -= 1
            if not _users[user_api]:
                _limits.pop(user_api).restore_original_limits()
