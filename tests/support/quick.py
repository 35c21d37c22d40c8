"""
Parameters of which CI runs a subset; `make test-slow` runs the remaining values. `tests/slow.txt`
lists tests that CI leaves out.
"""

import pytest


def some_slow(values, first=0, quick=()):
    """
    Mark parameters as slow, but for some.

    :param values: values of one parameter, or tuples of several.
    :param first: how many of them are not slow, from the first one on.
    :param quick: which others are not slow.
    """
    values = list(values)
    assert all(value in values for value in quick) and (first or quick) and first < len(values)
    kept = [*values[:first], *quick]
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[] if value in kept else pytest.mark.slow,
        )
        for value in values
    ]


def named_cases(cases, is_quick):
    """Mark recorded cases as slow, but for those of some names."""
    return [
        pytest.param(
            case, id=case["name"], marks=[] if is_quick(case["name"]) else pytest.mark.slow
        )
        for case in cases
    ]


def partly_slow(names, values, first=0, quick=(), **options):
    """Parametrize a test with values of which some are slow, as :func:`some_slow` marks them."""
    return pytest.mark.parametrize(names, some_slow(values, first, quick), **options)
