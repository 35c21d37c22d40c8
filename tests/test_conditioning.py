"""
Objectives and derivatives where Kuu is ill-conditioned, against a dense evaluation with 50 digits.

The reference takes the doubles that the model holds (inputs, parameters, jitter) as exact numbers.
So it knows nothing of the rounding of Kuu itself: entries of order one rounded to eps = 2e-16 move
D = Kff - Qff by eps |Kuu^-1 Kuf|^2, and the objective by that over the noise variance. Where the
weights Kuu^-1 Kuf are of order one, as for smooth functions and at a jitter above eps, this is
2e-16 N / 2e-6 = 2e-9 at the smallest noise: 1e-6 is asked for. Beyond, without jitter at a
condition number of 1e16, the required accuracy is the effect of a change of Kuu by eps.
"""

import itertools
import re
import types
from functools import partial

import gpflow
import mpmath
import numpy as np
import pytest
from campaign.reference import collapsed, squared_exponential
from configuration import configured
from gpflow.kernels import SquaredExponential
from marks import either_way
from model_values import log_gradients, loss_and_gradient
from numpy.testing import assert_allclose
from own_kernels import ExpandedSquare
from products import preferring_products
from quick import partly_slow
from refusals import stopped
from tensorflow.errors import InvalidArgumentError
from waves import line

from gpflow_pep import BTSGPR, PEPR, TSGPR, fit

N = 20
M = 8
BLOCK = 5

INDUCING = {
    "spread": np.linspace(-1.5, 1.5, M),
    "clustered": np.concatenate([0.2 + 1e-3 * np.arange(5), [-1.0, -0.999, 1.2]]),
    "duplicated": np.array([-1.0, -1.0, 0.1, 0.1, 0.1, 0.9, 0.9, 1.4]),
    "nearly duplicated": np.array([-1.0, -1.0 + 1e-6, 0.1, 0.1 + 1e-6, 0.3, 0.9, 0.9 + 1e-7, 1.4]),
}
LENGTHSCALES = {"spread": 0.5, "long lengthscale": 5.0}
FAR = 2.0**30  # of clusters; a lengthscale is 1
MODELS = {
    "PEPR 0": partial(PEPR, alpha=0.0),
    "PEPR 0.5": partial(PEPR, alpha=0.5),
    "PEPR 1": partial(PEPR, alpha=1.0),
    "TSGPR": TSGPR,
    "BTSGPR": partial(BTSGPR, blocks=BLOCK),
}


def make_case(kind, noise):
    """Inputs, outputs with noise of their variance, Z, lengthscale."""
    rng = np.random.default_rng(4)
    X = np.sort(rng.uniform(-2.0, 2.0, size=(N, 1)), axis=0)
    Y = np.sin(1.5 * X) + np.sqrt(noise) * rng.normal(size=(N, 1))
    Z = INDUCING.get(kind, INDUCING["spread"])[:, None]
    if kind == "far clusters":
        X = X + np.where(np.arange(N) < N // 2, 0.0, FAR)[:, None]
        Z = Z + np.where(np.arange(M) < M // 2, 0.0, FAR)[:, None]
    return types.SimpleNamespace(
        X=X, Y=Y, Z=Z, lengthscale=LENGTHSCALES.get(kind, 1.0), noise=noise
    )


def make_model(name, case, **options):
    kernel = SquaredExponential(variance=1.3, lengthscales=case.lengthscale)
    return MODELS[name]((case.X, case.Y), kernel, case.Z, noise_variance=case.noise, **options)


# --- 50 digits ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


@pytest.fixture(params=[False, True], ids=["by solves", "by products"])
def any_device(request):
    """Solve triangular systems as on CPUs, and multiply by inverses as on GPUs."""
    with preferring_products(request.param):
        yield


def exactly(values):
    return [mpmath.mpf(float(value)) for value in np.reshape(values, -1)]


def objective(name, theta, case, jitter, rounding=None):
    """
    The objectives of PEPR and TSGPR; theta = variance, lengthscale, noise, Z...; `rounding` is
    added to Kuu.
    """
    variance, lengthscale, noise, *Z = theta
    size = {"TSGPR": 1, "BTSGPR": BLOCK}.get(name)
    found = collapsed(
        [[x] for x in exactly(case.X)],
        exactly(case.Y),
        [[z] for z in Z],
        squared_exponential(variance, lengthscale),
        alpha={"PEPR 0.5": 0.5, "PEPR 1": 1.0}.get(name, 0.0),
        noise=noise,
        jitter=jitter,
        blocks=[range(start, start + size) for start in range(0, N, size)] if size else [],
        rounding=rounding,
    )
    return mpmath.fsum(found.terms)


def parameters(model):
    return [
        model.kernel.variance,
        model.kernel.lengthscales,
        model.likelihood.variance,
        model.inducing_variable.Z,
    ]


def theta_of(model):
    return [value for parameter in parameters(model) for value in exactly(parameter)]


def exact_objective(name, model, case, jitter):
    return float(objective(name, theta_of(model), case, jitter))


def effect_of_rounding(name, model, case, jitter):
    """
    How far the exact objective moves when entries of Kuu are changed by eps of themselves, as
    storing them may.
    """
    changes = np.random.default_rng(0).normal(size=(3, M, M)) * np.finfo(np.float64).eps * 1.3
    values = []
    for change in changes:
        rounding = np.tril(change) + np.tril(change, -1).T
        try:
            value = objective(name, theta_of(model), case, jitter, rounding)
        except ValueError:  # no longer positive definite: not a digit is left
            return np.inf
        values.append(float(value))
    return max(abs(value - exact_objective(name, model, case, jitter)) for value in values)


def exact_gradient(name, model, case, jitter):
    """Central differences with h = 1e-15 and 50 digits: 20 are right."""
    theta = theta_of(model)
    step = mpmath.mpf("1e-15")
    gradient = []
    for place in range(len(theta)):
        ends = []
        for change in (step, -step):
            moved = list(theta)
            moved[place] += change
            ends.append(objective(name, moved, case, jitter))
        gradient.append(float((ends[0] - ends[1]) / (2 * step)))
    return np.array(gradient)


def model_gradient(model):
    """In the constrained parameters: of the positive ones, derivatives in logarithms by values."""
    _, gradients = log_gradients(model)
    gradient = np.concatenate([np.ravel(part) for part in gradients.values()])
    gradient[:3] /= [parameter.numpy() for parameter in parameters(model)[:3]]
    return gradient


def condition_number(model, jitter):
    K = model.kernel(model.inducing_variable.Z).numpy() + jitter * np.eye(M)
    eigenvalues = np.linalg.eigvalsh(K)
    return eigenvalues[-1] / abs(eigenvalues[0])


def objective_or_message(model):
    try:
        return float(model.maximum_log_likelihood_objective())
    except InvalidArgumentError as error:
        return str(error)


# --- tests ----------------------------------------------------------------------------------------


@partly_slow("noise", [2e-6, 1.0], 1)
@partly_slow(
    ("kind", "jitter"),
    itertools.product([*INDUCING, "long lengthscale", "far clusters"], [1e-6, 1e-8, 0.0]),
    quick=[
        ("clustered", 1e-6),
        ("far clusters", 1e-6),
        ("duplicated", 0.0),
        ("nearly duplicated", 1e-8),
        ("long lengthscale", 1e-8),
    ],
)
def test_objectives_are_right_or_an_error(kind, jitter, noise, any_device):
    case = make_case(kind, noise)
    with configured(jitter=jitter):
        for name in MODELS:
            model = make_model(name, case)
            value = objective_or_message(model)
            if isinstance(value, str):
                assert "Kuu" in value or "jitter" in value
                # Not for a matrix that Cholesky must be able to factorize: M eps cond < 1 with room
                # to spare.
                assert condition_number(model, jitter) > 1e13
                continue
            exact = exact_objective(name, model, case, jitter)
            if value != pytest.approx(exact, rel=1e-6, abs=1e-6):
                assert abs(value - exact) <= 10.0 * effect_of_rounding(name, model, case, jitter), (
                    name
                )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("kind", "jitter", "decades"),
    [("duplicated", 1e-9, 10), ("far clusters", 1e-6, 6), ("long lengthscale", 1e-7, 8)],
)
def test_derivatives_are_right(name, kind, jitter, decades, any_device):
    """All derivatives to 1e-7 of the largest, up to a condition number of 1e10."""
    case = make_case(kind, 1e-2)
    with configured(jitter=jitter):
        model = make_model(name, case)
        assert abs(np.log10(condition_number(model, jitter)) - decades) < 1.0
        exact = exact_gradient(name, model, case, jitter)
        assert np.abs(model_gradient(model) - exact).max() <= 1e-7 * np.abs(exact).max()


@pytest.mark.parametrize("kind", ["clustered", "long lengthscale"])
def test_little_noise_leaves_the_derivatives_right(kind, any_device):
    """
    A small noise magnifies rounding errors in products with Kuu^-1: by one product the adjoint in
    chunks errs by 2e-8 and 2e-6 here with the least jitter, by triangular solves and a product by
    2e-10.
    """
    case = make_case(kind, 1e-4)
    with configured(jitter=1e-7):
        model = make_model("PEPR 0", case)
        model.single_chunk = False
        exact = exact_gradient("PEPR 0", model, case, 1e-7)
        assert np.abs(model_gradient(model) - exact).max() <= 1e-8 * np.abs(exact).max()


def test_derivatives_that_nearly_cancel(any_device):
    """
    Those in inducing points next to each other, which differ by factors of 300, against central
    differences of the objective in 140 bits. A product with L^-T before terms cancel left 8e-4 of
    the smallest.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = np.sin(2.0 * X) + 0.2 * rng.normal(size=(300, 1))
    Z = line(-3.0, 3.0, 40)
    options = {"alpha": 0.0, "noise_variance": 1e-4, "chunk_size": 50}
    model = PEPR((X, Y), SquaredExponential(), Z, **options)
    with configured(jitter=1e-6):
        loss, (in_Z,) = loss_and_gradient(
            model, variables=model.inducing_variable.trainable_variables
        )
    assert_allclose(loss, 52486.59061429405, rtol=1e-11)
    expected = [49.23074002045574, -7.295118285522868, 0.1543500217260232, 6.77963787199889]
    assert_allclose(in_Z.numpy()[[0, 10, 20, 33], 0], expected, rtol=5e-5)


@pytest.mark.parametrize("max_jitter", [1e-6, 1e-3])
def test_growing_jitter_is_the_jitter_it_says(max_jitter, capfd):
    """Duplicates without jitter: the objective is that of the jitter reported on standard error."""
    case = make_case("duplicated", 1e-2)
    with configured(jitter=0.0):
        model = make_model("PEPR 0.5", case, max_jitter=max_jitter)
        value = model.maximum_log_likelihood_objective()
    message = capfd.readouterr().err
    reported = float(re.search(r"jitter raised from \S+ to (\S+)", message).group(1))
    assert 0.0 < reported <= max_jitter
    # Entries rounded to eps beside a jitter of some 1e-15 leave it uncertain, but hardly what u
    # says about f.
    assert_allclose(value, exact_objective("PEPR 0.5", model, case, reported), rtol=1e-6)


@pytest.mark.parametrize(("variance", "is_printed"), [(4.0**-20, True), (1.0, False)])
def test_a_raised_jitter_is_in_the_result(variance, is_printed, capfd):
    """
    Two equal points without jitter, whose second pivot is exactly 0 (the root of the variance is),
    need a jitter of eps, 2e-16: more than 1e-5 of a variance of 1e-12, and less of one of 1.
    """
    X = line(0.0, 1.0, 9)
    with configured(jitter=0.0):
        kernel = SquaredExponential(variance)
        gpflow.set_trainable(kernel, False)
        model = PEPR((X, np.sin(X)), kernel, np.zeros((2, 1)), max_jitter=1e-3)
        result = fit(model, train_inducing=False, max_iterations=3)
    assert result.reason.endswith("Kuu was not positive definite; its jitter was raised to 2e-16.")
    assert ("jitter" in capfd.readouterr().err) == is_printed


@partly_slow("name", MODELS, quick=["BTSGPR"])
@either_way
def test_covariances_that_contradict_each_other_are_refused(name, way):
    """
    At 1e9 s and a lengthscale of 60 s, |x|^2 eps = 0.06; near the origin the same kernel is as good
    as any.
    """
    X = line(0.0, 600.0, N)
    Z = line(1.0, 597.0, M)
    near, far = (
        MODELS[name](
            (X + shift, np.sin(X)), ExpandedSquare(1.3, 60.0), Z + shift, noise_variance=1e-2
        )
        for shift in (0.0, 1e9)
    )
    assert np.isfinite(way(near.maximum_log_likelihood_objective)())
    with stopped(r"are inconsistent(.|\n)*subtracting the mean"):
        way(far.maximum_log_likelihood_objective)()
