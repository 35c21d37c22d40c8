"""Displays of models and estimators: their drawings, read from the artists, and the palette."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gpflow.kernels import Matern52
from matplotlib.colors import to_rgb
from model_values import references
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_pep import PEPR, FitResult, PEPClassifier, plotting
from gpflow_pep.likelihoods import Probit
from gpflow_pep.plotting import ClassDisplay, PredictionDisplay, draw_history

RNG = np.random.default_rng(0)
X1 = RNG.uniform(0.0, 6.0, (30, 1))
X2 = RNG.uniform(-1.0, 1.0, (40, 2))


class Plane(RegressorMixin, BaseEstimator):
    """y = 2 x1 + x2, with a standard deviation of 0.5."""

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X, return_std=False):
        mean = np.asarray(X) @ [2.0, 1.0]
        return (mean, np.full(len(mean), 0.5)) if return_std else mean


class Shares(ClassifierMixin, BaseEstimator):
    """Classes "a", "b", "c" whose probabilities depend on the first column."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        values = np.exp(np.asarray(X)[:, :1] * np.arange(-1.0, len(self.classes_) - 1.0))
        return values / values.sum(axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def regression():
    return PEPR((X1, np.sin(X1)), Matern52(), X1[:4], noise_variance=0.1)


def lines(ax):
    """The data [n, 2] of each line or set of markers, by color."""
    return {line.get_color(): line.get_xydata() for line in ax.get_lines()}


def test_a_prediction_is_mean_two_standard_deviations_rows_and_points(regression):
    display = PredictionDisplay.from_model(regression, (X1, np.sin(X1)))
    drawn = lines(display.ax_)
    x = display.grid[0]
    mean, variance = regression.predict_y(x[:, None])
    assert_allclose(drawn[plotting.PREDICTION], np.column_stack([x, mean]))
    assert_array_equal(drawn[plotting.ROWS], np.hstack([X1, np.sin(X1)]))
    assert_array_equal(drawn[plotting.INDUCING][:, 0], X1[:4, 0])
    (band,) = display.ax_.collections
    upper = band.get_paths()[0].vertices[:, 1].max()
    assert_allclose(upper, np.max(mean + 2.0 * np.sqrt(variance)))


def test_the_grid_ends_at_the_limits_or_beyond_the_rows(regression):
    given = PredictionDisplay.from_model(regression, (X1, X1), limits=(-1.0, 9.0))
    assert given.ax_.get_xlim() == (-1.0, 9.0)
    margin = 0.05 * np.ptp(X1)
    ends = PredictionDisplay.from_model(regression, (X1, X1)).grid[0][[0, -1]]
    assert_allclose(ends, [X1.min() - margin, X1.max() + margin])


def test_a_plane_has_contours_a_color_bar_and_the_names_of_the_table():
    table = pd.DataFrame(X2, columns=["north", "east"])
    y = pd.Series(table @ [2.0, 1.0], name="height, m")
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), Plane()).fit(table, y)
    display = PredictionDisplay.from_estimator(pipeline, table, y)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("north", "east")
    assert display.ax_.figure.axes[1].get_ylabel() == "height, m"
    corners = pipeline.predict(
        pd.DataFrame([[g[end] for g in display.grid] for end in (0, -1)], columns=table.columns)
    )
    assert_allclose(display.mean[[0, -1], 0], corners)
    assert display.Z == []  # of a pipeline


def test_two_classes_meet_in_white_and_have_their_colors_far_away():
    classifier = Shares().fit(X2, np.where(X2[:, 0] > 0.0, "b", "a"))
    display = ClassDisplay.from_estimator(
        classifier, X2, np.where(X2[:, 0] > 0.0, "b", "a"), limits=[(-9, 9), (-1, 1)]
    )
    (image,) = display.ax_.get_images()
    row = np.asarray(image.get_array())[0]  # along the first input
    for color, shown in zip(plotting.CLASSES, row[[0, -1]], strict=False):
        assert_allclose(
            (1.0 - shown) / plotting._STRENGTH, 1.0 - np.array(to_rgb(color)), atol=1e-3
        )
    assert row[len(row) // 2].min() > 0.9  # nearly equal probabilities
    assert_allclose(display.ax_.collections[0].get_paths()[0].vertices[:, 0], 0.0, atol=1e-9)


def test_each_class_has_its_rows_and_its_marker():
    y = np.array(["a", "b", "c"])[np.arange(40) % 3]
    display = ClassDisplay.from_estimator(Shares().fit(X2, y), X2, y)
    drawn = {line.get_label(): line for line in display.ax_.get_lines()}
    assert [*drawn] == ["a", "b", "c"]
    assert len({line.get_marker() for line in drawn.values()}) == 3
    assert_array_equal(drawn["b"].get_xydata(), X2[y == "b"])
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert [handle.get_color() for handle in legend.get_lines()] == [*plotting.CLASSES[:3]]


def test_one_probability_of_two_classes_names_its_class():
    y = np.where(X1[:, 0] > 3.0, "ill", "healthy")
    display = ClassDisplay.from_estimator(Shares().fit(X1, y), X1, y)
    assert display.ax_.get_ylabel() == "probability of ill"


def test_a_constant_column_has_a_width_of_one():
    display = PredictionDisplay.from_estimator(
        Plane(), np.column_stack([X1, np.full(30, 3.0)]), X1[:, 0]
    )
    assert_array_equal(display.ax_.get_ylim(), (2.5, 3.5))


def test_a_model_of_labels_minus_one_and_one_shows_the_probability_of_one():
    labels = np.sign(X1 - 3.0)
    model = PEPClassifier((X1, labels), Matern52(), Probit(labels=(-1, 1)), X1[:4])
    display = ClassDisplay.from_model(model, (X1, labels))
    probability, _ = model.predict_y(display.grid[0][:, None])
    curve, first, second, points = (line.get_xydata() for line in display.ax_.get_lines())
    assert_allclose(curve[:, 1:], probability)
    assert set(first[:, 1]) == {0.0} and set(second[:, 1]) == {1.0}
    assert len(first) == np.sum(labels < 0.0) and len(points) == 4
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["-1", "1"]
    with refused(r"y must have one label of classes_, \[-1, 1\]"):
        ClassDisplay.from_model(model, (X1, np.sin(X1)))


def test_a_history_is_drawn_at_its_records():
    result = FitResult("limit", "", 4, (2, 4), (-3.0, -2.0), {"nlpd": (1.0, 0.5)}, None, 0.1)
    ax = plt.figure().add_subplot()
    draw_history(ax, result, "nlpd", color="red")
    assert_array_equal(lines(ax)["red"], [[2, 1.0], [4, 0.5]])
    assert ax.get_ylabel() == "held-out NLPD, nats per row"


def test_rejects_rows_and_limits_that_cannot_be_drawn(regression):
    y = np.zeros(40)
    names = np.repeat(["a", "b"], 20)
    gap = np.where(np.arange(40)[:, None] == 3, np.nan, X2)
    for display, X, targets, options, message in (
        (PredictionDisplay, np.zeros([40, 3]), y, {}, "X must have 1 or 2 columns, got 3"),
        (PredictionDisplay, gap, y, {}, "X must be finite .* the first in row 3"),
        (PredictionDisplay, X2, y[:5], {}, "y must have one entry for each of 40 rows of X"),
        (PredictionDisplay, X2, names, {}, "y must hold real numbers"),
        (PredictionDisplay, X2, y, {"limits": [0.0, 1.0]}, "limits must have shape"),
        (
            PredictionDisplay,
            X2,
            y,
            {"limits": [[0.0, 1.0], [0.0, np.inf]]},
            "limits must be finite",
        ),
        (PredictionDisplay, X1, y[:30], {"limits": (5, 5)}, "limits must have a lower end below"),
        (PredictionDisplay, X2, y, {"ax": "here"}, "ax must be one Axes of matplotlib, got 'here'"),
        (
            ClassDisplay,
            X2,
            np.stack([names, names], axis=1),
            {},
            "y must have one label of classes_",
        ),
        (ClassDisplay, X2, np.repeat("c", 40), {}, "y must have one label of classes_"),
    ):
        estimator = Plane() if display is PredictionDisplay else Shares().fit(X2, names)
        with refused(f"^{message}"):
            display.from_estimator(estimator, X, targets, **options)
    with refused(r"^data must be a pair \(X, Y\)"):
        PredictionDisplay.from_model(regression, X1)
    with refused(r"^model must be a model .* got None"):
        PredictionDisplay.from_model(None, (X1, X1))
    with refused(r"^estimator must have the method predict_proba"):
        ClassDisplay.from_estimator(Plane(), X2, names)


def test_rejects_points_and_scores_that_cannot_be_drawn():
    ax = plt.figure().add_subplot()
    with refused(r"^Z must have 1 or 2 columns, got 3"):
        plotting.draw_inducing_points(ax, np.zeros([5, 3]))
    result = FitResult("limit", "", 2, (2,), (-3.0,), {}, None, 0.1)
    for draw, values in ((draw_history, result), (plotting.draw_inducing_points, X1)):
        with refused(r"^ax must be one Axes of matplotlib, got 'here'"):
            draw("here", values)
    with refused(r"^result must be a FitResult, .* got None"):
        draw_history(ax, None)
    with refused(r"^name must be one of 'objective', as recorded, got 'nlpd'"):
        draw_history(ax, result, "nlpd")


DEFICIENCIES = references("color_vision")  # Machado et al. (2009), for linear RGB


def lightness(color, deficiency):
    """CIE L*, 0 (black) to 100 (white), as seen with the deficiency."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    Y = np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0.0, 1.0) @ [0.2126, 0.7152, 0.0722]
    return 116.0 * np.cbrt(Y) - 16.0


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize(
    "colors", [plotting.CLASSES[:3], plotting.POWERS], ids=["classes", "powers"]
)
def test_colors_differ_in_lightness_also_for_color_blind_readers(colors, deficiency):
    """By 10 units of L* and more: side by side, one is just noticeable."""
    assert np.diff(np.sort([lightness(color, deficiency) for color in colors])).min() > 10.0
