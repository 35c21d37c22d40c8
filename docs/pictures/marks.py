"""Draw the logo and the badges of the README: `PYTHONPATH=. python docs/pictures/marks.py`.

Badges say what setup.cfg and the package say; a test compares them.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath

import gpflow_pep
from gpflow_pep.plotting import BAND, PREDICTION
from style import ROOT

BADGES = {
    "python": "3.10 | 3.11 | 3.12",
    "license": "Apache-2.0",
    "version": gpflow_pep.__version__,
}
HEIGHT, FONT = 20.0, 10.5  # of a badge, in points

plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "gpflow_pep"}


def empty(width: float, height: float) -> tuple[Figure, plt.Axes]:
    """Return a transparent figure of this size in points, with axes in points."""
    figure = plt.figure(figsize=(width / 72.0, height / 72.0))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0.0, width), ylim=(0.0, height))
    axes.axis("off")
    return figure, axes


def logo() -> Figure:
    """Draw a mean, two standard deviations and three inducing points."""
    figure, axes = empty(64.0, 64.0)
    x = np.linspace(4.0, 60.0, 100)
    mean = 32.0 + 13.0 * np.sin((x - 4.0) * 2.0 * np.pi / 44.0)
    std = 4.0 + 0.006 * (x - 32.0) ** 2
    axes.fill_between(x, mean - 2.0 * std, mean + 2.0 * std, color=BAND, lw=0.0)
    axes.plot(x, mean, color=PREDICTION, lw=4.5, solid_capstyle="round")
    points = [15, 50, 85]
    axes.plot(x[points], mean[points], "o", mfc="white", mec=PREDICTION, ms=8, mew=2.5)
    return figure


def badge(label: str, value: str) -> Figure:
    """Draw a label on gray and its value on blue."""
    sizes = [
        TextPath((0, 0), text, size=FONT).get_extents().width + 14.0
        for text in (label, value)
    ]
    figure, axes = empty(sum(sizes), HEIGHT)
    outline = FancyBboxPatch(
        (0, 0), sum(sizes), HEIGHT, boxstyle="round,pad=0,rounding_size=3", lw=0
    )
    axes.add_patch(outline)
    outline.set_visible(False)
    left = 0.0
    for text, size, color in zip(
        (label, value), sizes, ("#555555", PREDICTION), strict=True
    ):
        part = axes.add_patch(Rectangle((left, 0.0), size, HEIGHT, color=color, lw=0.0))
        part.set_clip_path(outline)
        axes.text(
            left + size / 2.0,
            HEIGHT / 2.0,
            text,
            size=FONT,
            color="white",
            ha="center",
            va="center_baseline",
        )
        left += size
    return figure


if __name__ == "__main__":
    pictures = {ROOT / "docs" / "static" / "logo.svg": logo()}
    for name, value in BADGES.items():
        path = ROOT / "docs" / "images" / "badges" / f"{name}.svg"
        pictures[path] = badge(name, value)
    for path, figure in pictures.items():
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        print(path.name, path.stat().st_size)
