"""
Compare GPflow's sparse GP and the models of `gpflow_pep` on one real data set: the demonstration.

    python -m experiments.demo [--task regression] [--dataset diabetes] [--split 0] [--short]

Each method is a run of `experiments.regression`, `.classification` or `.streaming`, recorded in ``runs/``; a table and
a figure compare them. `experiments.protocols.demonstrations` has the settings.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.protocols.demonstrations import DEMONSTRATIONS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration; see ``--help``."""
    asked = _parser().parse_args(arguments)
    demonstration = DEMONSTRATIONS[asked.task]
    name = asked.dataset or demonstration.dataset
    print("Loading TensorFlow ...", flush=True)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import classification, datasets, regression, streaming
    from experiments.ingredients.data import check_task
    from experiments.recording.experiment import run_directory
    from experiments.report.figure import draw
    from experiments.report.recorded import read_run
    from experiments.report.table import heading, table, units

    try:
        check_task(name, asked.task)
        dataset = datasets.load(name, asked.split)
    except (ValueError, OSError) as error:  # no such set or split; no network, or not the published file
        sys.exit(str(error))
    experiments = {"regression": regression.ex, "classification": classification.ex, "streaming": streaming.ex}
    ex = experiments[demonstration.experiment]
    common, methods = demonstration.configurations(name, split=asked.split, short=asked.short)
    print(f"Demonstration of {demonstration.title}.")
    print(f"{len(methods)} methods, L-BFGS, at most {common['maxiter']} iterations each:", flush=True)
    options = {"--file_storage": str(asked.runs), "--loglevel": "WARNING"}
    directories = []
    for method in methods:
        directory = run_directory(ex.run(config_updates=common | method, options=options))
        assert directory is not None  # file_storage is among the options
        directories.append(directory)

    runs = [read_run(directory) for directory in directories]
    print(f"\n{heading(runs)}\n{units(runs)}\n\n{table(runs)}\n\n{demonstration.how_to_read}\n")
    figure = asked.runs / f"demo-{name}.png"
    draw(runs, dataset, figure)
    print(f"Figure: {os.path.relpath(figure)}")
    print(f"Runs:   {', '.join(os.path.relpath(directory) for directory in directories)}\n")
    print(_what_next(asked.runs, demonstration.experiment, common | demonstration.example))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--task", choices=list(DEMONSTRATIONS), default="regression", help="task (%(default)s)")
    defaults = ", ".join(f"{task}: {demonstration.dataset}" for task, demonstration in DEMONSTRATIONS.items())
    parser.add_argument("--dataset", help=f"a name of experiments.datasets.names(task=...) ({defaults})")
    parser.add_argument("--split", type=int, default=0, help="number of the train/test split (%(default)s)")
    parser.add_argument("--short", action="store_true", help="a few iterations only, to see that everything works")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _what_next(runs: Path, experiment: str, example: dict[str, Any]) -> str:
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    single = " ".join(f"{name}={value}" for name, value in example.items() if value is not None)
    return (
        f"Training curves:  {python} -m tensorboard.main --logdir {shlex.quote(os.path.relpath(runs))}\n"
        f"A single run:     {python} -m experiments.{experiment} with {single}\n"
        f"All settings:     {python} -m experiments.{experiment} print_config"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Sacred has recorded the run as interrupted
        sys.exit("\nInterrupted. The runs so far are kept.")
