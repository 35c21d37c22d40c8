"""Pictures of measured figures: the tables of docs/benchmarks.md, and files of this folder.

`courses.json` is written by `python -m experiments.benchmarks.ep_training --sets banana pima
--rounds 1 --courses ...`; `multiclass.csv` and `kin40k.csv` are tables of docs/results.md. The
default estimators are compared by the records in experiments/benchmarks/records.
"""

import json
import re
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.benchmarks.rankings import summary
from experiments.benchmarks.tables import read
from gpflow_pep.plotting import OLD_ROWS, POWERS, PREDICTION
from style import ROOT, WIDTH

FOLDER = ROOT / "docs" / "pictures"
RECORDS = ROOT / "experiments" / "benchmarks" / "records"
METHODS = ("default", "sklearn-gp", "linear", "boosting")  # of docs/defaults.md
NEAREST = 0.005  # nats: the left end of distances to the best method
PEERS = ("#555555", "#8d8d8d", "#c6c6c6")  # gray: what this package is compared with


def tables(heading: str) -> list[list[list[str]]]:
    """Return the tables of a section of docs/benchmarks.md: rows of cells, without header."""
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [
        [
            [cell.strip(" `") for cell in line.split("|")[1:-1]]
            for line in each.splitlines()[2:]
        ]
        for each in found
    ]


def number(cell: str) -> float:
    """Read a number with separators of thousands."""
    return float(cell.replace(",", ""))


def step() -> Figure:
    """Draw the time of a training step of three libraries, for five kernels."""
    lines = tables("A training step of regression")[2]
    sgpr, pepr, _, factor, fitc, half = np.array(
        [list(map(number, line[1:7])) for line in lines]
    ).T
    bars = {
        "SGPR of GPyTorch": (PEERS[2], pepr * factor),
        "SGPR of GPflow": (PEERS[1], sgpr),
        "PEPR, α = 0": (POWERS[0], pepr),
        "FITC of GPflow": (PEERS[0], fitc),
        "PEPR, α = 0.5": (POWERS[1], half),
    }
    figure, axes = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    for place, (name, (color, seconds)) in enumerate(bars.items()):
        axes.bar(
            np.arange(len(lines)) + 0.17 * (place - 2),
            seconds,
            0.15,
            color=color,
            label=name,
        )
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])", "\n", line[0]) for line in lines]
    axes.set(xticks=range(len(lines)), xticklabels=names, ylabel="loss and gradient, s")
    axes.legend(fontsize=9, ncols=2)
    axes.set_ylim(0.0, 6.0)
    return figure


def memory() -> Figure:
    """Draw peak memory against the number of rows."""
    lines = tables("Memory")[0]
    figure, axes = plt.subplots(figsize=(0.8 * WIDTH, 3.0), layout="constrained")
    for name, color, marker in (("α = 0", POWERS[0], "o"), ("α = 0.5", POWERS[2], "^")):
        values = [
            list(map(number, line[1:])) for line in lines if line[0].endswith(name)
        ]
        rows, _, peak, matrix = np.transpose(values)
        axes.loglog(rows, peak, f"{marker}-", color=color, label=f"PEPR, {name}")
    axes.loglog(rows, matrix, "s--", color=PEERS[0], label="one M × N matrix")
    axes.set(xlabel="rows N", ylabel="memory beyond the data, MB", ylim=(20, 10_000))
    axes.legend()
    return figure


def courses() -> Figure:
    """Draw held-out NLPD against seconds of a first training run."""
    stored = json.loads((FOLDER / "courses.json").read_text(encoding="utf-8"))[
        "results"
    ]
    styles = {
        "PEP 0.5": (PREDICTION, "-"),
        "SVGP L-BFGS": (PEERS[0], "--"),
        "SVGP Adam": (PEERS[1], ":"),
    }
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.0), layout="constrained")
    for axes, name in zip(panels, ("banana", "pima"), strict=True):
        for run in stored:
            if run["set"] == name:
                color, style = styles[run["method"]]
                seconds = run["trajectory"]["seconds"]
                nlpd = run["trajectory"]["nlpd"]
                axes.plot(seconds, nlpd, style, color=color, label=run["method"])
                axes.plot(seconds[-1], nlpd[-1], "o", color=color, ms=4)
        axes.set(xscale="log", xlabel="CPU seconds", title=name)
    panels[0].set_ylabel("held-out NLPD, nats per row")
    panels[0].legend()
    return figure


def workers() -> Figure:
    """Draw bytes and seconds of a step against the number of workers."""
    lines = tables("Several workers")[0]
    count, seconds, sent = np.transpose([list(map(number, line[:3])) for line in lines])
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 2.6), layout="constrained")
    panels[0].plot(count, seconds, "o-", color=PREDICTION)
    panels[1].plot(count, sent / 1000.0, "o-", color=PREDICTION)
    for axes, name in zip(
        panels, ("s per step", "kB per step, all workers"), strict=True
    ):
        axes.set(
            xlabel="workers, on two shared cores",
            ylabel=name,
            xticks=count,
            ylim=(0, None),
        )
    return figure


def multiclass() -> Figure:
    """Draw published against obtained scores of eight data sets, with standard errors."""
    table = pd.read_csv(FOLDER / "multiclass.csv")
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.2), layout="constrained")
    for axes, score, unit in zip(
        panels, ("error", "nlpd"), ("error", "NLPD, nats"), strict=True
    ):
        for (alpha, rows), color, marker in zip(
            table.groupby("alpha"), POWERS, "os^", strict=True
        ):
            obtained, spread = rows[score], 2.0 * rows[f"{score}_se"]
            axes.errorbar(
                rows[f"{score}_published"],
                obtained,
                spread,
                fmt=marker,
                color=color,
                ms=5,
                lw=1,
                label=f"α = {alpha:g}",
            )
        end = 1.05 * table[[score, f"{score}_published"]].to_numpy().max()
        axes.plot([0, end], [0, end], ":", color="black", lw=1)
        axes.set(xlabel=f"published {unit}", ylabel=f"obtained {unit}", aspect="equal")
    panels[0].legend()
    return figure


def kin40k() -> Figure:
    """Draw published beside obtained scores of the structured bounds on kin40k."""
    table = pd.read_csv(FOLDER / "kin40k.csv")
    places = np.arange(len(table))[::-1]
    figure, panels = plt.subplots(
        1, 2, figsize=(WIDTH, 2.9), sharey=True, layout="constrained"
    )
    for axes, score, name in zip(
        panels, ("rmse", "ll"), ("RMSE", "log likelihood, nats per row"), strict=True
    ):
        axes.plot(
            table[f"{score}_published"],
            places,
            "o",
            mfc="white",
            mec=PEERS[0],
            label="published",
        )
        axes.errorbar(
            table[score],
            places,
            xerr=2.0 * table[f"{score}_se"],
            fmt="o",
            color=PREDICTION,
            label="obtained",
        )
        axes.set(xlabel=name, yticks=places, yticklabels=table["method"])
        axes.grid(axis="y", color=OLD_ROWS, lw=0.3)
    panels[0].legend(fontsize=9)
    return figure


def defaults() -> Figure:
    """Draw the comparison of the default estimators with other methods."""
    records = [
        record
        for task in ("regressions", "classes")
        for record in read(RECORDS / f"{task}.jsonl")
        if record["method"] in METHODS
    ]
    records.sort(key=lambda record: METHODS.index(record["method"]))
    return quality([table.as_data() for table in summary(records)])


def quality(found: list[dict[str, Any]]) -> Figure:
    """
    Draw the fraction of tables on which each method is at most so many nats from the best.

    :param found: what `python -m experiments.benchmarks.tables --summary --json FILE` writes.
    """
    compared = [each for each in found if each["title"].endswith(": NLPD")]
    figure, panels = plt.subplots(
        1,
        len(compared),
        figsize=(WIDTH, 3.2),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    styles = {
        "sklearn-gp": (PEERS[0], "-"),
        "sgpr": (PEERS[0], "--"),
        "svgp": (PEERS[0], ":"),
        "linear": (OLD_ROWS, "-"),
        "boosting": (OLD_ROWS, "--"),
    }
    for axes, table in zip(panels[0], compared, strict=True):
        methods = list(table["columns"])[3:]
        nlpd = np.array([[row[name] for name in methods] for row in table["rows"]])
        distances = np.sort(nlpd - nlpd.min(axis=1, keepdims=True), axis=0)
        fractions = np.arange(1, len(nlpd) + 1) / len(nlpd)
        for name, values in zip(methods, distances.T, strict=True):
            color, style = styles.get(name, (PREDICTION, "-"))
            places = np.maximum(values, NEAREST)
            axes.step(places, fractions, style, where="post", color=color, label=name)
        title = f"{table['title'].partition(':')[0]}, {len(nlpd)} tables"
        axes.set(xscale="log", xlim=(NEAREST, 3.0), ylim=(0.0, 1.02), title=title)
        axes.set_xlabel("NLPD above the best, nats")
    panels[0, 0].set_ylabel("fraction of tables")
    panels[0, 0].legend(fontsize=9)
    return figure


PICTURES = (step, memory, courses, workers, multiclass, kin40k, defaults)
