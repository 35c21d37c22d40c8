"""A saved and restored stream continues bit for bit; files are complete or absent."""

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_equal
from gpflow.functions import Constant
from gpflow.kernels import Matern32, Matern52, SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Gaussian
from model_values import loss_and_gradient
from numpy.testing import assert_array_equal, assert_equal
from quick import partly_slow
from refusals import refused

from gpflow_pep import StreamingPEP, StreamingSGPR, StreamingSVGP, StreamState, weak_priors
from gpflow_pep.likelihoods import Logit, MultiClassRobustMax, Probit

rng = np.random.default_rng(8)
X = rng.uniform(0.0, 5.0, (60, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1))
LABELS = (X[:, :1] > X[:, 1:]) + 1.0 * (X[:, :1] + X[:, 1:] > 6.0)
Z = X[:6]


def kernel():
    return SquaredExponential(1.1, [0.9, 1.2])


def separate():
    return SeparateIndependent([kernel(), Matern32(0.7), kernel()])


def regression():
    return StreamingSGPR((X[:20], Y[:20]), kernel(), Z, alpha=0.3, mean_function=Constant([0.2]))


def classifier():
    points = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(X[start : start + 6]) for start in (0, 3, 9)]
    )
    return StreamingPEP(
        (X[:20], LABELS[:20]), separate(), MultiClassRobustMax(3), points, alpha=0.5
    )


def variational():
    model = StreamingSVGP(kernel(), Gaussian(0.1), Z, num_data=20, whiten=False)
    train(model, 0)
    return model


MODELS = {
    "StreamingSGPR": (
        regression,
        lambda: [kernel()],
        {"mean_function": Constant([0.0])},
        Y,
    ),
    "StreamingPEP": (classifier, lambda: [separate(), MultiClassRobustMax(3)], {}, LABELS),
    "StreamingSVGP": (
        variational,
        lambda: [kernel(), Gaussian()],
        {"whiten": False},
        Y,
    ),
}


def train(model, start):
    """A step of gradient descent."""
    data = (X[start : start + 20], Y[start : start + 20])
    _, slopes = loss_and_gradient(model, *([data] if isinstance(model, StreamingSVGP) else []))
    for variable, slope in zip(model.trainable_variables, slopes, strict=True):
        variable.assign_sub(1e-3 * slope)


def go_on(model, observations, start):
    """The next batch, and a step of training."""
    model.update((X[start : start + 20], observations[start : start + 20]), fraction_to_move=0.4)
    train(model, start)
    return [value.numpy() for value in model.predict_f(X)]


@partly_slow("name", MODELS, quick=["StreamingSVGP"])
def test_a_saved_stream_continues_bit_for_bit(name, tmp_path):
    make, parts, options, observations = MODELS[name]
    model = make()
    go_on(model, observations, 20)
    model.state.save(tmp_path / "stream.npz")
    again = type(model).from_state(StreamState.load(tmp_path / "stream.npz"), *parts(), **options)
    assert_all_equal(go_on(again, observations, 40), go_on(model, observations, 40))
    assert_equal(again.state.as_dict(), model.state.as_dict())


def restored(state, kernel):
    return StreamingSGPR.from_state(state, kernel, mean_function=Constant([0.0]))


def test_a_state_is_a_copy():
    model = regression()
    state = model.state
    before = {name: value.copy() for name, value in state.arrays.items()}
    model.update((X[20:40], Y[20:40]))
    model.kernel.variance.assign(3.0)
    assert_equal(dict(state.arrays), before)


def test_other_states_are_refused():
    state = regression().state
    arrays = state.as_dict()
    with refused("version 1, got 2"):
        StreamState.from_dict({**arrays, "version": np.array(2)})
    with refused("version 1, got None"):
        StreamState.from_dict(dict(state.arrays))
    with refused(r"differ in parameter\.mean_function\.c"):
        StreamingSGPR.from_state(state, kernel())
    with refused(r"^state must be the StreamState of a StreamingSGPR; it lacks data\.X"):
        StreamingSGPR.from_state("stream.npz", kernel())
    with refused(r"parameter\.kernel\.lengthscales must be float64 of shape"):
        restored(state, SquaredExponential(1.0, 1.0))


def test_the_jitter_is_restored():
    model = regression()
    model.jitter = 1e-2
    model.update((X[20:40], Y[20:40]))
    again = restored(model.state, kernel())
    assert_array_equal(
        again.maximum_log_likelihood_objective(), model.maximum_log_likelihood_objective()
    )


def test_weak_priors_and_fixed_parameters_are_restored(tmp_path):
    """The location of the priors is from the first batch."""
    model = regression()
    weak_priors(model)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.inducing_variable, False)
    go_on(model, 5.0 * Y, 20)
    model.state.save(tmp_path / "stream.npz")
    again = restored(StreamState.load(tmp_path / "stream.npz"), kernel())
    assert_array_equal(again.log_prior_density(), model.log_prior_density())
    assert_all_equal(go_on(again, Y, 40), go_on(model, Y, 40))
    assert len(again.trainable_parameters) == len(model.trainable_parameters) == 3


def test_a_refused_state_changes_no_part():
    model = regression()
    weak_priors(model)
    gpflow.set_trainable(model.kernel, False)
    other = Matern52(1.1, [0.9, 1.2])
    with refused(r"same kernel.*differ in kernel\."):
        restored(model.state, other)
    assert other.lengthscales.prior is None and other.lengthscales.trainable
    with_priors = restored(regression().state, model.kernel)
    assert with_priors.log_prior_density() == 0.0 and with_priors.kernel.variance.trainable


def test_shared_points_stay_fixed():
    points = gpflow.inducing_variables.InducingPoints(Z)
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    model = StreamingSGPR((X[:20], Y[:20]), kernel(), shared)
    gpflow.set_trainable(points, False)
    again = StreamingSGPR.from_state(model.state, kernel())
    assert not again.inducing_variable.trainable_parameters


def test_a_state_under_other_parts_or_options_is_refused():
    """Kernels of the same parameters, and another likelihood."""
    with refused("and options; they differ in whiten"):
        StreamingSVGP.from_state(variational().state, kernel(), Gaussian())
    state = regression().state
    with refused(r"^alpha must not be given, got 0\.1: it is taken from the state"):
        StreamingSGPR.from_state(state, kernel(), alpha=0.1)
    with refused(r"same kernel.*differ in kernel\.active_dims"):
        restored(state, SquaredExponential(1.1, [0.9, 1.2], active_dims=[1, 0]))
    labels = (X[:, :1] > 2.0) * 1.0
    states = StreamingPEP((X[:20], labels[:20]), kernel(), Probit(), Z).state
    with refused("differ in likelihood"):
        StreamingPEP.from_state(states, kernel(), Logit())


@pytest.mark.parametrize(
    "missing", ["inducing.Z", "parts", "parameters", "data.X", "alpha", "old.root"]
)
def test_rejects_an_incomplete_state(missing):
    arrays = {key: value for key, value in regression().state.arrays.items() if key != missing}
    with refused(f"state must .*{missing}"):
        restored(StreamState(arrays), kernel())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("inducing.Z", np.zeros(3), r"inducing\.Z must have shape \[1 or C, M, D\], got \[3\]"),
        ("parts", np.array("{"), "parts must be JSON"),
        ("alpha", np.array(2.0), r"this state .*alpha must be in \[0, 1\], got 2\.0"),
        ("alpha", np.full(20, 0.5), r"this state .*alpha must be one number"),
        ("parts", np.array(1.0), "parts must be JSON"),
        *(
            (name, np.array("[" * 100_000), f"{name} must be JSON")
            for name in ("parts", "parameters")
        ),
        ("parameters", np.array("[]"), "parameters must be JSON that a model wrote, got '\\[\\]'"),
        ("old.Z", np.zeros((1, 4, 2)), "of as many old points, got 0, 4, 0"),
        ("old.linear", np.full((6, 1), np.nan), "old.linear must be finite"),
        (
            "old.linear",
            np.zeros((6, 1), np.float32),
            "old.linear must be float64 of shape .*, got float32",
        ),
    ],
)
def test_rejects_a_state_with_invalid_values(name, value, message):
    state = StreamState({**regression().state.arrays, name: value})
    with refused(message):
        restored(state, kernel())


@pytest.mark.parametrize("name", ["sites.precision", "sites.linear"])
def test_rejects_sites_of_other_rows(name):
    arrays = dict(classifier().state.arrays)
    arrays[name] = np.concatenate([arrays[name], arrays[name]])
    with refused(rf"the state's {name} must have shape \[20, .* got \[40, "):
        StreamingPEP.from_state(StreamState(arrays), separate(), MultiClassRobustMax(3))


def test_rejects_a_state_of_another_model():
    """Whose data the likelihood does not accept."""
    with refused(
        r"^cannot construct a StreamingPEP from this state and these parts: data\[1\] \(Y\)"
    ):
        StreamingPEP.from_state(regression().state, kernel(), Probit())


def test_rejects_a_file_that_is_no_state(tmp_path):
    """One sentence, with the path."""
    path = tmp_path / "stream.npz"
    for content, reason in (
        (lambda: path.write_bytes(b"half"), "not a zip file"),
        (lambda: np.savez(path, a=np.zeros(2)), "version 1, got None"),
        (lambda: np.savez(path, version=np.array("one")), "version 1, got 'one'"),
        (lambda: np.savez(path, version=np.ones(2)), "version 1, got"),
    ):
        content()
        with refused(reason) as caught:
            StreamState.load(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_whose_values_were_changed_is_refused_as_a_dictionary_too(tmp_path):
    model = regression()
    model.update((X[:20], Y[:20]))
    model.state.save(tmp_path / "stream.npz")
    arrays = dict(np.load(tmp_path / "stream.npz"))
    assert_array_equal(StreamState.from_dict(arrays).points, model.state.points)
    arrays["old.linear"] = 2.0 * arrays["old.linear"]
    with refused("its contents were changed after it was saved"):
        StreamState.from_dict(arrays)
