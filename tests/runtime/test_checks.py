"""Errors begin with the finding, without TensorFlow's account of the graph."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep import PEPR, PEPClassifier, fit
from gpflow_pep.runtime.checks import asserted, with_plain_errors

X = np.linspace(0.0, 1.0, 12)[:, None]
Y = np.sin(5.0 * X)


def broken(cls, Y, *likelihood):
    """A model whose Kuu is not positive definite."""
    model = cls((X, Y), gpflow.kernels.SquaredExponential(), *likelihood, inducing_variable=X[:3])
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    return model


def message_of(function):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        function()
    return error.value.message


def test_errors_of_compiled_functions_are_plain_where_the_library_calls_them():
    function = tf.function(lambda x: asserted(x, x > 0.0, "x must be positive, got", x))
    assert (
        message_of(lambda: with_plain_errors(function, tf.constant(-1.0)))
        == "x must be positive, got -1"
    )
    assert with_plain_errors(function, tf.constant(2.0)) == 2.0


def test_other_errors_are_left_as_they_are():
    division = tf.function(lambda x: 1 // x)
    expected = message_of(lambda: division(tf.constant(0)))
    assert (
        message_of(lambda: with_plain_errors(division, tf.constant(0))).split("\n")[0]
        == expected.split("\n")[0]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: broken(PEPR, Y).training_loss(),
        lambda: fit(broken(PEPR, Y)),
        lambda: broken(PEPClassifier, Y > 0.0).training_loss(),
        pytest.param(
            lambda: broken(PEPClassifier, Y > 0.0).update_sites(batch_size=5),
            marks=pytest.mark.slow,
        ),
        lambda: list(broken(PEPClassifier, Y > 0.0).minibatches(5)),
    ],
    ids=["loss", "fit", "sites", "sites in batches", "minibatches"],
)
def test_error_message_is_a_single_line(call):
    message = message_of(call)
    assert message.startswith(
        "Cholesky decomposition was not successful: Kuu has size 3 x 3, 9 of its entries"
    )
    assert "\n" not in message


def test_a_function_of_the_user_lists_the_files_of_the_user_only():
    """
    TensorFlow's account of a graph lists where the operation was made: here, this file and those of
    pytest.
    """
    message = message_of(tf.function(broken(PEPR, Y).training_loss))
    files = [line for line in message.splitlines() if line.lstrip().startswith("File")]
    assert any(__file__ in line for line in files)
    assert not any(
        "gpflow" in line.split("site-packages")[-1] for line in files if "site-packages" in line
    )
    assert not any("gpflow_pep/models" in line or "autograph" in line for line in files)
