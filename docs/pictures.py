"""Draw the pictures of the README and of the documentation into docs/images: `python docs/pictures.py`."""

from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from gpflow.base import AnyNDArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from gpflow_pep import PEPR, FitResult, PEPClassifier, StreamingSGPR, fit
from gpflow_pep.inducing import k_means

IMAGES = Path(__file__).parent / "images"
LINE, BAND, DATA, OLD = "#1f5a99", "#b9d2ea", "#333333", "#b0b0b0"
CLASSES = ("#c2542d", "#1f5a99")


def latent(x: AnyNDArray) -> AnyNDArray:
    """Latent function, [n, 1] -> [n, 1]."""
    return np.asarray(np.sin(3.0 * x) + 0.5 * np.cos(5.0 * x))


def draw_prediction(axes: Axes, model: gpflow.models.GPModel, x: AnyNDArray) -> None:
    """Draw mean and two standard deviations of new observations, and the inducing points."""
    mean, variance = (np.ravel(values) for values in model.predict_y(x[:, None]))
    axes.fill_between(x, mean - 2.0 * variance**0.5, mean + 2.0 * variance**0.5, color=BAND, lw=0)
    axes.plot(x, mean, color=LINE, lw=1.5)
    points = np.ravel(model.inducing_variable.Z)
    axes.plot(points, np.full_like(points, -2.3), "|", color=LINE, ms=8, mew=1.5)
    axes.set(xlim=(x[0], x[-1]), ylim=(-2.5, 2.3), xticks=[], yticks=[])


def regression() -> Figure:
    """Draw three powers with few inducing points: the bound finds too much noise, FITC too little."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0.0, 6.0, (150, 1)), axis=0)
    Y = latent(X) + 0.15 * rng.standard_normal(X.shape)
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.3), layout="constrained")
    for axes, alpha, name in zip(panels, (0.0, 0.5, 1.0), ("α = 0 (SGPR)", "α = 0.5", "α = 1 (FITC)"), strict=True):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3)
        model = PEPR((X, Y), kernel, np.linspace(0.3, 5.7, 8)[:, None], alpha=alpha, noise_variance=0.1)
        fit(model)
        draw_prediction(axes, model, np.linspace(0.0, 6.0, 300))
        axes.plot(X, Y, ".", color=DATA, ms=2.5)
        deviation = model.likelihood.variance.numpy() ** 0.5
        axes.set_title(f"{name}: noise {deviation:.2f}", fontsize=10)
    return figure


def classification() -> Figure:
    """Draw the probability of a class by EP, with its contour at one half and the inducing points."""
    X, labels = make_moons(300, noise=0.25, random_state=0)
    model = PEPClassifier(
        (X, labels[:, None].astype(float)), gpflow.kernels.SquaredExponential(), inducing_variable=k_means(X, 15)
    )
    fit(model, max_iterations=50)
    grid = np.linspace(-2.0, 3.0, 90), np.linspace(-1.5, 2.0, 70)
    places = np.stack(np.meshgrid(*grid), axis=-1)
    probability = np.reshape(model.predict_y(places.reshape(-1, 2))[0], places.shape[:2])
    figure, axes = plt.subplots(figsize=(4.2, 2.9), layout="constrained")
    filled = axes.contourf(*grid, probability, levels=np.linspace(0.0, 1.0, 11), cmap="RdBu", alpha=0.6)
    axes.contour(*grid, probability, levels=[0.5], colors="black", linewidths=1.2)
    for label, color in enumerate(CLASSES):
        axes.plot(*X[labels == label].T, ".", color=color, ms=3)
    axes.plot(*np.transpose(model.inducing_variable.Z), "o", mfc="white", mec="black", ms=5)
    axes.set(xlim=(-2.0, 3.0), ylim=(-1.5, 2.0), xticks=[], yticks=[])
    axes.set_title("PEPClassifier, α = 0.5, 15 inducing points", fontsize=10)
    figure.colorbar(filled, ticks=[0.0, 0.5, 1.0])
    return figure


def stream() -> Figure:
    """Draw a stream after its first, third and fifth batch; discarded rows are gray."""
    rng = np.random.default_rng(2)
    X = np.sort(rng.uniform(0.0, 6.0, (250, 1)), axis=0)
    Y = latent(X) + 0.15 * rng.standard_normal(X.shape)
    batches = np.array_split(np.arange(250), 5)
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.3), layout="constrained")
    kernel, Z = gpflow.kernels.SquaredExponential(lengthscales=0.5), np.linspace(0.0, 6.0, 18)[:, None]
    model = StreamingSGPR((X[batches[0]], Y[batches[0]]), kernel, Z, noise_variance=0.05)
    gpflow.set_trainable(model.inducing_variable, False)
    for number, rows in enumerate(batches):
        if number:
            model.update((X[rows], Y[rows]))
        fit(model, max_iterations=20)
        if number % 2 == 0:
            axes = panels[number // 2]
            draw_prediction(axes, model, np.linspace(0.0, 6.0, 300))
            axes.plot(X[: rows[0]], Y[: rows[0]], ".", color=OLD, ms=2.5)
            axes.plot(X[rows], Y[rows], ".", color=DATA, ms=2.5)
            axes.set_title(f"StreamingSGPR, batch {number + 1}", fontsize=10)
    return figure


def training() -> Figure:
    """Draw objective and held-out NLPD of a training run: the first phase, the second, and its stricter end."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (1000, 2))
    Y = np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:]) + np.sin(X[:, :1] * X[:, 1:]) + 0.1 * rng.standard_normal((1000, 1))
    train, held_out, Z = (X[:500], Y[:500]), (X[500:], Y[500:]), k_means(X[:500], 30, seed=0)

    def run(tolerance: float) -> tuple[FitResult, int]:
        """Train; return the result, and the number of iterations before the inducing points moved."""
        model = PEPR(train, gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]), Z, alpha=0.5)
        moved: list[bool] = []
        result = fit(
            model,
            tolerance=tolerance,
            held_out=held_out,
            callback=lambda *_: moved.append(not np.array_equal(model.inducing_variable.Z, Z)),
        )
        return result, moved.index(True)

    (default, first), (strict, _) = run(5e-4), run(1e-6)
    end = default.iterations
    np.testing.assert_allclose(strict.objective[:end], default.objective, rtol=1e-6)  # the same run, continued
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 2.6), layout="constrained")
    curves = {"objective, nats": strict.objective, "held-out NLPD, nats per row": strict.held_out["nlpd"]}
    for axes, (name, values) in zip(panels, curves.items(), strict=True):
        axes.axvspan(1, first, color=BAND, lw=0)
        axes.plot(strict.recorded[:end], values[:end], color=LINE, lw=1.5)
        axes.plot(strict.recorded[end - 1 :], values[end - 1 :], color=OLD, lw=1.5)
        axes.plot(end, values[end - 1], "o", color=LINE, ms=5)
        for number, place in ((1, 0.5 * (1 + first)), (2, 0.5 * (first + end))):
            axes.text(place, 0.5, str(number), transform=axes.get_xaxis_transform(), ha="center")
        axes.set(xlabel="iteration", xlim=(1, strict.iterations))
        axes.set_title(name, fontsize=10)
    return figure


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (regression, classification, stream):
        draw().savefig(IMAGES / f"{draw.__name__}.png", dpi=100, pil_kwargs={"optimize": True})
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "training"})
    training().savefig(IMAGES / "training.svg", metadata={"Date": None})
