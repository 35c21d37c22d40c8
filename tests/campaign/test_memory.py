"""The memory campaign counts resident memory."""

import pytest

from campaign.memory import measure

_GRAPHS = 10.0  # MB that a training left behind before graphs went with their models


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PEPR"])
def test_memory_does_not_grow(kind):
    resident = measure(kind, 8)
    assert list(resident) == list(range(1, 9))
    assert 0.0 < resident[8] < resident[4] + 4 * 0.5 * _GRAPHS
