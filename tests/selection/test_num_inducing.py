"""Selection of the number of inducing points: known answers, scores, invalid arguments."""

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent, SharedIndependent, SquaredExponential
from numpy.testing import assert_allclose
from refusals import refused
from waves import wave

from gpflow_pep import PEPR, PEPClassifier, select_num_inducing
from gpflow_pep.inducing import greedy_variance
from gpflow_pep.likelihoods import Probit

N = 80
X, Y = wave(N, 2, ends=(-3.0, 3.0))


def make(data, Z, alpha=0.0, lengthscale=1.0, noise=0.1):
    return PEPR(
        data, SquaredExponential(lengthscales=lengthscale), Z, alpha=alpha, noise_variance=noise
    )


def untrained(*_):
    """Keep the hyperparameters."""


def selected(numbers, make=make, **options):
    return select_num_inducing(make, (X, Y), numbers, train=untrained, **options)


@pytest.fixture(scope="module")
def found():
    return selected((3, 16, 32, 48), tolerance=0.02)


def test_few_points_are_enough_for_a_smooth_function(found):
    """Four bends: with 16 points the bound is as good as with all rows, which is seen at 32."""
    assert found.status == "tolerance" and found.criterion == "gap"
    assert found.num_inducing == 16 and found.numbers.tolist() == [3, 16, 32]
    assert int(found.model.inducing_variable.num_inducing) == 16
    exact = make((X, Y), X)
    exact.kernel = found.model.kernel
    exact.likelihood = found.model.likelihood
    evidence = -exact.training_loss() / N
    assert found.objectives[1] < evidence < min(found.objectives[1] + 0.02, found.upper_bounds[1])


def test_all_rows_are_needed_where_rows_are_unrelated():
    """Lengthscales far below the distance between rows: each point explains one row."""
    grid = np.arange(20.0)[:, None]
    found = select_num_inducing(
        lambda data, Z: make(data, Z, lengthscale=0.2, noise=0.01),
        (grid, np.cos(grid)),
        (10, 40),
        train=untrained,
    )
    assert found.status == "all rows"
    assert found.num_inducing == 20
    assert found.numbers.tolist() == [10, 20]
    assert found.gaps[-1] < 1e-3
    assert "from 10 to 20" in found.reason
    assert "all distinct rows" in found.reason


def test_the_largest_number_may_not_be_enough(capsys):
    found = selected((2, 4), progress=True)
    shown = capsys.readouterr().err
    assert "4 inducing points" in shown and "2/2" in shown
    assert found.status == "largest"
    assert found.num_inducing == 4
    assert "no larger number" in found.reason


def test_reports_that_training_did_not_reach_a_new_start():
    """
    Training that keeps the noise at 1 gains nothing from 12 to 24 points; the true noise is 0.04.
    """

    def train(model):
        model.likelihood.variance.assign(1.0)

    found = select_num_inducing(make, (X, Y), (12, 24), train=train)
    assert found.status == "largest" and found.num_inducing == 12
    assert found.reason.endswith(
        "and no larger number was given; a new start with more points was better."
    )


def test_scores_are_those_of_the_models():
    """Untrained, with points that are the greedy choice: nested, since hyperparameters stay."""
    models = []
    found = selected(
        (4, 8), lambda data, Z: models.append(make(data, Z)) or models[-1], tolerance=1e-9
    )
    Z = greedy_variance(SquaredExponential(), X, 8)
    for number, model in enumerate(models[1:]):  # the first has one point, and gives its kernel
        M = int(found.numbers[number])
        assert_allclose(model.inducing_variable.Z, Z[:M], rtol=1e-12)
        expected = make((X, Y), Z[:M])
        scores = found.objectives[number], found.upper_bounds[number], found.densities[number]
        density = np.mean(expected.loo_log_predictive_density())
        wanted = -expected.training_loss() / N, expected.upper_bound() / N, density
        assert_allclose(scores, wanted, rtol=1e-9)
    assert found.num_inducing == 8 and found.model is models[-1] and np.all(found.seconds > 0.0)


def test_larger_models_start_where_smaller_ones_ended(found):
    """
    The bound does not fall, but for the jitter, 1e-6 of a variance of about 1 over noise of 0.04, a
    row.
    """
    assert np.all(np.diff(found.objectives) > -1e-4)
    starts = []

    def train(model):
        starts.append((model.kernel.lengthscales.numpy(), model.inducing_variable.Z.numpy()))
        model.kernel.lengthscales.assign(0.7)
        model.inducing_variable.Z.assign(model.inducing_variable.Z + 0.01)

    select_num_inducing(make, (X, Y), (3, 5), train=train)
    assert_allclose([kernel for kernel, _ in starts], [1.0, 0.7], rtol=1e-12)
    assert_allclose(starts[1][1][:3], starts[0][1] + 0.01, rtol=1e-12)
    rest = greedy_variance(SquaredExponential(lengthscales=0.7), X, 5, given=starts[1][1][:3])
    assert_allclose(starts[1][1], rest, rtol=1e-12)


def test_table_and_summary(found):
    lines = str(found).splitlines()
    assert " ".join(lines[0].split()) == "M objective upper bound gap loo density seconds"
    assert len(lines) == len(found.numbers) + 2
    assert lines[-1] == f"{found.num_inducing} inducing points: {found.reason}"
    row = dict(zip(("M", "objective", "upper", "gap", "density"), lines[1].split(), strict=False))
    assert row["M"] == "3" and float(row["gap"]) == pytest.approx(found.gaps[0], abs=1e-4)
    assert repr(found) == (
        f"NumInducingSelection(num_inducing={found.num_inducing}, status='tolerance'; "
        f"{found.reason})"
    )


def test_densities_decide_where_there_is_no_bound():
    """At alpha = 1 bounds are reported only; models of labels have no bounds."""
    found = selected((4, 8, 16, 32), lambda data, Z: make(data, Z, alpha=1.0))
    assert found.criterion == "density" and found.status == "tolerance"
    assert (
        found.densities[-1] - found.densities[-2]
        < 0.01
        <= np.diff(found.densities[:-1]).min(initial=1.0)
    )

    def classifier(data, Z):
        return PEPClassifier(data, SquaredExponential(), Probit(), Z)

    labels = select_num_inducing(classifier, (X, np.where(Y > 0.0, 1.0, 0.0)), [8], train=untrained)
    assert labels.criterion == "density"
    assert np.all(np.isnan(labels.gaps))
    assert np.all(labels.densities < 0.0)
    assert np.all(np.isfinite(labels.objectives)) and labels.trainings == (None,)
    assert labels.status == "largest"
    assert labels.reason == "only one number was tried, and no larger number was given."


class Told(gpflow.Module):
    """
    Two latent functions with separate kernels and points; densities increase with the number of
    points.
    """

    def __init__(self, data, Z):
        super().__init__()
        self.kernel = SeparateIndependent(
            [SquaredExponential(lengthscales=0.5), SquaredExponential()]
        )
        self.inducing_variable = SeparateIndependentInducingVariables(
            [InducingPoints(Z) for _ in range(2)]
        )

    def loo_log_predictive_density(self):
        return np.full(N, float(self.inducing_variable.num_inducing))

    def maximum_log_likelihood_objective(self):
        return 0.0


class FailsWith48(Told):
    def loo_log_predictive_density(self):
        return np.full(N, np.nan if self.inducing_variable.num_inducing == 48 else -1.0)


def test_a_new_start_that_fails_is_ignored():
    found = selected((12, 24, 48), FailsWith48)
    assert found.status == "tolerance" and found.num_inducing == 12


def test_latent_functions_with_kernels_and_points_of_their_own():
    """
    The shared or first kernel chooses the points; separate points are extended as they were chosen.
    """

    def shared(data, Z):
        return PEPR(data, SharedIndependent(SquaredExponential(lengthscales=0.5), 1), Z)

    def move(model):
        if isinstance(model, Told):
            model.inducing_variable.inducing_variables[1].Z.assign(
                np.zeros([model.inducing_variable.num_inducing, 1])
            )

    expected = greedy_variance(SquaredExponential(lengthscales=0.5), X, 5)
    for constructor in (shared, Told):
        points = select_num_inducing(
            constructor, (X, Y), (3, 5), tolerance=1e-9, train=move
        ).model.inducing_variable
        points = points if isinstance(points, InducingPoints) else points.inducing_variables[0]
        assert_allclose(points.Z, expected[: points.num_inducing], rtol=1e-12)


class WithoutScores:
    def __init__(self, data, Z):
        self.data = data


class NotANumber(PEPR):
    def loo_log_predictive_density(self):
        return np.full(N, np.nan)


def test_bad_arguments_are_refused():
    for options, error, message in [
        ({"numbers": []}, ValueError, "numbers must be ascending, at least one"),
        ({"numbers": [4, 4]}, ValueError, "numbers must be ascending"),
        ({"numbers": [0, 4]}, ValueError, "numbers must be a whole number from 1"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be a positive number"),
        ({"data": (X, Y[:-1])}, ValueError, "same number of rows"),
        (
            {"make": lambda data, Z: make(data, X[:5])},
            ValueError,
            r"make\(data, Z\) returned a model with 5 inducing points, but Z has 1",
        ),
        (
            {"make": WithoutScores},
            ValueError,
            "make must return a model with a lower bound and an upper_bound",
        ),
        (
            {"make": lambda data, Z: gpflow.models.GPRFITC(data, SquaredExponential(), Z)},
            ValueError,
            "make must return a model with a lower bound .*, got GPRFITC",
        ),
        (
            {"make": lambda data, Z: NotANumber(data, SquaredExponential(), Z)},
            FloatingPointError,
            "the density of the model with 4 inducing points is NaN",
        ),
    ]:
        arguments = {"make": make, "data": (X, Y), "numbers": (4, 8), "train": untrained, **options}
        with pytest.raises(error, match=message):
            select_num_inducing(**arguments)


def test_models_that_share_a_kernel_are_refused():
    """Training one would change the other."""
    kernel = SquaredExponential()
    with refused(r"make must build a new kernel, .* shares 2 trainable parameters with"):
        selected((3, 6), lambda data, Z: PEPR(data, kernel, Z, alpha=0.0))


def test_a_make_that_ignores_its_points_is_refused():
    with refused(r"^make must use the inducing points it is given, Z \[1, 1\], got others"):
        select_num_inducing(
            lambda data, Z: PEPR(data, SquaredExponential(), Z + 0.1, alpha=0.0), (X, Y), [3]
        )
