"""
Predictions of one model in many threads: one at a time updates its sites; results are those of one
thread.
"""

import copy
import threading

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_near
from waves import signs

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Probit
from gpflow_pep.models.pep import lock_of

THREADS = 60
X, LABELS = signs(40, 5, frequency=3.0)


@pytest.fixture(scope="module")
def compiled():
    """A model, and the means that it predicts."""
    kernel = gpflow.kernels.SquaredExponential(2.0, 0.7)
    model = PEP((X, LABELS), kernel, Probit(), X[:8], alpha=0.7, tol=1e-8)
    return model, model.predict_f(X)[0].numpy()


class Watched:
    """A compiled step that counts how many threads are in it."""

    def __init__(self, step):
        self._step, self._count, self._guard = step.func, 0, threading.Lock()
        self.func = self
        self.most = 0

    def get_concrete_function(self):
        found = self._step.get_concrete_function()

        def run():
            with self._guard:
                self._count += 1
                self.most = max(self.most, self._count)
            try:
                return found()
            finally:
                with self._guard:
                    self._count -= 1

        return run


def in_threads(task):
    """
    Results of the task in each thread; all begin together, and an error in one is an error here.
    """
    start = threading.Barrier(THREADS)
    found = [None] * THREADS
    errors = []

    def run(number):
        try:
            start.wait()
            found[number] = task(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


USES = (
    lambda model: model.predict_f(X),
    lambda model: model.predict_y(X),
    lambda model: [model.predict_log_density((X, LABELS))],
    lambda model: model.posterior().predict_f(X),
    lambda model: [model.training_loss()],
    lambda model: [model.loo_log_predictive_density()],
)


def test_uses_in_many_threads(compiled, monkeypatch):
    """
    Half of the threads make the sites anew first; results differ within the tolerance of the sites.
    """
    model, _ = compiled
    expected = [[each.numpy() for each in use(model)] for use in USES]
    watched = Watched(model._converge_step)
    monkeypatch.setattr(model, "_eager_sweeps", 0)
    monkeypatch.setitem(model.__dict__, "_converge_step", watched)

    def task(number):
        if number % 2:
            with lock_of(model):
                model.reset_sites()
        return [each.numpy() for each in USES[number // 2 % len(USES)](model)]

    for number, found in enumerate(in_threads(task)):
        assert_all_near(found, expected[number // 2 % len(USES)], 1e-6)
    assert watched.most == 1
    assert model.sites_status.converged


def test_copies_have_a_lock_of_their_own(compiled):
    """Also of a model whose lock is held, which another thread could not be waiting for."""
    model, expected = compiled
    with lock_of(model):
        other = copy.deepcopy(model)
    assert lock_of(other) is not lock_of(model)
    assert lock_of(other) is lock_of(other)
    np.testing.assert_allclose(other.predict_f(X)[0], expected, rtol=0, atol=1e-6)
