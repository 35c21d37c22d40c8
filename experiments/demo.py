"""
Compare GPflow's sparse GP and the models of `gpflow_pep` on one real data set: the demonstration.

    python -m experiments.demo [--task regression] [--dataset diabetes] [--split 0] [--short]

Each method is a run of `experiments.regression`, `.classification` or `.streaming`, recorded in
``runs/``; a table and a figure compare them. `experiments.protocols.demonstrations` has the
settings.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.protocols.arguments import Parser, parser_of
from experiments.protocols.demonstrations import DEMONSTRATIONS

if TYPE_CHECKING:
    from experiments.papers.grid import Record
    from experiments.papers.pictures import Picture

_COLUMNS = {
    "regression": {"rmse": "RMSE", "nlpd": "NLPD", "noise_sd": "noise s.d."},
    "classification": {"error": "error", "nlpd": "NLPD", "loo_nlpd": "LOO NLPD"},
    "streaming": {
        "mean_rmse": "RMSE",
        "rmse": "at the end",
        "mean_log_likelihood": "log likelihood",
        "log_likelihood": "at the end",
    },
}
_SIGNS = {"log evidence": "=", "lower bound": "≥"}
_UNITS = {
    "regression": (
        "Log evidence: nats per training point, ≥ a lower bound of it, ≈ an approximation. RMSE "
        "and NLPD (nats) of\ntest points, with standardized targets. Seconds: training, tracing of "
        "the graph included."
    ),
    "classification": (
        "Log evidence: nats per training point, ≥ a lower bound of it, ≈ an approximation. Error: "
        "fraction of the\ntest labels. NLPD: mean negative log predictive probability (nats) of "
        "the test labels; LOO: of the training\nlabels, leave-one-out. Seconds: training, tracing "
        "of the graph included."
    ),
    "streaming": (
        "RMSE and mean log likelihood (nats) of test points: of points passed so far, mean over "
        "the batches; and of\nall points at the end. Seconds: training after the first batch."
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration; see ``--help``."""
    asked = _parser().parse_args(arguments)
    demonstration = DEMONSTRATIONS[asked.task]
    name = asked.dataset or demonstration.dataset
    print("Loading TensorFlow ...", flush=True)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.cells.cell import Cell
    from experiments.cells.processes import perform
    from experiments.ingredients.data import check_task
    from experiments.papers.grid import Record
    from experiments.report.recorded import read_run

    try:
        check_task(name, asked.task)
        datasets.load(name, asked.split)
    # No such set or split; no network, or not the published file.
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    common, methods = demonstration.configurations(name, split=asked.split, short=asked.short)
    print(f"Demonstration of {demonstration.title}.")
    print(
        f"{len(methods)} methods, L-BFGS, at most {common['maxiter']} iterations each:", flush=True
    )
    records = []
    for method in methods:
        cell = Cell(demonstration.experiment, {"progress": True} | common | method)
        print(cell, flush=True)
        result = perform(cell, asked.runs, "WARNING")
        records.append(Record({"method": read_run(Path(result["directory"])).title}, result))

    first = records[0]
    rows = f"N = {first['N']} training and {first['N_test']} test points, D = {first['D']}"
    heading = f"{name}, split {asked.split}: {rows}, M = {common['M']} inducing points"
    lines = _table(records, demonstration.experiment)
    print(
        f"\n{heading}\n{_UNITS[demonstration.experiment]}\n\n{lines}\n\n{demonstration.how_to_read}\n"
    )
    figure = asked.runs / f"demo-{name}.png"
    picture = _picture(records, demonstration.experiment, heading)
    assert picture is not None  # all runs are recorded
    picture.figure.savefig(figure, dpi=150)
    print(f"Figure: {os.path.relpath(figure)}")
    print(f"Runs:   {', '.join(os.path.relpath(record['directory']) for record in records)}\n")
    print(_what_next(asked.runs, demonstration.experiment, common | demonstration.example))


def _table(records: "Sequence[Record]", experiment: str) -> str:
    from experiments.report.columns import markdown

    columns = _COLUMNS[experiment]
    evidence = ["log evidence"] if experiment != "streaming" else []
    lines = [("method", *evidence, *columns.values(), "iterations", "seconds")]
    for record in records:
        scores = ["–" if record[name] is None else f"{record[name]:.4f}" for name in columns]
        iterations = str(record.result.get("iterations", "–"))
        if evidence:
            sign = _SIGNS.get(record["objective_kind"], "≈")
            scores.insert(0, f"{sign} {record['objective_per_point']:.4f}")
            iterations += " " if record["converged"] else "+" if record["at_limit"] else "!"
        lines.append((record["method"], *scores, iterations, f"{record['seconds']:.1f}"))
    marks = (
        "\n+: not converged at the last iteration; !: ended earlier without converging."
        if evidence
        else ""
    )
    return f"{markdown(lines)}{marks}"


def _picture(records: "Sequence[Record]", experiment: str, title: str) -> "Picture | None":
    """Draw fits of one input, decisions of two, courses of streams, and else the scores."""
    from experiments.papers.pictures import dots
    from experiments.papers.run_pictures import decisions, fits, streams

    if experiment == "streaming":
        return streams(records, title)
    if records[0]["D"] == 1:
        return fits(records, title)
    if experiment == "classification" and records[0]["D"] == 2:
        return decisions(records, title)
    return dots(records, {"objective_per_point": "log evidence", **_COLUMNS[experiment]}, title)


def _parser() -> Parser:
    parser = parser_of((__doc__ or "").split("\n\n")[0], "demo")
    parser.option("--task", "regression", "task (%(default)s)", choices=DEMONSTRATIONS)
    defaults = ", ".join(
        f"{task}: {demonstration.dataset}" for task, demonstration in DEMONSTRATIONS.items()
    )
    parser.option("--dataset", str, f"a name of experiments.datasets.names(task=...) ({defaults})")
    parser.option("--split", 0, "number of the train/test split (%(default)s)", type=int)
    parser.option("--short", False, "a few iterations only, to see that everything works")
    parser.option("--runs", Path("runs"), "folder of recorded runs (%(default)s)")
    return parser


def _what_next(runs: Path, experiment: str, example: dict[str, Any]) -> str:
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    single = " ".join(f"{name}={value}" for name, value in example.items() if value is not None)
    return (
        f"Training curves:  {python} -m tensorboard.main --logdir "
        f"{shlex.quote(os.path.relpath(runs))}\nA single run:     {python} -m "
        f"experiments.{experiment} with {single}\nAll settings:     {python} -m "
        f"experiments.{experiment} print_config"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Sacred has recorded the run as interrupted
        sys.exit("\nInterrupted. The runs so far are kept.")
