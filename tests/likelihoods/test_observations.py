"""Observations accepted by each likelihood, alone and in models."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization, Matern32, SquaredExponential
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.models import SVGP
from refusals import refused, stopped

from gpflow_pep import APEP, ARPEP, PEP, RPAPEP, StreamingSVGP
from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.likelihoods.observations import check_observations
from gpflow_pep.training import fit

X = np.linspace(0.0, 1.0, 4)[:, None]


def column(*values):
    return np.array(values, dtype=float)[:, None]


def ordinal():
    return Ordinal(np.array([-0.5, 0.5]))


ACCEPTED = [
    (Probit, [0, 1, 1, 0]),
    (lambda: Probit(labels=(-1, 1)), [-1, 1, 1, -1]),
    (Poisson, [0, 1, 7, 1e6]),
    (Gamma, [1e-300, 2.5, 7, 1]),
    (Exponential, [0.1, 2.5, 7, 1]),
    (Beta, [1e-10, 0.5, 0.3, 1 - 1e-10]),
    (ordinal, [0, 1, 2, 0]),
    (Gaussian, [-1.5, 0, 1e10, 3]),
    (StudentT, [-1.5, 0, 1e10, 3]),
]

REFUSED = [
    (Probit, [0, 0.5, 1, 0.5], "labels 0 and 1", "0.5 in row 1 (2 such values)"),
    (Probit, [1, 2, 1, 2], "labels=(0, 1) or (-1, 1)", "2 in row 1"),
    (lambda: Probit(labels=(-1, 1)), [1, 0, 1, 0], "labels -1 and 1", "0 in row 1"),
    (Logit, [0, 1, 1, -1], "labels 0 and 1", "-1 in row 3"),
    (
        Bernoulli,
        [-1, 1, 1, -1],
        "gpflow_pep.likelihoods.Probit or Logit with",
        "-1 in row 0 (2 such values)",
    ),
    (lambda: Softmax(2), [0, 1, 1, 2], "the labels 0 and 1 for Softmax", "2 in row 3"),
    (Poisson, [0, 1, 1, 0.5], "counts 0, 1, 2", "0.5 in row 3"),
    (Poisson, [0, 1, -1, 2], "counts 0, 1, 2", "-1 in row 2"),
    (Gamma, [0, 1, 1, 2], "positive", "0 in row 0"),
    (Exponential, [1, -2, 1, 2], "positive", "-2 in row 1"),
    (Beta, [0.5, 1, 0.2, 0], "between 0 and 1", "1 in row 1 (2 such values)"),
    (ordinal, [0, 1, 3, 2], "from 0 to 2", "3 in row 2"),
    (ordinal, [0, 1, 1.5, 2], "from 0 to 2", "1.5 in row 2"),
]


def test_accepts_valid_observations():
    for likelihood, values in ACCEPTED:
        check_observations(likelihood(), column(*values))
        kernel = SquaredExponential()
        model = PEP((X, column(*values)), kernel, likelihood(), X[:2])
        np.testing.assert_array_equal(model.data[1], column(*values))


def test_rejects_invalid_observations():
    for likelihood, values, what, which in REFUSED:
        with refused(r"data\[1\] \(Y\) must hold") as caught:
            check_observations(likelihood(), column(*values))
        for part in (what, which, type(likelihood()).__name__):
            assert part in str(caught.value)
        with refused(r"data\[1\] \(Y\) must hold") as at_the_door:
            PEP((X, column(*values)), SquaredExponential(), likelihood(), X[:2])
        assert str(at_the_door.value) == str(caught.value)


def test_error_names_first_invalid_value():
    """The error reports the first invalid value in row order and the number of invalid values."""
    Y = np.array([[0, 1], [1, 0], [1, 3], [2, 3]], dtype=float)
    with refused(r"got 3 in row 2 \(3 such values\)"):
        check_observations(Probit(), Y)
    check_observations(Probit(), np.minimum(Y, 1.0))


def test_switched_checks_last_column():
    """The last column is the index of the likelihood."""
    likelihood = SwitchedLikelihood([Gaussian(), StudentT()])
    check_observations(likelihood, np.array([[0.3, 0], [-7.0, 1]]))
    for wrong in (2.0, -1.0, 0.5):
        with refused(f"last column whole numbers from 0 to 1.*got {wrong:g} in row 1"):
            check_observations(likelihood, np.array([[0.3, 0], [-7.0, wrong]]))


# --- wherever Y is given --------------------------------------------------------------------------


def model(kind):
    """With one latent function."""
    kernel = SquaredExponential()
    Z = X[:2]
    if kind is PEP:
        return PEP((X, column(0, 1, 1, 0)), kernel, Probit(), Z)
    return kind(kernel, Probit(), Z, num_data=4)


BAD = {
    "two columns": (np.zeros((4, 2)), "a column for each of 1 latent functions, got 2 columns"),
    "labels": (column(1, 2, 2, 1), "must hold the labels 0 and 1 for Probit, got 2 in row 1"),
    "nan": (column(0, np.nan, 1, 1), "must be finite.* row 1"),
    "strings": (
        column(0, 1, 1, 0).astype(str),
        "must hold real numbers, got an array of dtype <U32",
    ),
    "none": (np.full((4, 1), None), r"must hold real numbers, got None \(4 such values\)"),
}


@pytest.mark.parametrize("kind", [PEP, APEP, ARPEP, RPAPEP, StreamingSVGP])
def test_every_entry_point_checks_observations(kind):
    """Scores, objectives, training and held-out rows use the same check."""
    made = model(kind)
    good = column(0, 1, 1, 0)
    external = kind is not PEP
    calls = [
        lambda Y: made.predict_log_density((X, Y)),
        lambda Y: fit(made, (X, good) if external else None, held_out=(X, Y), max_iterations=1),
    ]
    if external:
        calls += [
            lambda Y: made.maximum_log_likelihood_objective((X, Y)),
            lambda Y: made.training_loss((X, Y)),
            lambda Y: fit(made, (X, Y), max_iterations=1),
        ]
    for Y, message in BAD.values():
        for call in calls:
            with refused(r"data\[1\] \(Y\) " + (message if "must" in message else ".*" + message)):
                call(Y)


@pytest.mark.parametrize("bad", ["labels", "nan"])
def test_compiled_objective_checks_observations(bad):
    made, (Y, _) = model(APEP), BAD[bad]
    compiled = tf.function(
        made.training_loss, input_signature=[(tf.TensorSpec([None, 1], tf.float64),) * 2]
    )
    assert np.isfinite(compiled((X, column(0, 1, 1, 0))))
    with stopped(r"data\[1\] \(Y\)"):
        compiled((X, Y))


def test_checks_held_out_rows_of_gpflow_models():
    """
    A single column of labels is not broadcast against several latent functions, nor the reverse.
    """
    kernel = SquaredExponential()
    for C, columns in ((1, 2), (2, 1)):
        made = SVGP(kernel, Gaussian(), X[:2], num_latent_gps=C, num_data=4)
        Y = np.zeros((4, C))
        with refused(f"a column for each of {C} latent functions, got {columns}"):
            fit(made, (X, Y), held_out=(X, np.zeros((4, columns))), max_iterations=1)
        with refused(f"a column for each of {C} latent functions, got {columns}"):
            fit(made, (X, np.zeros((4, columns))), max_iterations=1)


def test_mixed_outputs_must_be_as_many_as_mixing_rows():
    """Three outputs, mixed of two latent functions by a model of GPflow."""
    kernel = LinearCoregionalization([SquaredExponential(), Matern32()], W=np.ones((3, 2)))
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X[:2])
    )
    mixed = SVGP(kernel, Gaussian(), points, num_latent_gps=2, num_data=4)
    with refused("a column for each of 3 latent functions, got 2"):
        fit(mixed, (X, np.zeros((4, 2))), max_iterations=1)


def test_predict_log_density_accepts_batch_dimensions():
    """Values are checked and computed for any leading dimensions."""
    made = model(PEP)
    Y = np.broadcast_to(column(0, 1, 1, 0), [2, 3, 4, 1])
    found = made.predict_log_density((np.broadcast_to(X, [2, 3, 4, 1]), Y))
    expected = made.predict_log_density((X, column(0, 1, 1, 0)))
    np.testing.assert_allclose(found, np.broadcast_to(expected, [2, 3, 4]), rtol=1e-12)
