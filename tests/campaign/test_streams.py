"""A small share of the campaign of streams, and that its verdicts can fail."""

import numpy as np
from numpy.testing import assert_array_equal
from quick import partly_slow

from campaign import streams
from campaign.streams import ORDERS, SUBJECTS, judge, run, stream_of


def test_streams_follow_from_the_seed():
    for seed in range(2 * len(SUBJECTS)):
        stream = stream_of(seed)
        again = stream_of(seed)
        assert_array_equal(stream.X, again.X)
        assert_array_equal(stream.y, again.y)
    drawn = [stream_of(seed) for seed in range(60)]
    assert {stream.subject for stream in drawn} == set(SUBJECTS)
    assert {stream.order for stream in drawn} == set(ORDERS)


@partly_slow("seed", [11, 0, 1, 14], 1)
def test_a_small_share(seed):
    assert run(stream_of(seed)).verdict == "right"


def test_verdicts_can_fail(monkeypatch):
    regression = stream_of(0)
    labels = stream_of(1)
    assert judge(regression, regression.F, regression.F).verdict == "right"
    assert judge(regression, 0.0 * regression.F, regression.F).verdict == "wrong mean"
    assert judge(regression, regression.F * np.nan, regression.F).verdict == "not finite"
    truth = labels.F > 0.0
    assert judge(labels, truth, truth).verdict == "right"
    assert judge(labels, ~truth, truth).verdict == "wrong labels"

    def failing(stream):
        raise ValueError("no stream")

    monkeypatch.setitem(streams.SUBJECTS, regression.subject, failing)
    outcome = run(regression)
    assert (outcome.verdict, outcome.message) == ("raised", "no stream")
