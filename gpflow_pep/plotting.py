"""
Pictures of predictions, classes, inducing points and training, as displays in the manner of
scikit-learn.

A color has one meaning: predictions are blue, rows gray, inducing points black, classes orange,
purple, teal and so on. The first three classes differ in lightness, for color-blind readers and
gray prints, and each has a marker.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPModel
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from typing_extensions import Self

from . import validation
from .models.kernels_and_inducing_variables import single_output_variables

PREDICTION, BAND, ROWS, OLD_ROWS, INDUCING = "#1f5a99", "#c3d9ef", "#555555", "#b8b8b8", "black"
POWERS = ("#8fbbe2", "#3a7cbf", "#123a6b")  # alpha = 0, 0.5 and 1
CLASSES, MARKERS = ("#e8962a", "#542788", "#147d72", "#c51b7d", "#f2cf4a", "#8c510a"), "o^sDvP"

_RESOLUTION = {1: 300, 2: 80}  # places along each of D inputs
_STRENGTH = 0.6  # of the color of a certain class: rows stay visible
_LABELS = {
    "objective": "objective, nats",
    "nlpd": "held-out NLPD, nats per row",
    "rmse": "held-out RMSE",
}

# Limits of each input; default: 5 per cent beyond the rows.
Limits = Sequence[float] | Sequence[Sequence[float]]


def draw_inducing_points(ax: Axes, Z: AnyNDArray) -> None:
    """Draw inducing points Z [M, D]: of one input as ticks at the bottom, of two as circles."""
    _check_axes(ax)
    Z = _places(Z, "Z")
    if Z.shape[1] == 1:
        ax.plot(
            Z[:, 0],
            np.full(len(Z), 0.03),
            "|",
            color=INDUCING,
            ms=9,
            mew=1.5,
            transform=ax.get_xaxis_transform(),
        )
    else:
        ax.plot(*Z.T, "o", mfc="white", mec=INDUCING, ms=4.5 if len(Z) <= 100 else 2.5, mew=0.8)


def draw_history(ax: Axes, result: Any, name: str = "objective", **line: Any) -> None:
    """
    Draw the "objective" of a training run against its iterations, or the held-out "nlpd" or "rmse".

    :param result: a :class:`gpflow_pep.FitResult`.
    """
    _check_axes(ax)
    # `training` imports this module, not the reverse.
    if not (hasattr(result, "recorded") and hasattr(result, "held_out")):
        raise ValueError(f"result must be a FitResult, as fit returns, got {result!r}.")
    values = {"objective": result.objective, **result.held_out}
    if name not in values:
        raise ValueError(
            f"name must be one of {', '.join(map(repr, values))}, as recorded, got {name!r}."
        )
    ax.plot(result.recorded, values[name], **{"color": PREDICTION} | line)
    ax.set(xlabel="iteration", ylabel=_LABELS[name])


def _check_axes(ax: object) -> None:
    if not isinstance(ax, Axes):
        raise ValueError(f"ax must be one Axes of matplotlib, got {ax!r}.")


def _places(X: object, name: str) -> AnyNDArray:
    """Return finite inputs [n, D] that can be drawn, D = 1 or 2."""
    places = validation.matrix(X, name, "D")
    if (D := places.shape[1]) not in _RESOLUTION:
        raise ValueError(
            f"{name} must have 1 or 2 columns, got {D}: see "
            "sklearn.inspection.PartialDependenceDisplay."
        )
    return places


class _ModelAsEstimator:
    """A model with the methods of an estimator that the displays call."""

    def __init__(self, model: GPModel):
        self.model_ = model
        count = getattr(model.likelihood, "num_classes", 2)
        self.classes_ = np.array(getattr(model.likelihood, "labels", range(count)))

    def predict(self, X: AnyNDArray, return_std: bool) -> tuple[AnyNDArray, AnyNDArray]:
        mean, variance = self.model_.predict_y(X)
        return mean.numpy(), np.sqrt(variance)

    def predict_proba(self, X: AnyNDArray) -> AnyNDArray:
        p: AnyNDArray = self.model_.predict_y(X)[
            0
        ].numpy()  # [n, C], or [n, 1] of the second of two classes
        if p.shape[1] > 1:
            return p
        return np.concatenate([1.0 - p, p], axis=1)


@dataclass(kw_only=True, repr=False)
class _Display:
    """Predictions on a grid over one or two inputs, the rows, and the inducing points."""

    grid: list[AnyNDArray]  # places along each input
    X: AnyNDArray  # [N, D]
    Z: list[AnyNDArray]  # [M, D], one or one for each latent function
    names: list[str]  # of the inputs
    _method: ClassVar[str]  # name of the method that predicts
    _predicted: ClassVar[Any]  # (estimator, places, y) -> the other fields
    _draw: ClassVar[Any]  # draws predictions and rows

    @classmethod
    def from_model(cls, model: GPModel, data: RegressionData, **options: Any) -> Self:
        """
        Draw `predict_y` of a model of GPflow and the data X [N, D], Y [N, P]; options as of
        `from_estimator`.
        """
        if not isinstance(model, GPModel):
            raise ValueError(f"model must be a model of gpflow_pep or GPflow, got {model!r}.")
        return cls.from_estimator(
            _ModelAsEstimator(model), *validation.regression_data(data), **options
        )

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Axes | None = None, limits: Limits | None = None
    ) -> Self:
        """
        Draw the predictions of a fitted estimator, and X [N, D], D = 1 or 2 (an array or a table of
        pandas), and y [N].

        `limits` default to 5 per cent beyond X. Inducing points of a pipeline are not drawn. The
        legend of classes is beside `ax`: give its figure layout="constrained".
        """
        if not hasattr(estimator, cls._method):
            raise ValueError(f"estimator must have the method {cls._method}, got {estimator!r}.")
        rows = _places(X, "X")
        D = rows.shape[1]
        if np.shape(y)[:1] != (len(rows),):
            raise ValueError(
                f"y must have one entry for each of {len(rows)} rows of X, got shape "
                f"{list(np.shape(y))}."
            )
        # 0.5 about a constant column.
        margin = np.where((width := np.ptp(rows, axis=0)) > 0.0, 0.05 * width, 0.5)
        ends = np.stack([rows.min(0) - margin, rows.max(0) + margin], axis=1)  # [D, 2]
        pairs = [limits] if np.asarray(limits).ndim == D == 1 else limits
        low, high = validation.shaped(pairs, (D, 2), ends, "limits").T
        if not (low < high).all():
            raise ValueError(f"limits must have a lower end below the upper end, got {limits!r}.")
        grid = list(np.linspace(low, high, _RESOLUTION[D], axis=1, dtype=rows.dtype))
        places: Any = np.stack([each.ravel() for each in np.meshgrid(*grid)], axis=1)  # [n, D]
        names: list[str] = ["x"] if D == 1 else ["x1", "x2"]
        if hasattr(X, "columns"):
            places = type(X)(places, columns=X.columns)
            names = [str(name) for name in X.columns]
        variable: Any = getattr(getattr(estimator, "model_", None), "inducing_variable", None)
        Z = [
            each.Z.numpy()
            for each in single_output_variables(variable)
            if isinstance(each, InducingPoints)
        ]
        return cls(
            grid=grid, X=rows, Z=Z, names=names, **cls._predicted(estimator, places, y)
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure; `ax_` has the picture."""
        if ax is not None:
            _check_axes(ax)
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self._draw(self.ax_)
        for Z in self.Z:
            draw_inducing_points(self.ax_, Z)
        for axis, ticks, name in zip("xy", self.grid, self.names, strict=False):
            self.ax_.set(**{f"{axis}label": name, f"{axis}lim": ticks[[0, -1]]})
        return self

    def _on_grid(self, values: AnyNDArray) -> AnyNDArray:
        """Reshape values of all places, [n, ...], for contours."""
        return values.reshape(*(len(ticks) for ticks in self.grid[::-1]), *values.shape[1:])


@dataclass(kw_only=True, repr=False)
class PredictionDisplay(_Display):
    """
    Mean and standard deviation of new observations over one or two inputs, with rows and inducing
    points.

    Over one input a band shows two standard deviations. Over two inputs filled contours show the
    mean of the first output and dashed ones its standard deviation.
    """

    Y: object  # [N] or [N, P]
    mean: AnyNDArray  # [n, P], of new observations at all places
    std: AnyNDArray  # [n, P]
    output: str  # name of the observations
    _method = "predict"

    @staticmethod
    def _predicted(estimator: Any, places: Any, y: Any) -> dict[str, Any]:
        validation.real_numbers(y, "y")
        mean, std = (v.reshape(len(places), -1) for v in estimator.predict(places, return_std=True))
        return {"Y": y, "mean": mean, "std": std, "output": str(getattr(y, "name", None) or "y")}

    def _draw(self, ax: Axes) -> None:
        if len(self.grid) == 1:
            colors: Any = (
                [(PREDICTION, BAND)]
                if self.mean.shape[1] == 1
                else [(c, (c, 0.25)) for c in CLASSES]
            )
            for mean, std, (line, band) in zip(
                self.mean.T, self.std.T, itertools.cycle(colors), strict=False
            ):
                ax.fill_between(self.grid[0], mean - 2.0 * std, mean + 2.0 * std, lw=0, color=band)
                ax.plot(self.grid[0], mean, color=line)
            ax.set_ylabel(self.output)
        else:
            filled = ax.contourf(*self.grid, self._on_grid(self.mean[:, 0]), 12, cmap="Blues")
            style: dict[str, Any] = {"colors": ROWS, "linewidths": 0.8, "linestyles": "dashed"}
            ax.clabel(ax.contour(*self.grid, self._on_grid(self.std[:, 0]), 3, **style), fontsize=7)
            ax.figure.colorbar(filled, ax=ax, label=self.output)
        ax.plot(*[*self.X.T, self.Y][:2], ".", color=ROWS, ms=3)


@dataclass(kw_only=True, repr=False)
class ClassDisplay(_Display):
    """Probabilities of classes over one or two inputs, with rows and inducing points.

    Over one input a line shows each class (of two, the second). Over two inputs the color shows the
    most probable class, white if all are equally probable, and lines separate the classes.
    """

    labels: AnyNDArray  # [N], indices of the rows' classes
    probabilities: AnyNDArray  # [n, C], at all places
    classes: list[str]  # their names
    _method = "predict_proba"

    @staticmethod
    def _predicted(estimator: Any, places: Any, y: Any) -> dict[str, Any]:
        p = estimator.predict_proba(places)
        classes: AnyNDArray = np.asarray(estimator.classes_)
        if np.shape(y)[1:] not in ((), (1,)) or not np.isin(y, classes).all():
            raise ValueError(
                f"y must have one label of classes_, {classes.tolist()}, for each row of X."
            )
        labels = np.searchsorted(classes, np.ravel(y))
        return {"labels": labels, "probabilities": p, "classes": [str(name) for name in classes]}

    def _draw(self, ax: Axes) -> None:
        p = self.probabilities
        count = len(self.classes)
        colors = [CLASSES[c % len(CLASSES)] for c in range(count)]
        shown = range(count) if count > 2 else (1,)
        if len(self.grid) == 1:
            for c in shown:
                ax.plot(self.grid[0], p[:, c], color=colors[c])
            ax.set(
                ylabel="probability" if count > 2 else f"probability of {self.classes[1]}",
                ylim=(-0.05, 1.05),
            )
        else:
            certainty = (count * p.max(axis=1, keepdims=True) - 1.0) / (count - 1.0)  # [n, 1]
            image = 1.0 - _STRENGTH * certainty * (
                1.0 - p @ np.array([to_rgb(color) for color in colors])
            )  # [n, 3]
            extent = (*self.grid[0][[0, -1]], *self.grid[1][[0, -1]])
            ax.imshow(
                self._on_grid(image),
                origin="lower",
                extent=extent,
                aspect="auto",
                interpolation="bilinear",
            )
            for c in shown:
                lead = p[:, c] - np.delete(p, c, axis=1).max(axis=1)
                if lead.min() < 0.0 < lead.max():
                    ax.contour(
                        *self.grid, self._on_grid(lead), [0.0], colors="black", linewidths=1.2
                    )
        for c, (color, name) in enumerate(zip(colors, self.classes, strict=True)):
            rows = self.X[self.labels == c]
            columns = (
                rows.T if rows.shape[1] == 2 else (rows[:, 0], np.full(len(rows), c / (count - 1)))
            )
            ax.plot(
                *columns,
                MARKERS[c % len(MARKERS)],
                color=color,
                mec="white",
                mew=0.4,
                ms=4.5,
                label=name,
            )
        # The legend hides no rows.
        ax.legend(title="class", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
