"""The tables of `experiments.structured`: means over repeats, and published figures if there are any."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.cells.cell import Result
from experiments.report.columns import aligned, mean_and_error
from experiments.report.endings import endings
from experiments.report.published import STRUCTURED_KIN40K

Results = dict[str, list[Result]]
"""Results of the repeats, by method."""

Course = dict[str, tuple[list[int], list[float]]]
"""Iterations and values, by scalar."""

_CLOSE = 0.02  # accepted difference between the mean of repeats and a published figure
_EFFORT = ("seconds", "iterations", "limit", "stopped")
_COLUMNS = {
    "Obj": ("objective_per_point", -1.0),
    "RMSE": ("rmse", 1.0),
    "LL": ("nlpd", -1.0),
    "sigma": ("noise_sd", 1.0),
}
"""Columns of S2 and S3: entry of the result, and its sign in the table."""


def read_course(result: Result) -> Course:
    """Read the logged scalars of a recorded run."""
    metrics = json.loads((Path(result["directory"]) / "metrics.json").read_text())
    return {name: (of["steps"], of["values"]) for name, of in metrics.items()}


def _effort(results: Sequence[Result], maxiter: int) -> tuple[str, ...]:
    seconds, iterations = (np.mean([result[entry] for result in results]) for entry in ("seconds", "iterations"))
    return f"{seconds:.0f}", f"{iterations:.0f}", *endings(results, maxiter)


def _mean(results: Sequence[Result], entry: str, sign: float = 1.0) -> str:
    return mean_and_error([sign * result[entry] for result in results], digits=3)


def scores(results: Results, maxiter: int) -> str:
    """
    Return the table of S3, and of S2 without published figures.

    :param maxiter: largest number of iterations.
    """
    lines: list[tuple[str, ...]] = [("method", *_COLUMNS, *_EFFORT)]
    for method, of_method in results.items():
        cells = (_mean(of_method, entry, sign) for entry, sign in _COLUMNS.values())
        lines.append((method, *cells, *_effort(of_method, maxiter)))
    return aligned(lines)


def beside_published(results: Results, maxiter: int) -> str:
    """Return the table of S2 at its published size, and the deviations from published figures."""
    lines: list[tuple[str, ...]] = [
        ("method", *(heading for column in _COLUMNS for heading in (column, "published")), "ratio of Obj", *_EFFORT)
    ]
    differing = []
    for method, of_method in results.items():
        cells = []
        published = STRUCTURED_KIN40K[method]
        for (column, (entry, sign)), there in zip(_COLUMNS.items(), published, strict=True):
            cells += [_mean(of_method, entry, sign), f"{there:.3f}"]
            difference = sign * np.mean([result[entry] for result in of_method]) - there
            if column != "Obj" and abs(difference) > _CLOSE:
                differing.append(f"{method}: {column} {difference:+.3f}")
        objective = -np.mean([result["objective_per_point"] for result in of_method])
        lines.append((method, *cells, f"{published.objective / objective:.2f}", *_effort(of_method, maxiter)))
    verdict = f"RMSE, LL and sigma are within {_CLOSE} of the published"
    return f"{aligned(lines)}\n\n{verdict}{' except ' if differing else ''}{'; '.join(differing)}."


def variances(results: Results, maxiter: int) -> str:
    """Return the table of S1."""
    lines: list[tuple[str, ...]] = [("method", "evidence", "noise", "kernel", "RMSE", "LL", *_EFFORT)]
    for method, of_method in results.items():
        kernel = [read_course(result)["parameters/kernel.variance"][1][-1] for result in of_method]
        noise = [result["noise_sd"] ** 2 for result in of_method]
        cells = _mean(of_method, "objective_per_point"), *(mean_and_error(of, digits=3) for of in (noise, kernel))
        lines.append(
            (method, *cells, _mean(of_method, "rmse"), _mean(of_method, "nlpd", -1.0), *_effort(of_method, maxiter))
        )
    return aligned(lines)


def scales(results: Results) -> str:
    """Return the table of S4, with pairs of methods."""
    lines: list[tuple[str, ...]] = [
        ("alpha", "RMSE m = 1", "learned", "learned − 1", "LL m = 1", "learned", "learned − 1", "m", "seconds")
    ]
    for method, fixed in results.items():
        learned = results.get(f"T-{method}")
        if learned is None:
            continue
        cells: list[str] = []
        for entry, sign in (("rmse", 1.0), ("nlpd", -1.0)):
            values = [[sign * result[entry] for result in of] for of in (fixed, learned)]
            cells += (mean_and_error(of, digits=3) for of in (*values, np.subtract(values[1], values[0]).tolist()))
        seconds = np.mean([result["seconds"] for result in (*fixed, *learned)])
        lines.append((method.split()[1], *cells, _mean(learned, "scale"), f"{seconds:.0f}"))
    return aligned(lines)
