"""Figures of recorded runs, from their logged scalars and stored predictions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binned_statistic

from experiments import datasets
from experiments.datasets import Floats
from experiments.ingredients.stream import arriving
from experiments.papers.grid import Record, Records, Shown, by_label, grouped
from experiments.papers.pictures import (
    REFERENCE,
    Course,
    Picture,
    add_legend,
    courses,
    line_label,
    panels,
)
from experiments.papers.tables import ERROR, NLPD, SECONDS, means
from experiments.protocols.records import read_json
from experiments.report import decision, frames
from experiments.report.fit import draw_posterior
from experiments.report.recorded import RecordedRun, read_run
from experiments.report.style import color, line_style, tidy
from gpflow_pep.plotting import ROWS

_LABELS = {"rmse": "RMSE", "error": "error", "log_likelihood": "mean log likelihood, nats"}


def run_of(record: Record) -> RecordedRun:
    """Read the run of a record."""
    return read_run(Path(record["directory"]))


def of_recorded_runs(draw: Callable[..., Picture]) -> Callable[..., Picture | None]:
    """
    Draw only the runs that are recorded on this machine; None if there are none. Stored results
    have no courses.
    """

    @wraps(draw)
    def drawn(records: Records, *arguments: Any, **options: Any) -> Picture | None:
        here = [record for record in records if "directory" in record.result]
        if not here:
            return None
        picture = draw(here, *arguments, **options)
        if len(here) == len(records):
            return picture
        note = f"{picture.note} {len(here)} of {len(records)} runs.".strip()
        return replace(picture, note=note)

    return drawn


def logged(record: Record, along: str = "steps") -> Course:
    """
    Read the logged scalars of a run: coordinates and values by name.

    :param along: "steps", or a logged scalar; its zeros are left out.
    """
    path = Path(record["directory"]) / "metrics.json"
    try:
        found = {name: (of["steps"], of["values"]) for name, of in read_json(path).items()}
        places = None if along == "steps" else dict(zip(*found[along], strict=True))
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a record of scalars ({error!r}): delete the folder of the run to "
            "repeat it."
        ) from error
    if places is None:
        return found
    for name, (steps, values) in found.items():
        pairs = [
            (places[s], value) for s, value in zip(steps, values, strict=True) if places.get(s)
        ]
        found[name] = ([x for x, _ in pairs], [y for _, y in pairs])
    return found


@of_recorded_runs
def training(
    records: Records,
    scalars: Mapping[str, str],
    title: str,
    along: str = "iteration",
    levels: Mapping[str, float] = {},
) -> Picture:
    """
    Draw logged scalars against the iterations, or the rows of a stream, a line for each method.

    :param levels: true values, drawn as horizontal lines.
    """
    values = {str(record["method"]): logged(record) for record in records}
    picture = courses(values, scalars, along, title)
    for here, name in zip(picture.figure.axes, scalars, strict=True):
        if name in levels:
            here.axhline(levels[name], **REFERENCE)
    return picture


@of_recorded_runs
def against_seconds(records: Records, line: Callable[[Record], str], title: str) -> Picture:
    """Draw test scores against seconds of training, a line for each run."""
    scores = {"test/nlpd": "test NLPD, nats", "test/error": "test error"}
    values = {line(record): logged(record, "seconds") for record in records}
    return courses(values, scores, "seconds of training", title, logarithmic=True)


def scores_and_seconds(records: Records, repeat: str, *by: str) -> Shown:
    """
    Show final scores, and test scores of the first repeat against seconds of training: a figure for
    each method and M, a line for each alpha.
    """
    yield means(records, by, (ERROR, NLPD, SECONDS), "Final scores")
    first = [record for record in records if record[repeat] == 0]
    for (method, M), group in grouped(first, "method", "M").items():
        title = f"Scores against seconds, {method}" + (f", M = {M}" if M else "")
        yield against_seconds(
            group, lambda record: line_label("alpha", record.labels.get("alpha")), title
        )


def streams(records: Records, title: str, along: str = "seconds") -> Picture:
    """Draw scores of the test points passed so far, a line for each method."""
    values: dict[str, Course] = {}
    scores: dict[str, str] = {}
    for record in records:
        course = record["course"]
        scores |= {name: text for name, text in _LABELS.items() if name in course}
        values[str(record["method"])] = {name: (course[along], course[name]) for name in scores}
    text = {"seconds": "seconds of training", "seen": "training rows"}[along]
    note = "All test points." if "error" in scores else "Test points passed so far."
    return courses(values, scores, text, title, logarithmic=along == "seconds", note=note)


@of_recorded_runs
def decisions(records: Records, title: str) -> Picture:
    """
    Draw decisions, training data and inducing points before and after training, a panel for each
    run.
    """
    runs = list(map(run_of, records))
    dataset = datasets.load(runs[0].config["data"]["dataset"])
    figure, axes = panels(len(runs), height=3.5, shared=True)
    for here, run in zip(axes, runs, strict=True):
        decision.draw_decision(here, run, dataset)
    decision.add_legend(
        figure, max(2, runs[0].predictions["probability"].shape[1]), 2 * min(len(runs), 4)
    )
    return Picture(title, figure, "Lines lead from the initial to the trained inducing points.")


@of_recorded_runs
def fits(records: Records, title: str) -> Picture:
    """
    Draw data, predictions and inducing points of regression with one input, a panel for each
    method.
    """
    figure, axes = panels(len(records), shared=True)
    for position, (here, record) in enumerate(zip(axes, records, strict=True)):
        run = run_of(record)
        data = run.config["data"]
        dataset = datasets.load(data["dataset"], data["split"])
        if data["include_test"]:
            dataset = dataset.trained_on_all()
        rows = dataset.published_x(dataset.X_train), dataset.published_y(dataset.Y_train)
        here.plot(*rows, ".", color=ROWS, markersize=3)
        arrays = (run.predictions[name] for name in ("x", "x_mean", "x_variance", "Z"))
        draw_posterior(here, dataset, color(position), *arrays)
        tidy(here, "x", "y")
        here.set_title(str(record["method"]), fontsize=10)
    return Picture(title, figure, "Dots: training rows; mean ± 2 s.d.; ticks: inducing points.")


@of_recorded_runs
def posteriors(records: Records, title: str) -> Picture:
    """Draw frames of the posterior in the course of streams, a row for each run."""
    runs = list(map(run_of, records))
    streams = [arriving(**run.config["data"], seed=run.config["seed"]) for run in runs]
    figure = frames.draw_frames(runs, streams)
    return Picture(
        title,
        figure,
        "Rows of the batch are dark, rows before it pale; ticks or ○: inducing points.",
    )


@of_recorded_runs
def reliability(records: Records, panel: str) -> Picture:
    """
    Draw the fraction of labels 1 against the predicted probability, over all runs of an alpha;
    binary labels.
    """
    parts = by_label(records, panel)
    figure, axes = panels(len(parts))
    for here, (name, of_part) in zip(axes, parts.items(), strict=True):
        here.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        for position, (value, group) in enumerate(by_label(of_part, "alpha").items()):
            places, fractions = _calibration(group)
            here.plot(places, fractions, label=line_label("alpha", value), **line_style(position))
        tidy(here, "predicted probability of label 1", "fraction of labels 1")
        here.set_title(str(name), fontsize=10)
    add_legend(figure)
    return Picture(
        "Reliability of probabilities",
        figure,
        "Test rows in bins of width 0.1, of at least ten rows.",
    )


def _calibration(records: Records) -> Floats:
    """Return mean probabilities and fractions of labels 1 in bins, [2, bins]."""
    parts = []
    for run in map(run_of, records):
        data = run.config["data"]
        labels = datasets.load(data["dataset"], data["split"]).Y_test
        parts.append(np.hstack([run.predictions["probability"], labels]))
    both = np.concatenate(parts).T
    means, _, bins = binned_statistic(both[0], both, bins=10, range=(0.0, 1.0))
    return means[:, np.bincount(bins, minlength=11)[1:] >= 10]


def contours(records: Records, scores: dict[str, str], title: str) -> Picture:
    """Draw contours of entries of the result over lengthscale and variance of the kernel."""
    figure, axes = panels(len(scores))
    xs, ys = (
        sorted({record[name] for record in records}) for name in ("lengthscales", "kernel_variance")
    )
    for here, (entry, label) in zip(axes, scores.items(), strict=True):
        found = {
            (record["lengthscales"], record["kernel_variance"]): record[entry] for record in records
        }
        values = np.array([[found.get((a, b), np.nan) for a in xs] for b in ys])
        filled = here.contourf(xs, ys, values, 12, cmap="viridis")
        here.contour(xs, ys, values, 12, colors="white", linewidths=0.4)
        figure.colorbar(filled, ax=here, label=label)
        tidy(here, "lengthscales", "kernel variance", logarithmic=True)
        here.set_yscale("log")
        here.grid(visible=False)
    return Picture(title, figure)
