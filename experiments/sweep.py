"""
Run an experiment for every combination of data sets, splits, models, powers and numbers of inducing points.

    python -m experiments.sweep sweep.toml [--jobs 4] [--threads 1]
    python -m experiments.sweep sweep.toml --scheduler tcp://HOST:8786

The file lists the runs, here 2 × 3 × (1 + 2), since SGPR has no alpha:

    experiment = "regression"        # or "classification"
    datasets = ["boston", "yacht"]
    splits = [0, 1, 2]
    models = ["SGPR", "PEPR"]
    alphas = [0.5, 1.0]
    M = [50]
    settings = "S4"                  # optional: a named configuration
    seed = 0                         # optional
    [options]                        # optional: other entries of the configuration
    maxiter = 100

Each run has a process of its own and is recorded in ``runs/``; a file in ``runs/cells/`` says how it ended. Started
again, the command runs only the rest. A run that fails or is killed does not affect other runs. At the end a table in
Markdown gives means over the splits with their standard errors.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from experiments.protocols.arguments import count


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a sweep; see ``--help``."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.scheduler is not None and asked.jobs is not None:
        parser.error("--jobs is for this machine; with --scheduler Dask has one for each thread of its workers.")
    if asked.scheduler is not None and find_spec("distributed") is None:
        parser.error("--scheduler needs Dask: pip install -c constraints.txt -e '.[cluster,experiments]'.")

    # Imported after parsing the arguments, since it takes seconds.
    from experiments.cells.cell import not_completed
    from experiments.cells.plan import read_plan
    from experiments.cells.running import run_cells
    from experiments.report.sweep_table import HOW_TO_READ, sweep_table

    try:
        cells = read_plan(asked.plan)
        outcomes = run_cells(cells, asked.runs, jobs=asked.jobs or 1, threads=asked.threads, scheduler=asked.scheduler)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    print(f"{sweep_table(outcomes)}\n\n{HOW_TO_READ}")
    missing = not_completed(outcomes)
    if missing:
        sys.exit(f"\n{missing}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sweep",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", type=Path, metavar="FILE", help="a TOML file, as above")
    parser.add_argument("--jobs", type=count, help="runs at once on this machine (1)")
    parser.add_argument("--threads", type=count, help="threads of a run (the cores divided by the jobs; with Dask 1)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, whose workers run the sweep (none)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Completed runs are kept; the same command goes on with the rest.")
