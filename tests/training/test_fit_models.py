"""One function trains every model; scores, early stopping, TensorBoard; failures and arguments."""

import sys
from unittest import mock

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from events import tags
from gpflow.likelihoods import Gaussian
from gpflow.models import SGPR, SVGP, BayesianModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from numpy.testing import assert_allclose, assert_equal
from quick import partly_slow
from refusals import refused, stopped
from small_models import (
    LABELS,
    MAKERS,
    WITH_DATA,
    WITH_SITES,
    X,
    Y,
    Z,
    data_for,
    held_out_for,
    kernel,
    of_minibatches,
    values,
)
from tensorflow.errors import InvalidArgumentError

from gpflow_pep import PEPR, TSVGP, PEPClassifier
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import fit
from gpflow_pep.training.history import HeldOut, History
from gpflow_pep.training.lbfgs import LBFGS
from gpflow_pep.training.objectives import Objective
from gpflow_pep.training.options import FitOptions

FEW = {
    True: {"max_iterations": 12},
    False: {"max_iterations": 120, "interval": 20, "batch_size": 20},
}


def full_objective(model, name):
    arguments = () if name in WITH_DATA else (data_for(name),)
    return model.maximum_log_likelihood_objective(*arguments)


@partly_slow("name", MAKERS, quick=["PEPR", "StreamingSGPR"])
def test_every_model_is_trained(as_new, name):
    """With default settings, the objective of all rows and the held-out density increase."""
    model = as_new(name)
    own = name in WITH_DATA
    # All rows as one block would be another objective: the mean over blocks is the model's.
    if name == "BTSVGP":
        blocks = Minibatches(len(X), 20, fixed=True).blocks

        def objective():
            return np.mean([model.maximum_log_likelihood_objective((X[b], Y[b])) for b in blocks])
    else:

        def objective():
            return full_objective(model, name)

    before = objective()
    density = HeldOut(model, held_out_for(name))()["nlpd"]
    result = fit(model, data_for(name), held_out=held_out_for(name), **FEW[own])
    assert objective() > before + 1.0
    assert result.status in ("limit", "converged")
    assert result.held_out["nlpd"][-1] < density
    assert len(result.objective) == len(result.held_out["nlpd"]) == len(result.recorded)
    assert (result.sites is not None) == (name in WITH_SITES)
    assert ("rmse" in result.held_out) == isinstance(model.likelihood, Gaussian)
    if own:
        assert_allclose(result.objective[-1], objective(), rtol=1e-9)
    else:
        assert len(result.objective) == 6 and result.iterations == 120


@pytest.mark.parametrize("name", ["TSGPR", "BTSGPR", "TSVGP", "BTSVGP", "StreamingSVGP"])
def test_bounds_have_an_elbo(as_new, name):
    """`elbo` exists, as in GPflow's SGPR and SVGP, and equals the objective."""
    model = as_new(name)
    rows = [] if hasattr(model, "data") else [data_for(name)]
    assert model.elbo(*rows) == model.maximum_log_likelihood_objective(*rows)


def test_natural_gradients_take_q_to_its_best():
    """
    Gaussian noise, all rows, a step of 1 and nothing else trained: one step is the optimum, that of
    SGPR.
    """
    model = of_minibatches(SVGP)
    for part in (model.kernel, model.likelihood, model.inducing_variable):
        gpflow.set_trainable(part, False)
    fit(model, (X, Y), natural_step=1.0, max_iterations=1)
    best = SGPR((X, Y), kernel(), Z, noise_variance=0.3)
    assert_allclose(
        full_objective(model, "SVGP"), best.maximum_log_likelihood_objective(), rtol=1e-6
    )


@pytest.mark.parametrize(("name", "natural_step"), [("TSVGP", None), ("ARPEP", 0.1)])
def test_adam_trains_q_where_natural_gradients_do_not_apply(as_new, name, natural_step):
    """A step of Adam moves each entry by its rate; a natural gradient would take q much further."""
    model = as_new(name)
    fit(model, data_for(name), natural_step=natural_step, max_iterations=1, learning_rate=1e-3)
    assert 5e-4 < np.abs(model.q_mu).max() < 1.1e-3


def test_many_rows_are_scored_in_parts(as_new):
    """Chunks of 4096 rows, which need not divide the number of rows, give the score of all rows."""
    model = as_new("PEPR")
    X_new = np.random.default_rng(1).uniform(-2.0, 2.0, (5000, 1))
    Y_new = np.sin(2.5 * X_new)
    held_out = HeldOut(model, (X_new, Y_new))
    mean, _ = model.predict_f(X_new)
    assert_allclose(held_out()["rmse"], np.sqrt(np.mean((mean - Y_new) ** 2)), rtol=1e-10)


# --- early stopping -------------------------------------------------------------------------------


def test_held_out_scores_stop_training_at_their_best(as_new):
    """
    Held-out rows of noise alone: the better the data are fitted, the worse they are; the best was
    at a record.
    """
    held_out = X, 3.0 * np.random.default_rng(0).normal(size=Y.shape)
    model = as_new("TSVGP")
    seen = []
    options = {"patience": 3, "interval": 5, "callback": lambda *_: seen.append(values(model))}
    result = fit(model, (X, Y), held_out=held_out, max_iterations=2000, **options)
    scores = result.held_out["nlpd"]
    best = int(np.argmin(scores))
    assert result.status == "stopped early"
    assert "held-out nlpd has not improved for 3 records" in result.reason
    assert len(scores) == best + 5 == len(seen) + 1 and result.iterations == 5 * len(seen) < 2000
    assert (result.recorded[-1], result.objective[-1]) == (
        result.recorded[best],
        result.objective[best],
    )
    assert scores[-1] == scores[best]
    assert_allclose(HeldOut(model, held_out)()["nlpd"], scores[best], rtol=1e-12)
    assert_equal(values(model), seen[best])


def test_scores_that_cannot_be_computed(as_new, monkeypatch):
    """The step before is the last good one; objective and scores end there."""
    found = {"nlpd": 3.0}, {"nlpd": 2.0}, InvalidArgumentError(None, None, "no prediction")
    score = mock.Mock(side_effect=found)
    monkeypatch.setattr(HeldOut, "__call__", score)
    model = as_new("TSVGP")
    with pytest.warns(UserWarning, match="restored: no prediction"):
        result = fit(model, (X, Y), held_out=(X, Y), interval=1, max_iterations=10)
    assert (result.status, result.iterations) == ("failed", 2)
    assert result.held_out == {"nlpd": (3.0, 2.0)} and len(result.objective) == 2


@pytest.mark.parametrize("finite", [False, True])
def test_nan_scores_count_as_worst(as_new, monkeypatch, finite):
    """NaN scores count as worst; if all scores are NaN, the final parameters stay."""
    scores = iter([3.0, 2.0, np.nan, 1.5, 1.0, 0.5, *[np.nan] * 100] if finite else [np.nan] * 100)
    monkeypatch.setattr(HeldOut, "__call__", lambda self: {"nlpd": next(scores)})
    model = as_new("TSVGP")
    seen = []
    options = {"patience": 3, "interval": 1, "callback": lambda *_: seen.append(values(model))}
    result = fit(model, (X, Y), held_out=(X, Y), max_iterations=50, **options)
    assert result.status == "stopped early"
    assert result.iterations == (9 if finite else 4)
    expected = seen[5] if finite else seen[-1]
    assert_equal(values(model), expected)


def test_the_objective_stops_training_without_held_out_rows(as_new):
    """
    A rate of 0 all but stops; the minibatches' objectives have no trend, and stop having a new best
    one.
    """
    model = as_new("TSVGP")
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    options = {"learning_rate": 1e-12, "batch_size": 20, "max_iterations": 500}
    result = fit(model, (X, Y), patience=2, interval=1, **options)
    assert result.status == "stopped early"
    assert "objective has not improved for 2 records" in result.reason
    assert int(np.argmax(result.objective)) == len(result.objective) - 3


def test_early_stopping_of_lbfgs(as_new):
    result = fit(as_new("PEPR"), held_out=(X, -Y), patience=2)
    assert result.status == "stopped early"
    # The last record has the best parameters again.
    assert int(np.argmin(result.held_out["nlpd"])) == len(result.objective) - 4


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), [("TSVGP", {}), ("PEPR", {"optimizer": "adam"})])
def test_nan_restores_the_last_good_parameters(as_new, name, options):
    model = as_new(name)

    def spoil(iteration, _):
        if iteration == 4:
            model.kernel.variance.unconstrained_variable.assign(np.nan)

    with pytest.warns(UserWarning, match="the last good parameters restored"):
        result = fit(
            model, data_for(name), interval=1, max_iterations=20, callback=spoil, **options
        )
    assert result.status == "failed" and "the last good parameters restored" in result.reason
    assert result.iterations == 3  # the fourth led there
    assert len(result.objective) == 3
    assert all(np.all(np.isfinite(value)) for value in values(model).values())
    assert np.isfinite(full_objective(model, name))


@partly_slow("name", ["TSVGP", "PEPClassifier"], 1)
def test_the_last_step_is_checked_too(as_new, name):
    """A single one that is much too long: there is no next evaluation to see it."""
    model = as_new(name)
    before = values(model)
    with pytest.warns(UserWarning, match="the last good parameters restored"):
        result = fit(model, data_for(name), optimizer="adam", learning_rate=1e12, max_iterations=1)
    assert (result.status, result.iterations) == ("failed", 0)
    assert_equal(values(model), before)


def test_a_natural_gradient_that_is_not_finite(as_new):
    """The error has the library's message, and q is unchanged."""
    model = as_new("SVGP")

    def spoil(iteration, _):
        if iteration == 3:
            model.q_sqrt.assign(1e-9 * np.eye(len(Z))[None])

    with pytest.warns(UserWarning, match="try a smaller natural_step"):
        result = fit(model, (X, Y), callback=spoil, interval=1, max_iterations=10)
    assert result.status == "failed"
    assert np.isfinite(full_objective(model, "SVGP"))


def test_raises_if_the_start_cannot_be_evaluated(as_new):
    """The error gives the reason, and the model is unchanged."""
    model = as_new("PEPR")
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    before = values(model)
    with stopped("Kuu"):
        fit(model)
    assert_equal(values(model), before)


# --- pictures -------------------------------------------------------------------------------------


@partly_slow(("name", "columns"), [("TSVGP", 2), ("PEPR", 1), ("PEPClassifier", 2), ("PEPR", 3)], 1)
def test_tensorboard(tmp_path, name, columns):
    inputs, Z_wide = (np.hstack([values] + [values[::-1]] * (columns - 1)) for values in (X, Z))
    options = {
        "held_out": (inputs, LABELS if name == "PEPClassifier" else Y),
        "tensorboard": tmp_path,
    }
    if name == "TSVGP":
        model = TSVGP(kernel(), Gaussian(), Z_wide, num_data=len(X))
        fit(model, (inputs, Y), max_iterations=20, interval=2, **options)
        steps = list(range(2, 21, 2))
    else:
        if name == "PEPR":
            model = PEPR((inputs, Y), kernel(), Z_wide)
        else:
            model = PEPClassifier((inputs, LABELS), kernel(), Probit(), Z_wide)
        result = fit(model, optimizer="adam", max_iterations=10, **options)
        steps = list(range(1, result.iterations + 1))
    found = tags(tmp_path)
    scalars = ["objective", "kernel.variance", "kernel.lengthscales", "held_out/nlpd"]
    scalars += [] if name == "PEPClassifier" else ["held_out/rmse", "likelihood.variance"]
    for tag in scalars:
        assert found[tag] == steps, tag
    assert found.get("predictions") == (None if columns == 3 else steps[9:])


# --- arguments ------------------------------------------------------------------------------------


UNUSABLE = {
    "max_iterations": 0,
    "tolerance": 0.0,
    "learning_rate": 0,
    "patience": 0,
    "interval": 0,
    "first_rows": 0,
    "n_restarts": 101,
    "train_inducing": 1,
    "callback": "print",
}


def test_bad_arguments_are_refused(as_new):
    for name, options, message in [
        ("PEPR", {"data": (X, Y)}, "data must be None: PEPR stores its data"),
        ("TSVGP", {"data": None}, "data must be given: TSVGP does not store data"),
        ("TSVGP", {"data": (X, Y[:-1])}, "data"),
        ("PEPR", {"batch_size": 10}, 'batch_size must be None with optimizer="lbfgs"'),
        (
            "PEPR",
            {"batch_size": 10, "optimizer": "adam"},
            "batch_size must be None, since PEPR needs all rows",
        ),
        ("TSVGP", {"batch_size": 61}, "batch_size must be at most the number of rows, 60, got 61"),
        (
            "PEPClassifier",
            {"batch_size": 61, "optimizer": "adam"},
            "batch_size must be at most the number of rows, 60, got 61",
        ),
        ("TSVGP", {"seed": -1}, "seed must be"),
        ("PEPR", {"held_out": (X,)}, "held_out: .*a pair"),
        ("PEPR", {"held_out": (X[:3], Y)}, "held_out: .*rows"),
        ("PEPR", {"held_out": (X, np.nan * Y)}, "held_out: .*finite"),
        ("BTSVGP", {"optimizer": "lbfgs"}, 'optimizer must be "adam" for BTSVGP'),
        ("TSVGP", {"natural_step": 1.5}, "natural_step must be"),
        (
            "PEPClassifier",
            {"optimizer": "newton"},
            """optimizer must be "lbfgs", "adam" or None, got 'newton': give optimizer="lbfgs".""",
        ),
        (
            "PEPClassifier",
            {"optimizer": tf.optimizers.Adam()},
            """got an object, Adam: give optimizer="adam".""",
        ),
        ("PEPClassifier", {"optimizer": "adam", "batch_size": 2.5}, "batch_size must be"),
        ("PEPClassifier", {"learning_rate": np.nan}, "learning_rate must be"),
        ("PEPR", {"n_restarts": 1, "optimizer": "adam"}, "n_restarts must be"),
        *(("PEPR", {name: value}, f"{name} must be") for name, value in UNUSABLE.items()),
        *(
            ("TSVGP", {"checkpoint_seconds": value}, "checkpoint_seconds must be a number of at")
            for value in [None, -1.0, np.nan, "10", [1.0]]
        ),
        (
            "PEPR",
            {"checkpoint": "nowhere/at/all.npz"},
            "checkpoint must be in a directory that exists",
        ),
    ]:
        model = as_new(name)
        before = values(model)
        data = options.pop("data") if "data" in options else data_for(name)
        with refused(message):
            fit(model, data, **options)
        assert_equal(values(model), before)


@pytest.mark.parametrize(
    ("num_data", "options"),
    [(None, {"batch_size": 20}), (59, {"batch_size": 20}), (59, {"optimizer": "lbfgs"})],
)
def test_models_of_minibatches_need_the_number_of_rows(num_data, options):
    model = TSVGP(kernel(), Gaussian(), Z, num_data=num_data)
    with refused(f"num_data of the model must be 60.*got {num_data}"):
        fit(model, (X, Y), **options)


def test_a_model_without_a_loss():
    with refused("model must be a gpflow_pep or GPflow model with training loss, got object"):
        fit(object())


def test_all_rows_of_a_minibatch_model():
    """L-BFGS, with num_data=None: nothing is estimated."""
    model = TSVGP(kernel(), Gaussian(0.3), Z)
    result = fit(model, (X, Y), optimizer="lbfgs", max_iterations=40)
    assert_allclose(result.objective[-1], full_objective(model, "TSVGP"), rtol=1e-9)
    assert result.objective[-1] > result.objective[0]


def test_a_search_is_limited(as_new, monkeypatch):
    """
    SciPy may use four evaluations per remaining iteration plus twenty, and stores fifty secants.
    Positive parameters change by factors of up to 10,000 from where the search starts, but the
    first may become smaller.
    """
    asked = []
    module = sys.modules["gpflow_pep.training.lbfgs"]
    minimize = module.minimize
    monkeypatch.setattr(
        module, "minimize", lambda *a, **k: asked.append((a[1], k)) or minimize(*a, **k)
    )
    assert fit(as_new("SGPR"), max_iterations=7, train_inducing=False).status == "limit"
    assert asked[-1][1]["options"] == {"maxiter": 7, "maxfun": 48, "maxcor": 50}
    # From each start.
    assert [options["options"]["maxiter"] for _, options in asked[:-1]] == [5] * 4
    for start, options in asked:
        assert len(start) == 3  # logarithms of two parameters of the kernel and of the noise
        assert_allclose(np.exp(options["bounds"].ub - start), 1e4, rtol=1e-12)
        assert_allclose(np.exp(options["bounds"].lb - start), [0.0, 1e-4, 1e-4], rtol=1e-12)


class Valley(BayesianModel, InternalDataTrainingLossMixin):
    """
    Rosenbrock's, in which a search takes 30 iterations or so; `height` at the first turn is about 4
    of it.
    """

    def __init__(self, height):
        super().__init__()
        self.x, self.height = gpflow.Parameter([-1.2, 1.0]), height

    def maximum_log_likelihood_objective(self):
        x, y = tf.unstack(self.x)
        return -self.height * (100.0 * tf.square(y - tf.square(x)) + tf.square(1.0 - x))


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([0.04] * 20, True),  # 0.8 of the tolerance, 1
        ([0.06] * 20, False),  # 1.2
        ([0.01] * 10 + [0.03] * 10, False),  # 0.1, then 0.3: gains grow threefold, as at a saddle
        ([0.0] * 10 + [0.02] * 10, True),  # they grow, but to less than a quarter of the tolerance
        ([0.03] * 10 + [0.01] * 10, True),
        ([0.07] * 15 + [0.004] * 5, True),  # the last 5 gained 0.02, less than a fortieth of 1
        ([0.07] * 15 + [0.006] * 5, False),
    ],
)
def test_flat_are_small_gains_that_do_not_grow(gains, expected):
    objective = Objective(Valley(1.0))
    history = History(options=FitOptions(tolerance=1.0), variables=objective.variables)
    search = LBFGS(objective, history, [objective.variables], 1)
    search._state.recent.extend(-np.cumsum([0.0, *gains]))
    assert bool(search._flatness()) == expected


def test_a_search_ends_where_the_objective_is_flat():
    """
    As soon as 20 iterations have gained less than 0.001 nats; where they gain more it goes on to
    the bottom.
    """
    flat, steep = (
        fit(Valley(height), max_iterations=200, tolerance=1e-3) for height in (2e-4, 2e-2)
    )
    assert flat.converged
    assert "the objective is flat: the last 20 iterations gained less than 0.001" in flat.reason
    gains = np.subtract(flat.objective[20:], flat.objective[:-20])
    assert flat.iterations == len(flat.objective)
    assert gains[-1] < 1e-3
    assert np.all(gains[:-1] >= 1e-3)
    # Near the bottom 5 iterations gain less than a fortieth: the bottom is at 0, and the search is
    # there.
    assert "the last 5 iterations gained less than 2.5e-05" in steep.reason
    assert steep.converged and steep.objective[-1] > -1e-6
    by_default = Valley(2e-4)
    by_default.num_data = 2
    assert fit(by_default, max_iterations=200).reason == flat.reason  # 5e-4 nats for each row


class Edge(BayesianModel, InternalDataTrainingLossMixin):
    """A paraboloid that ends before its lowest point: beyond a line the value is no number."""

    def __init__(self):
        super().__init__()
        self.x = gpflow.Parameter([0.0, 0.0])

    def maximum_log_likelihood_objective(self):
        value = -0.5 * tf.reduce_sum([81.9, 0.4] * tf.square(self.x - [-8.4, -0.2]))
        beyond = tf.reduce_sum([-0.3, -1.6] * self.x) > 1.62
        return tf.where(beyond, tf.constant(np.nan, value.dtype), value)


def test_the_edge_of_a_slope_is_no_optimum():
    """
    SciPy reports convergence: the edge cuts its steps short, so that they gain next to nothing.
    """
    with pytest.warns(UserWarning, match="not finite"):
        result = fit(Edge())
    assert result.status == "failed" and result.objective[-1] < -1.0


def test_a_variable_of_open_shape():
    """GPflow's VGP has such variables if its data are variables."""
    open_Z = gpflow.Parameter(Z, unconstrained_shape=[None, 1], constrained_shape=[None, 1])
    objectives = []
    for points in (open_Z, Z):
        inducing_variable = gpflow.inducing_variables.InducingPoints(points)
        model = SGPR((X, Y), kernel(), inducing_variable, noise_variance=0.3)
        objectives.append(fit(model, max_iterations=5).objective)
    assert open_Z.unconstrained_variable.shape[0] is None
    assert_allclose(*objectives, rtol=1e-9)


def test_no_bar_without_progress_or_standard_error(as_new, monkeypatch):
    """
    Even a disabled `tqdm` makes a lock between processes, a leak in the end of every process of a
    pool.
    """
    monkeypatch.setattr("gpflow_pep.training.fitting.tqdm", None)
    fit(as_new("PEPR"), max_iterations=2)
    monkeypatch.setattr(sys, "stderr", None)
    assert fit(as_new("PEPR"), max_iterations=2, progress=True).iterations == 2


def test_progress(as_new, capsys):
    fit(as_new("PEPR"), max_iterations=2, progress=True)
    shown = capsys.readouterr().err
    assert ("objective" in shown and "it/s" in shown) or "s/it" in shown
