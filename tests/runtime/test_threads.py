"""Limits and silence of fits that overlap in several threads."""

import warnings
from contextlib import ExitStack
from threading import Thread

from threadpoolctl import threadpool_info, threadpool_limits

from gpflow_pep.runtime import silent, warn
from gpflow_pep.runtime.threads import one_thread


def numbers():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_the_last_of_overlapping_limits_restores_the_number():
    with threadpool_limits(2, user_api="blas"):
        before = numbers()
        assert set(before) == {2}
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_thread())
        second.enter_context(one_thread())
        first.close()
        assert set(numbers()) == {1}
        second.close()
        assert numbers() == before


def test_silence_is_limited_to_one_thread():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with silent():
            warn("here")
            other = Thread(target=warn, args=("there",))
            other.start()
            other.join()
    assert [str(each.message) for each in seen] == ["there"]
