"""APEP, ARPEP and RPAPEP: references, limits, minibatches, and rejected arguments."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_all_near, assert_near
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import Matern52, SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Gaussian, MultiClass, RobustMax, Softmax, StudentT
from gpflow.models import SVGP
from model_values import in_q, loss_and_gradient, random_q, references
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import stopped

from gpflow_pep import APEP, ARPEP, RPAPEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Probit

MODELS = (APEP, ARPEP, RPAPEP)
MULTICLASS, TIED = (
    {case["name"].split("/")[1]: case for case in references(group)}
    for group in ("multiclass_objectives", "tied_objectives")
)
REFERENCE = 1e-8  # the references' tolerance, absolute
N = 12
M = 5
C = 3
rng = np.random.default_rng(101)
X = rng.uniform(-1.5, 1.5, (N, 2))
Z = np.array([[-1.0, 0.3], [0.1, -0.9], [0.8, 0.7], [-0.4, 1.2], [1.2, -0.5]])
Q = random_q(rng, M, C)
every_model = pytest.mark.parametrize("kind", MODELS)


def make(kind, likelihood="robust max", *, num_data=30, **options):
    likelihoods = {
        "robust max": lambda: MultiClassRobustMax(C),
        "softmax": lambda: Softmax(C),
        "Gaussian": lambda: Gaussian(0.2),
        "Probit": Probit,
        "StudentT": lambda: StudentT(0.4),
    }
    options = {
        "kernel": SquaredExponential(1.3, lengthscales=[0.9, 1.1]), "inducing_variable": Z,
        "mean_function": gpflow.functions.Constant(0.1 * np.arange(C)), **Q, **options,
    }  # fmt: skip
    return kind(likelihood=likelihoods[likelihood](), num_data=num_data, **options)


def data(likelihood="robust max"):
    generator = np.random.default_rng(102)
    if likelihood in ("robust max", "softmax"):
        return X, generator.integers(0, C, (N, 1)).astype(float)
    Y = np.sin(X @ generator.normal(size=(2, C))) + 0.3 * generator.normal(size=(N, C))
    return X, (Y > 0.0).astype(float) if likelihood == "Probit" else Y


# --- references -----------------------------------------------------------------------------------


def kernel_of(inputs):
    return SquaredExponential(inputs["variance"], lengthscales=inputs["lengthscales"])


def assert_recorded(model, rows, expected):
    """The objective at several powers."""
    for alpha in (0.001, 0.1, 0.5, 1):
        model.alpha = alpha
        value = model.maximum_log_likelihood_objective(rows)
        assert_near(value, expected[f"alpha={alpha}"][type(model).__name__], REFERENCE)


@pytest.mark.usefixtures("no_jitter")
@partly_slow(
    ("kind", "convention", "name"),
    itertools.product(MODELS, ["paper", "gpflow"], MULTICLASS),
    quick=[(APEP, "paper", "m3"), (ARPEP, "gpflow", "m4"), (RPAPEP, "paper", "m4")],
)
def test_multiclass_matches_references(kind, convention, name):
    case = MULTICLASS[name]
    inputs = case["inputs"]
    expected = case["expected"][convention]
    num = inputs["C"]
    ours = MultiClassRobustMax(num, inputs["epsilon"])
    theirs = MultiClass(num, RobustMax(num, inputs["epsilon"]))
    model = kind(
        SeparateIndependent([kernel_of(kernel) for kernel in inputs["kernels"]]),
        ours if convention == "paper" else theirs,
        SeparateIndependentInducingVariables(
            [InducingPoints(np.array(Z)) for Z in inputs["Z_per_class"]]
        ),
        num_data=len(inputs["X"]),
        q_mu=np.transpose(inputs["q_mu_per_class"]),
        q_sqrt=np.array(inputs["q_sqrt_per_class"]),
        whiten=inputs["whiten"],
    )
    rows = np.array(inputs["X"]), np.array(inputs["y"], dtype=float)[:, None]
    wanted = [case["expected"][name] for name in ("f_mean", "f_var")]
    assert_all_near(model.predict_f(rows[0]), wanted, 1e-11)
    assert_recorded(model, rows, expected)
    model.alpha = 0.0
    bound = model.maximum_log_likelihood_objective(rows)
    assert_near(bound, expected["alpha->0 (VB lower bound, eq 5)"], REFERENCE)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("name", TIED)
@every_model
def test_single_latent_matches_references(name, kind):
    inputs = TIED[name]["inputs"]
    expected = TIED[name]["expected"]
    probit = inputs["likelihood"] == "probit"
    model = kind(
        kernel_of(inputs["kernel"]),
        Probit(labels=(-1, 1)) if probit else Gaussian(inputs["noise_variance"]),
        np.array(inputs["Z"]),
        num_data=len(inputs["X"]),
        q_mu=np.array(inputs["q_mu"])[:, None],
        q_sqrt=np.array(inputs["q_sqrt"])[None],
        whiten=inputs["whiten"],
    )
    rows = np.array(inputs["X"]), np.array(inputs["Y"], dtype=float)[:, None]
    assert_recorded(model, rows, expected)


# --- the limit of SVGP ----------------------------------------------------------------------------


@partly_slow(
    ("kind", "parts", "whiten"),
    [(APEP, "shared", True), (RPAPEP, "shared", True), (ARPEP, "separate", False)],
    2,
)
def test_alpha_zero_equals_svgp(kind, parts, whiten):
    options = {"whiten": whiten}
    if parts == "separate":
        options["kernel"] = SeparateIndependent([Matern52(1.0 + 0.5 * c) for c in range(C)])
        options["inducing_variable"] = SeparateIndependentInducingVariables(
            [InducingPoints(Z + 0.1 * c) for c in range(C)]
        )
    model = make(kind, alpha=0.0, **options)
    peer = SVGP(
        model.kernel, model.likelihood, model.inducing_variable, mean_function=model.mean_function,
        num_latent_gps=C, whiten=whiten, num_data=30, **Q,
    )  # fmt: skip
    variables = model.kernel.trainable_variables + model.inducing_variable.trainable_variables
    found = []
    for one in (model, peer):
        loss, slopes = loss_and_gradient(one, data(), variables=variables + tuple(in_q(one)))
        found.append([loss, *slopes])
    assert_all_close(*found, rtol=1e-8, atol=1e-8)
    for form in itertools.product([False, True], [False, True]):
        assert_all_near(model.predict_f(Z + 0.3, *form), peer.predict_f(Z + 0.3, *form), 1e-9)
    ours, theirs = (one.predict_log_density((X, data()[1])) for one in (model, peer))
    assert_near(ours, theirs, 1e-9)


@every_model
def test_continuous_at_alpha_zero(kind):
    """
    Linear in alpha, with a slope of the order of the objective, 100 here; 1e-9 is the rounding of
    1e-14/alpha.
    """
    model = make(kind, alpha=0.0)
    limit = model.training_loss(data())
    for alpha in (1e-12, 1e-8, 1e-5):
        model.alpha = alpha
        assert_near(model.training_loss(data()), limit, 1e3 * alpha + 1e-9)


# --- derivatives and minibatches ------------------------------------------------------------------


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [APEP, RPAPEP])
def test_indefinite_cavity_raises(kind):
    model = make(kind, alpha=0.5, num_data=20)
    model.q_sqrt.unconstrained_variable.assign(
        1e200 * tf.ones_like(model.q_sqrt.unconstrained_variable)
    )
    with stopped(r"(?s)the cavity.*alpha = 0.5, num_data N = 20"):
        model.training_loss(data())


class UndefinedOnce(gpflow.functions.MeanFunction):
    """NaN for the first row."""

    def __call__(self, inputs):
        return tf.where(
            tf.range(tf.shape(inputs)[0])[:, None] == 0, np.nan, tf.zeros([1, C], tf.float64)
        )


@pytest.mark.parametrize(
    ("kind", "likelihood"),
    [(APEP, "softmax"), (RPAPEP, "robust max"), (ARPEP, "Probit")],
)
def test_a_nan_at_alpha_zero_raises(kind, likelihood):
    """The limit of a quotient by alpha: NaN must not become 0."""
    model = make(kind, likelihood, alpha=0.0, mean_function=UndefinedOnce())
    with stopped(rf"the objective of {kind.__name__} is not finite"):
        model.training_loss(data(likelihood))


def test_default_prior():
    """q(u) is the prior, with the number of latent functions of the likelihood."""
    model = ARPEP(SquaredExponential(), MultiClassRobustMax(C), Z, num_data=N)
    assert model.num_latent_gps == C
    assert ARPEP(SquaredExponential(), Probit(), Z, num_data=N).num_latent_gps == 1
    mean, variance = model.predict_f(X)
    assert_allclose(mean, 0.0, atol=1e-15)
    assert_allclose(variance, 1.0, rtol=1e-9)
    names = gpflow.utilities.parameter_dict(model)
    assert ".q_mu" in names
    assert not any("alpha" in name for name in names)
