"""
Ctrl-C between any two assignments of a change leaves the model unchanged, and the change can be
repeated.
"""

import numpy as np
import pytest
from comparisons import assert_all_close
from gpflow.kernels import SquaredExponential
from numpy.testing import assert_allclose
from quick import partly_slow

from gpflow_pep import PEP, PEPR, StreamingPEP, StreamingSGPR, StreamingSVGP
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(8)
X = rng.uniform(0.0, 4.0, (12, 1))
Y = (np.sin(2.0 * X) > 0.0).astype(float)
Z = np.array([[0.5], [1.7], [3.2]])
MOVED = np.array([[0.6], [1.9], [2.4], [3.5]])
OTHER = X[:7] + 0.1, Y[:7]


@pytest.fixture
def interrupt(monkeypatch):
    """
    A function that lets the n-th assignment from now on be the last one before a KeyboardInterrupt.
    """
    kind = type(PEP((X, Y), SquaredExponential(), Probit(), Z).data[0])
    assign = kind.assign
    left = [0]

    def counted(variable, *args, **kwargs):
        result = assign(variable, *args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(kind, "assign", counted)
    return lambda number: left.__setitem__(0, number)


def in_every_place(interrupt, change, model, look):
    """
    Interrupts a change after each of its assignments; returns how many they are. In the end it is
    made.
    """
    before = look(model)
    number = 0
    while True:
        number += 1
        interrupt(number)
        try:
            change()
        except KeyboardInterrupt:
            after = look(model)
            assert before.keys() == after.keys()
            assert all(np.array_equal(before[name], after[name]) for name in before), number
            continue
        interrupt(0)
        return number - 1


DATA = {
    "PEP": lambda: PEP((X, Y), SquaredExponential(), Probit(), Z),
    "PEPR": lambda: PEPR((X, Y), SquaredExponential(), Z, blocks=3),
}


@pytest.mark.parametrize("name", DATA)
def test_interrupted_data_assignment_is_undone(interrupt, name):
    model = DATA[name]()
    model.training_loss()
    before = float(model.training_loss())

    def look(model):
        return dict(enumerate(np.asarray(variable) for variable in model._hidden_variables()))

    assert in_every_place(interrupt, lambda: setattr(model, "data", OTHER), model, look) >= 4
    assert np.array_equal(model.data[0], OTHER[0])
    model.data = (X, Y)
    assert_allclose(model.training_loss(), before, rtol=1e-9)


STREAMS = {
    "StreamingSGPR": lambda: StreamingSGPR((X, Y), SquaredExponential(), Z),
    "StreamingPEP": lambda: StreamingPEP((X, Y), SquaredExponential(), Probit(), Z),
    "StreamingSVGP": lambda: StreamingSVGP(SquaredExponential(), Probit(), Z, num_data=12),
}


@pytest.mark.parametrize(
    "points",
    [pytest.param(Z + 0.1, marks=pytest.mark.slow), MOVED],
    ids=["as many points", "more points"],
)
@partly_slow("name", STREAMS, 1)
def test_interrupted_stream_update_is_undone(interrupt, name, points):
    """Bit for bit; afterwards the stream is that of an update that was not interrupted."""
    model = STREAMS[name]()
    peer = STREAMS[name]()
    for each in (model, peer):
        each.predict_f(X)  # sites are where they converge
    count = in_every_place(
        interrupt, lambda: model.update(OTHER, points), model, lambda model: model.state.as_dict()
    )
    assert count >= 6
    peer.update(OTHER, points)
    assert_all_close(model.predict_f(X), peer.predict_f(X), rtol=1e-9, atol=1e-12)
