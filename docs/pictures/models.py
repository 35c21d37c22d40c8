"""Pictures of trained models, for the README and the guide."""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from gpflow.base import AnyNDArray
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.datasets import make_moons

from experiments import datasets
from gpflow_pep import PEPR, FitResult, PEPClassifier, StreamingSGPR, fit
from gpflow_pep.inducing import k_means
from gpflow_pep.plotting import (
    BAND,
    OLD_ROWS,
    POWERS,
    PREDICTION,
    ClassDisplay,
    PredictionDisplay,
    draw_history,
)
from style import WIDTH


def latent(x: AnyNDArray) -> AnyNDArray:
    """Latent function, [n, 1] -> [n, 1]."""
    return np.asarray(np.sin(3.0 * x) + 0.5 * np.cos(5.0 * x))


def rows(number: int, noise: float, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Draw rows of the latent function, in the order of the input."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 6.0, (number, 1)), axis=0)
    return X, latent(X) + noise * rng.standard_normal(X.shape)


def index() -> Figure:
    """Draw the example of the first page."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, (150, 1))
    Y = latent(X) + 0.2 * rng.standard_normal((150, 1))
    model = PEPR(
        (X, Y), gpflow.kernels.Matern52(), np.linspace(0.0, 6.0, 12)[:, None], alpha=0.5
    )
    fit(model)
    figure, axes = plt.subplots(figsize=(WIDTH, 2.4), layout="constrained")
    PredictionDisplay.from_model(model, (X, Y), ax=axes)
    return figure


def regression() -> Figure:
    """
    Draw three powers with few inducing points: the bound finds too much noise, FITC too little.
    """
    X, Y = rows(150, 0.15, seed=1)
    figure, panels = plt.subplots(
        3, 1, figsize=(WIDTH, 4.6), sharex=True, layout="constrained"
    )
    for axes, alpha, name in zip(
        panels,
        (0.0, 0.5, 1.0),
        ("α = 0 (SGPR)", "α = 0.5", "α = 1 (FITC)"),
        strict=True,
    ):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3)
        model = PEPR(
            (X, Y),
            kernel,
            np.linspace(0.3, 5.7, 8)[:, None],
            alpha=alpha,
            noise_variance=0.1,
        )
        fit(model)
        PredictionDisplay.from_model(model, (X, Y), ax=axes, limits=(0.0, 6.0))
        axes.set(
            ylim=(-2.6, 2.3),
            title=f"{name}: noise {model.likelihood.variance.numpy() ** 0.5:.2f}",
        )
        axes.label_outer()
    return figure


def classification() -> Figure:
    """
    Draw the probability of a class by EP, with its contour at one half and the inducing points.
    """
    X, labels = make_moons(300, noise=0.25, random_state=0)
    data = X, labels[:, None].astype(float)
    model = PEPClassifier(
        data, gpflow.kernels.SquaredExponential(), inducing_variable=k_means(X, 15)
    )
    fit(model, max_iterations=50)
    figure, axes = plt.subplots(figsize=(0.75 * WIDTH, 3.2), layout="constrained")
    ClassDisplay.from_model(model, data, ax=axes)
    return figure


def inducing_points() -> Figure:
    """
    Draw trained inducing points on banana: at the boundary of the classes at alpha 0, among the
    rows at 1.
    """
    dataset = datasets.load("banana")
    data = dataset.X_train[:400], dataset.Y_train[:400]
    figure, panels = plt.subplots(
        1, 3, figsize=(WIDTH, 2.6), sharex=True, sharey=True, layout="constrained"
    )
    for axes, alpha in zip(panels, (0.0, 0.5, 1.0), strict=True):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.5, 0.5])
        model = PEPClassifier(
            data, kernel, inducing_variable=k_means(data[0], 20, seed=0), alpha=alpha
        )
        fit(model, train_inducing=True, max_iterations=300)
        ClassDisplay.from_model(model, data, ax=axes, limits=[(-3.0, 3.0), (-3.0, 3.0)])
        for line in axes.get_lines()[:2]:
            line.set(markersize=3, markeredgewidth=0)
        axes.set_title(f"α = {alpha:g}")
        axes.label_outer()
        if axes is not panels[-1]:
            axes.get_legend().remove()
    return figure


def calibration() -> Figure:
    """Draw predicted probabilities against shares of held-out rows: quantiles of y, and labels."""
    X, Y = rows(4000, 0.15, seed=3)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:150], order[150:]
    moons = [
        (X, y[:, None].astype(float))
        for X, y in (make_moons(n, noise=0.4, random_state=n) for n in (150, 4000))
    ]
    levels, edges = np.linspace(0.02, 0.98, 49), np.linspace(0.0, 1.0, 11)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(WIDTH, 3.2), layout="constrained"
    )
    for alpha, color, style in zip(
        (0.0, 0.5, 1.0), POWERS, ("--", "-", "-."), strict=True
    ):
        kernel, Z = (
            gpflow.kernels.SquaredExponential(lengthscales=0.3),
            np.linspace(0.3, 5.7, 8)[:, None],
        )
        model = PEPR((X[train], Y[train]), kernel, Z, alpha=alpha, noise_variance=0.1)
        fit(model)
        mean, variance = (np.asarray(values) for values in model.predict_y(X[test]))
        quantiles = norm.cdf((Y[test] - mean) / np.sqrt(variance))  # [n, 1]
        left.plot(
            levels,
            (quantiles < levels).mean(axis=0),
            style,
            color=color,
            label=f"α = {alpha:g}",
        )
        classifier = PEPClassifier(
            moons[0],
            gpflow.kernels.SquaredExponential(),
            inducing_variable=k_means(moons[0][0], 10),
            alpha=alpha,
        )
        fit(classifier)
        p, labels = np.ravel(classifier.predict_y(moons[1][0])[0]), moons[1][1][:, 0]
        bins = np.digitize(p, edges[1:-1])
        means = [
            (p[bins == each].mean(), labels[bins == each].mean()) for each in range(10)
        ]
        right.plot(*np.transpose(means), f"o{style}", ms=4, color=color)
    for axes in (left, right):
        axes.plot([0, 1], [0, 1], ":", color="black", lw=1)
        axes.set(ylabel="share of held-out rows", aspect="equal")
    left.set(xlabel="predicted probability of a smaller y", title="regression")
    right.set(xlabel="predicted probability of class 1", title="two classes")
    left.legend()
    return figure


def stream() -> Figure:
    """Draw a stream after its first, third and fifth batch; discarded rows are light."""
    X, Y = rows(250, 0.15, seed=2)
    batches = np.array_split(np.arange(250), 5)
    figure, panels = plt.subplots(
        3, 1, figsize=(WIDTH, 4.6), sharex=True, layout="constrained"
    )
    kernel, Z = (
        gpflow.kernels.SquaredExponential(lengthscales=0.5),
        np.linspace(0.0, 6.0, 18)[:, None],
    )
    model = StreamingSGPR(
        (X[batches[0]], Y[batches[0]]), kernel, Z, noise_variance=0.05
    )
    gpflow.set_trainable(model.inducing_variable, False)
    for number, batch in enumerate(batches):
        if number:
            model.update((X[batch], Y[batch]))
        fit(model, max_iterations=20)
        if number % 2 == 0:
            axes = panels[number // 2]
            PredictionDisplay.from_model(
                model, (X[batch], Y[batch]), ax=axes, limits=(0.0, 6.0)
            )
            axes.plot(X[: batch[0]], Y[: batch[0]], ".", color=OLD_ROWS, ms=3)
            axes.set(ylim=(-2.9, 2.6), title=f"after batch {number + 1}")
            axes.label_outer()
    return figure


def training() -> Figure:
    """
    Draw objective and held-out NLPD of a training run: the first phase, the second, and its
    stricter end.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (1000, 2))
    Y = (
        np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:])
        + np.sin(X[:, :1] * X[:, 1:])
        + 0.1 * rng.standard_normal((1000, 1))
    )
    train, held_out, Z = (
        (X[:500], Y[:500]),
        (X[500:], Y[500:]),
        k_means(X[:500], 30, seed=0),
    )

    def run(tolerance: float) -> tuple[FitResult, int]:
        """
        Train; return the result, and the number of iterations before the inducing points moved.
        """
        model = PEPR(
            train,
            gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
            Z,
            alpha=0.5,
        )
        moved: list[bool] = []
        result = fit(
            model,
            tolerance=tolerance,
            held_out=held_out,
            callback=lambda *_: moved.append(
                not np.array_equal(model.inducing_variable.Z, Z)
            ),
        )
        return result, moved.index(True)

    (default, first), (strict, _) = run(5e-4), run(1e-6)
    end = default.iterations
    for result in (default, strict):  # for the caption
        print(
            first,
            result.iterations,
            result.objective[first - 1],
            result.objective[-1],
            result.held_out["nlpd"][first - 1],
        )
        print(result.held_out["nlpd"][-1])
    # The same run, continued.
    np.testing.assert_allclose(strict.objective[:end], default.objective, rtol=1e-6)
    figure, panels = plt.subplots(
        2, 1, figsize=(WIDTH, 4.2), sharex=True, layout="constrained"
    )
    for axes, name in zip(panels, ("objective", "nlpd"), strict=True):
        axes.axvspan(1, first, color=BAND, lw=0)
        draw_history(axes, strict, name, color=OLD_ROWS)
        draw_history(axes, default, name)
        (value,) = (
            default.objective if name == "objective" else default.held_out[name]
        )[-1:]
        axes.plot(end, value, "o", color=PREDICTION, ms=5)
        for number, place in ((1, 0.5 * (1 + first)), (2, 0.5 * (first + end))):
            axes.text(
                place,
                0.5,
                str(number),
                transform=axes.get_xaxis_transform(),
                ha="center",
            )
        axes.set_xlim(1, strict.iterations)
        axes.label_outer()
    return figure


PICTURES = (
    index,
    regression,
    classification,
    inducing_points,
    calibration,
    stream,
    training,
)
