"""
Streams are exact at fixed hyperparameters: batches give the posterior of all rows at once, and with
inducing points at all inputs the exact GP (Bui, Nguyen and Turner 2017). If hyperparameters are
trained (appendix E.1), online objectives no longer add up to the objective of all rows: do not
compare their sums. Learned hyperparameters are compared with the true ones of draws from a GP (figs
8 and 9).
"""

import math
from functools import cache

from experiments import datasets
from experiments.datasets.generated import series_hyperparameters
from experiments.papers.grid import Jobs, Record, Records, Shown, by_label, grid
from experiments.papers.pictures import REFERENCE, Picture, add_legend, panels
from experiments.papers.run_pictures import training
from experiments.papers.t1 import STREAMING
from experiments.papers.tables import Lines, Score, Table, means, shown
from experiments.report.style import color, marker, tidy

_SERIES = "gp-series"
_HYPERPARAMETERS = {
    "kernel.lengthscales/0": "lengthscale",
    "kernel.variance": "kernel variance",
    "likelihood.variance": "noise variance",
}


def jobs(full: bool) -> Jobs:
    """Return comparisons at fixed hyperparameters, and streams with trained ones."""
    rows = {"rows": 600 if full else 200, "batches": 6}
    against = {"all rows, M = 20": {"exact": False}, "exact GP of 60 rows": {"exact": True}}
    fixed = grid("exactness", rows, against=against, alpha=(0.0, 0.5, 1.0))
    common = {
        "dataset": _SERIES,
        "first": 100,
        "batch_size": 100,
        "M": 50,
        "first_maxiter": 100,
        "window": 10**6,
    }
    if not full:
        common |= {"batch_size": 300, "maxiter": 10}
    methods = {**STREAMING, "exact GP of all rows": {"model": "GPR"}}
    return fixed + grid("streaming", common, split=range(10 if full else 3), method=methods)


def show(records: Records) -> Shown:
    """Show differences at fixed hyperparameters, and learned ones beside the true ones."""
    lines: Lines = [("stream against", "alpha", "objective, relative", "mean", "variance")]
    for r in records:
        if "against" in r.labels:
            differences = (f"{r[name]:.0e}" for name in ("objective", "mean", "variance"))
            lines.append((r["against"], shown(r["alpha"]), *differences))
    note = (
        "The stream's inducing points have a jitter of 1e-6 on their covariance; the exact GP has "
        "none."
    )
    yield Table("Largest differences at fixed hyperparameters", lines, note)

    streams = [record for record in records if "method" in record.labels]
    points = [point for record in streams for point in _points(record)]
    yield means(
        points,
        ("hyperparameter", "method"),
        (Score("error", "error of the logarithm"),),
        "Absolute errors of learned hyperparameters",
    )
    yield _against_true(points)
    first = by_label(streams, "split")[0]
    yield training(
        first,
        {f"parameters/{name}": text for name, text in _HYPERPARAMETERS.items()},
        "Hyperparameters along a stream",
        "training rows",
        {f"parameters/{name}": value for name, value in _true_hyperparameters(0).items()},
    )


def _points(record: Record) -> list[Record]:
    """Return a record for each hyperparameter, with its true and its learned value."""
    found = []
    for name, true in _true_hyperparameters(record["split"]).items():
        learned = record["hyperparameters"][name]
        labels = {**record.labels, "hyperparameter": _HYPERPARAMETERS[name]}
        error = abs(math.log(learned / true))
        found.append(Record(labels, {"true": true, "learned": learned, "error": error}))
    return found


def _against_true(points: Records) -> Picture:
    """Draw the learned hyperparameters against the true ones, a panel for each."""
    parts = by_label(points, "hyperparameter")
    figure, axes = panels(len(parts))
    for here, (text, of_part) in zip(axes, parts.items(), strict=True):
        true = sorted(point["true"] for point in of_part)
        here.plot(true, true, **REFERENCE)
        for position, (method, group) in enumerate(by_label(of_part, "method").items()):
            x, y = ([point[name] for point in group] for name in ("true", "learned"))
            here.plot(x, y, marker(position), color=color(position), label=method)
        tidy(here, f"true {text}", f"learned {text}", logarithmic=True)
        here.set_yscale("log")
    add_legend(figure)
    title = "Learned hyperparameters against the true ones"
    return Picture(title, figure, "A mark is a draw; targets are standardized.")


@cache
def _true_hyperparameters(split: int) -> dict[str, float]:
    """Return the hyperparameters of a draw with standardized targets."""
    lengthscale, noise_variance = series_hyperparameters(split)
    variance = float(datasets.load(_SERIES, split).y_scale[0]) ** 2
    values = (lengthscale, 1.0 / variance, noise_variance / variance)
    return dict(zip(_HYPERPARAMETERS, values, strict=True))
