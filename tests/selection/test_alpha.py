"""Selection of the power: scores against direct computation, known answers, invalid arguments."""

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.utilities import set_trainable
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from waves import line, wave

from gpflow_pep import APEP, PEPR, TSVGP, select_alpha, weak_priors
from gpflow_pep.training import fit

N = 40
X, Y = wave(N, 5, frequency=3.0)
Z = line(-1.8, 1.8, 4)


def make(data, alpha):
    kernel = SquaredExponential(1.0, lengthscales=0.5)
    return PEPR(data, kernel, Z, alpha=alpha, noise_variance=0.05)


KERNEL = SquaredExponential()


def untrained(*_):
    """Keep the hyperparameters."""


def selected(alphas, make=make, **options):
    return select_alpha(make, (X, Y), alphas, train=untrained, **options)


def test_a_training_that_changes_the_model_does_not_affect_others():
    """Flags and priors belong to the models of one selection, which are kept apart."""

    def free(model):
        return fit(model, max_iterations=3)

    def changing(model):
        set_trainable(model.kernel.variance, False)
        weak_priors(model)
        fit(model, max_iterations=3)
        return model

    expected = select_alpha(make, (X, Y), [0.0, 1.0], train=free)
    changed = select_alpha(make, (X, Y), [0.0, 1.0], train=changing)
    found = select_alpha(make, (X, Y), [0.0, 1.0], train=free)
    assert_array_equal(found.densities, expected.densities)
    models = [results[0] for results in changed.trainings]
    assert [model.alpha for model in models] == [0.0, 1.0]
    for model in models:
        assert_array_equal(model.data[0], X)
        assert model.kernel.lengthscales.prior is not None
        assert not model.kernel.variance.trainable


def test_scores_and_errors():
    """
    Means over rows and standard errors of leave-one-out densities, and of paired differences from
    the best.
    """
    found = selected([0.0, 0.5, 1.0])
    assert_array_equal(found.alphas, [0.0, 0.5, 1.0])
    assert found.densities.shape == (3, N)
    model = make((X, Y), 1.0)
    assert_allclose(found.densities[2], model.loo_log_predictive_density(), rtol=1e-9)
    best = int(np.argmax(found.densities.mean(axis=1)))
    assert found.alpha == [0.0, 0.5, 1.0][best]
    rest = found.densities - found.densities[best]
    for values, means, errors in (
        (found.densities, found.scores, found.errors),
        (rest, found.differences, found.difference_errors),
    ):
        assert_allclose(means, values.mean(axis=1), rtol=1e-10, atol=1e-15)
        assert_allclose(errors, values.std(axis=1, ddof=1) / np.sqrt(N), rtol=1e-10)
    assert found.differences.max() == found.differences[best] == 0.0
    assert found.alpha in found.within_two_standard_errors
    near = found.differences >= -2.0 * found.difference_errors
    assert_array_equal(found.within_two_standard_errors, found.alphas[near])
    shown = repr(found)
    assert shown.startswith(f"AlphaSelection(alpha={found.alpha:g}; 0: ") and len(shown) < 120
    assert f"0.5: {found.scores[1]:.4f} ± {found.errors[1]:.4f}" in shown


def test_too_few_inducing_points_need_a_power():
    """
    Four points for six bends: the bound at alpha = 0 calls the rest noise; from powers' densities
    it shows.
    """
    found = select_alpha(make, (X, Y), [0.0, 0.5])
    assert found.alpha > 0.0
    assert 0.0 not in found.within_two_standard_errors


def test_folds_are_predicted_without_their_rows(capsys):
    """The model trained without a fold predicts its rows; the seed determines the folds."""
    seen = []

    def make_and_note(data, alpha):
        seen.append(data)
        return make(data, alpha)

    found = selected([0.5], make_and_note, folds=3)
    assert [len(data[0]) for data in seen] == [26, 27, 27]
    predicted = 0
    for data in seen:
        part = ~np.isin(X[:, 0], data[0][:, 0])
        predicted += part.sum()
        density = make(data, 0.5).predict_log_density((X[part], Y[part]))
        assert_allclose(found.densities[0, part], density, rtol=1e-12)
    assert predicted == N
    again = selected([0.5], folds=3, progress=True)
    shown = capsys.readouterr().err
    assert "alpha 0.5" in shown and "3/3" in shown
    assert_array_equal(again.densities, found.densities)
    assert np.abs(selected([0.5], folds=3, seed=1).densities - found.densities).max() > 1e-3


def test_models_are_trained():
    """`train` is called; trained hyperparameters predict better than initial ones."""
    trained = select_alpha(make, (X, Y), [0.5], train=lambda model: fit(model, max_iterations=20))
    start = selected([0.5])
    assert trained.scores[0] > start.scores[0] + 0.1
    assert trained.trainings[0][0].iterations <= 20 and start.trainings == ((None,),)


def test_models_of_minibatches():
    """
    Minibatch models have no leave-one-out densities, but can be refitted; `train` receives the
    rows.
    """

    def tied(data, alpha):
        return APEP(SquaredExponential(), Gaussian(0.1), Z, alpha=alpha, num_data=len(data[0]))

    rows = []
    train = lambda model, data: rows.append(len(data[0])) or fit(model, data, max_iterations=30)  # noqa: E731
    found = select_alpha(tied, (X, Y), [0.5], folds=2, train=train)
    assert rows == [20, 20] and np.all(np.isfinite(found.densities))


class Told:
    """A model whose densities are given."""

    data = None

    def __init__(self, densities):
        self._densities = densities

    def loo_log_predictive_density(self):
        return self._densities


def test_densities_that_are_infinite_or_no_numbers():
    """
    A row of probability 0 excludes a power; rows of probability 0 under both powers do not differ.
    """
    rows = {
        0.0: np.array([-np.inf, 1.0, *np.zeros(N - 2)]),
        1.0: np.array([-np.inf, 0.0, *np.zeros(N - 2)]),
    }
    rows[0.5] = np.zeros(N)
    with np.errstate(invalid="ignore"):  # of the standard errors
        found = selected([0.0, 0.5, 1.0], lambda data, alpha: Told(rows[alpha]))
    assert found.alpha == 0.5 and found.within_two_standard_errors.tolist() == [0.5]
    rows[0.5] = np.full(N, np.nan)
    with pytest.raises(
        FloatingPointError, match=r"the log densities of 40 rows are NaN at alpha = 0\.5"
    ):
        selected([0.0, 0.5], lambda data, alpha: Told(rows[alpha]))


def test_bad_arguments_are_refused():
    for options, message in [
        ({"data": (X[:1], Y[:1])}, "data must have at least two rows"),
        ({"alphas": []}, "alphas must be different powers"),
        ({"alphas": [0.5, 0.5]}, "alphas must be different powers"),
        ({"alphas": [0.5, 1.5]}, "alpha must be"),
        ({"folds": 1}, "folds must be a whole number from 2 to 40, got 1"),
        ({"folds": 41}, "folds must be a whole number from 2"),
        ({"data": (X, Y[:-1])}, "data"),
        (
            {"make": lambda data, alpha: make(data, 0.5)},
            r"make\(data, 0\) returned a model with alpha = 0\.5\.",
        ),
        (
            {"make": lambda data, alpha: PEPR(data, KERNEL, Z, alpha=alpha)},
            "make must build a new kernel, .* got a PEPR that shares 2 trainable parameters with "
            "the previous",
        ),
        (
            {"make": lambda data, alpha: TSVGP(SquaredExponential(), Gaussian(), Z)},
            "make must return a model with loo_log_predictive_density, got TSVGP",
        ),
    ]:
        arguments = {"make": make, "data": (X, Y), "train": untrained, **options}
        with refused(message):
            select_alpha(**arguments)


def test_one_model_for_all_powers():
    """A `make` that changes an existing model; alpha may be given per row."""
    model = make((X, Y), np.zeros(N))

    def change(data, alpha):
        model.alpha = np.where(np.arange(N) < 20, alpha, 0.25)
        return model

    assert abs(selected([0.0, 1.0], change).differences).max() > 1e-4


def test_a_make_that_ignores_its_data_is_refused():
    """It would score rows that it has seen."""

    def make(data, alpha):
        return PEPR((X, Y), Matern52(), X[:5], alpha=alpha)

    with refused(r"^make must use the data it is given, got a PEPR of other data"):
        select_alpha(make, (X, Y), [0.5], folds=2)


def test_a_training_of_another_package_has_variables_of_known_shape():
    """Keras creates its own variables of these shapes."""
    shapes = []

    def train(model):
        optimizer = tf.keras.optimizers.Adam(0.01)
        _, gradient = loss_and_gradient(model)
        variables = model.trainable_variables
        shapes.extend(each.shape for each in variables)
        optimizer.apply_gradients(zip(gradient, variables, strict=True))

    select_alpha(make, (X, Y), [0.0, 0.5], train=train)
    assert all(shape.is_fully_defined() for shape in shapes)
