"""
`fit(first_rows=...)` trains on growing random subsets of the rows, and ends as training on all
rows.
"""

import signal

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_near
from gpflow.kernels import Matern52
from gpflow.utilities import multiple_assign, read_values
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep import PEPR, TSVGP, PEPClassifier, fit
from gpflow_pep.training.objectives import Objective

N = 600
FIRST = 25
STAGES = [25, 250, 600]
FLAT = {"tolerance": 1e-6, "train_inducing": False}


def make(name="PEPR", rows=slice(None)):
    random = np.random.default_rng(0)
    X = random.uniform(-3.0, 3.0, [N, 2])
    F = np.sin(2.0 * X[:, :1]) + 0.3 * X[:, 1:]
    Y = F + 0.2 * random.normal(size=F.shape)
    Z = X[:8]
    if name == "PEPR":
        return PEPR((X[rows], Y[rows]), Matern52(), Z, noise_variance=0.1, chunk_size=64)
    labels = (Y > 0.0)[rows] * 1.0
    return PEPClassifier((X[rows], labels), Matern52(), inducing_variable=Z)


@pytest.fixture(scope="module")
def model():
    """A model that the tests share, so that it is compiled once."""
    return make()


@pytest.fixture(scope="module")
def optimum(model):
    """The objective at the end of a training on all rows."""
    multiple_assign(model, read_values(make()))
    return fit(model, **FLAT).objective[-1]


@pytest.fixture(autouse=True)
def _as_new(model):
    multiple_assign(model, read_values(make()))


class Recorder:
    """A callback that keeps the rows, the objective and its value by a new model of these rows."""

    def __init__(self, model, *, stop_in=None):
        self.model, self.stop_in = model, stop_in
        self.rows, self.objectives = [], []

    def __call__(self, iteration, objective):
        X = self.model.data[0].numpy()
        self.rows.append(X)
        self.objectives.append(objective)
        if self.stop_in == len(X):
            raise StopIteration

    @property
    def stages(self):
        return sorted({len(X) for X in self.rows})


def assert_of_all_rows(result, model):
    """The last objective is that of the model, which has all rows again."""
    assert_near(result.objective[-1], model.log_posterior_density(), 1e-6)


def rows_of(X):
    """Return the places of these rows among all rows."""
    everything, _ = all_rows()
    return [int(np.flatnonzero((everything == x).all(axis=1))[0]) for x in X]


def test_a_stage_has_the_objective_and_gradient_of_a_model_of_its_rows(model, monkeypatch):
    """Rows of a stage are among the next one's; equal seeds draw equal rows."""
    found = {}
    evaluate = Objective.evaluate

    def kept(self, step):
        loss, gradient = evaluate(self, step)
        X = model.data[0].numpy()
        found[len(X)] = (X, read_values(model), loss, gradient)
        return loss, gradient

    monkeypatch.setattr(Objective, "evaluate", kept)
    fit(model, first_rows=FIRST, seed=3, max_iterations=60)
    assert sorted(found) == STAGES
    first, second = (rows_of(found[number][0]) for number in (25, 250))
    assert set(first) < set(second)
    assert len(set(second)) == 250
    for X, values, loss, gradient in found.values():
        fresh = make(rows=rows_of(X))
        multiple_assign(fresh, values)
        expected, derivatives = loss_and_gradient(fresh)
        # Sums of at most 600 terms of order 1 to 100, rounded by 1e-16 each, and Kuu of condition
        # below 1e6.
        assert_allclose(loss, expected, rtol=1e-8)
        assert_all_close(gradient, derivatives, rtol=1e-6, atol=1e-6)

    again = Recorder(model, stop_in=25)
    fit(model, first_rows=FIRST, seed=3, callback=again)
    assert rows_of(again.rows[0]) == first


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_resumes_in_its_stage(model, optimum, tmp_path, stage):
    """L-BFGS restarts from its best parameters, and ends flat at the same optimum."""
    start = read_values(model)
    options = {**FLAT, "first_rows": FIRST, "checkpoint": tmp_path / "c.npz"}
    stopped = fit(model, callback=Recorder(model, stop_in=stage), **options)
    assert stopped.status == "stopped early"
    assert model.num_data == N
    # The last record is of all rows.
    assert_of_all_rows(stopped, model)
    multiple_assign(model, start)
    second = Recorder(model)
    result = fit(model, callback=second, **options)
    assert second.stages == [each for each in STAGES if each >= stage]
    assert result.iterations > stopped.iterations
    assert result.objective[: len(stopped.objective)] == stopped.objective
    assert_near(result.objective[-1], optimum, 1e-2)
    assert fit(model, **options).objective == result.objective  # a finished run
    with refused("different run: first_rows differs"):
        fit(model, **{**options, "first_rows": 30})


def test_limit_and_patience_end_with_the_objective_of_all_rows(model):
    result = fit(model, first_rows=FIRST, max_iterations=3)
    assert (result.status, result.iterations) == ("limit", 3)
    assert_of_all_rows(result, model)
    recorder = Recorder(model)
    result = fit(model, first_rows=FIRST, patience=1, callback=recorder)
    assert recorder.stages == STAGES  # it counts anew in each
    assert_of_all_rows(result, model)


@pytest.mark.parametrize("number", [2, 10])
def test_ctrl_c_in_the_first_stage_ends_with_the_objective_of_all_rows(model, monkeypatch, number):
    """Also while starts are compared: their losses are of fewer rows, and smaller."""
    evaluate = Objective.evaluate
    steps = []

    def pressed(self, step):
        steps.append(step)
        if len(steps) == number:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, step)

    monkeypatch.setattr(Objective, "evaluate", pressed)
    with pytest.warns(UserWarning, match="Interrupted"):
        result = fit(model, first_rows=FIRST)
    assert result.status == "interrupted"
    assert_allclose(result.objective[-1], model.log_posterior_density(), rtol=1e-9)


def test_few_rows_are_trained_at_once(model):
    recorder = Recorder(model)
    fit(model, first_rows=N // 2 + 1, max_iterations=2, callback=recorder)
    assert recorder.stages == [N]


def test_a_failure_gives_the_rows_back(model):
    def fails(iteration, objective):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fit(model, first_rows=FIRST, callback=fails)
    assert_array_equal(model.data[0], make().data[0])


def all_rows():
    return tuple(each.numpy() for each in make().data)


def per_row():
    return PEPR(all_rows(), Matern52(), np.eye(2), alpha=np.full(N, 0.5))


def sgpr():
    return gpflow.models.SGPR(all_rows(), Matern52(), np.eye(2))


def svgp():
    """A model whose default optimizer is Adam."""
    return TSVGP(Matern52(), gpflow.likelihoods.Gaussian(), np.eye(1), num_data=50)


def of_dataset():
    rows = tf.data.Dataset.from_tensor_slices(all_rows())
    return PEPR(rows.batch(50), Matern52(), np.eye(2))


@pytest.mark.parametrize(
    ("maker", "options", "found"),
    [
        (lambda: make("PEPClassifier"), {"optimizer": "adam"}, 'with optimizer="adam", got 25'),
        (
            svgp,
            {"data": (np.ones([50, 1]), np.ones([50, 1]))},
            "first_rows must be None for TSVGP, got 25: it needs a model of gpflow_pep that stores",
        ),
        (sgpr, {}, "first_rows must be None for SGPR, got 25: it needs a model of gpflow_pep"),
        (of_dataset, {}, "first_rows must be None for PEPR, got 25: it needs"),
        (
            per_row,
            {},
            "first_rows must be None for this PEPR, got 25: .* alpha was given per block",
        ),
    ],
)
def test_refusals(maker, options, found):
    model = maker()
    with refused(found):
        fit(model, **{"first_rows": FIRST, **options})
