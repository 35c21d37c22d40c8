"""
Run an experiment for every combination of data sets, splits, models, powers and numbers of inducing
points.

    python -m experiments.sweep sweep.toml [--jobs 4] [--threads 1]
    python -m experiments.sweep sweep.toml --scheduler tcp://HOST:8786

The file lists the runs, here 2 × 3 × (1 + 2), since SGPR has no alpha:

    experiment = "regression"        # or "classification"
    dataset = ["boston", "yacht"]
    split = [0, 1, 2]
    model = ["SGPR", "PEPR"]
    alpha = [0.5, 1.0]
    M = [50]
    [options]                        # optional: other entries of the configuration
    maxiter = 100

Each run is recorded in ``runs/``; a file in ``runs/cells/`` says how it ended. Started again, the
command runs only the rest. A run that fails or is killed does not affect other runs. At the end a
table in Markdown gives means over the splits with their standard errors.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from experiments.papers.grid import Jobs, grid
from experiments.protocols.arguments import add_running, parser_of
from experiments.protocols.records import read_toml

_AXES = ("dataset", "model", "alpha", "M", "split")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a sweep; see ``--help``."""
    parser = parser_of(__doc__, "sweep")
    parser.add_argument("plan", type=Path, metavar="FILE", help="a TOML file, as above")
    add_running(parser)
    parser.option(
        "--scheduler",
        str,
        "a Dask scheduler, whose workers run the sweep (none)",
        metavar="ADDRESS",
    )
    asked = parser.parse_args(arguments)
    if asked.scheduler is not None and asked.jobs is not None:
        parser.error(
            "--jobs is for this machine; with --scheduler Dask has one for each thread of its "
            "workers."
        )
    if asked.scheduler is not None and find_spec("distributed") is None:
        parser.error(
            "--scheduler needs Dask: pip install -c constraints.txt -e '.[cluster,experiments]'."
        )

    # Imported after parsing the arguments, since it takes seconds.
    from experiments.papers.running import completed
    from experiments.papers.tables import ERROR, EVIDENCE, NLPD, RMSE, SECONDS, means

    try:
        jobs = read_plan(asked.plan)
        records, missing = completed(
            jobs,
            asked.runs,
            jobs=asked.jobs or 1,
            threads=asked.threads,
            scheduler=asked.scheduler,
        )
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    score = RMSE if jobs[0].cell.experiment == "regression" else ERROR
    if records:
        print(
            means(
                records,
                _AXES[:-1],
                (EVIDENCE, score, NLPD, SECONDS),
                "Means of the splits ± standard errors",
            )
        )
    if missing:
        sys.exit(f"\n{missing}")


def read_plan(path: Path) -> Jobs:
    """
    Read the runs of a sweep; a model without alpha, or without inducing points, has one run for all
    values.

    :raises ValueError: if a key is invalid; the message has its value and what is accepted.
    :raises OSError: if the file cannot be read.
    """
    from experiments import classification, regression
    from experiments.ingredients import classifier, model

    given = read_toml(path)
    accepted = {
        "regression": (regression.ex, model),
        "classification": (classification.ex, classifier),
    }
    keys = ("experiment", *_AXES)
    if set(given) - {"options"} != set(keys):
        raise ValueError(
            f"{path} has the keys {', '.join(given)}; accepted are {', '.join(keys)} and options."
        )
    if given["experiment"] not in accepted:
        raise ValueError(
            f"{path}: experiment is {given['experiment']!r}; accepted are {', '.join(accepted)}."
        )
    experiment, ingredient = accepted[given["experiment"]]
    for axis in _AXES:
        if not isinstance(given[axis], list) or not given[axis]:
            raise ValueError(
                f"{path}: {axis} is {given[axis]!r}; a list of at least one value is accepted."
            )
    options = given.get("options", {})
    for name in options:
        if name.rpartition(".")[2] in _AXES or not experiment.accepts(name):
            raise ValueError(
                f"{path}: options has {name!r}; other entries of the configuration are accepted."
            )
    jobs = []
    for name in given["model"]:
        axes = {axis: given[axis] for axis in _AXES} | {"model": [name]}
        if name not in ingredient.POWERED:
            del axes["alpha"]
        if name == "GPR":
            del axes["M"]
        jobs += grid(given["experiment"], options, **axes)
    return jobs


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Completed runs are kept; the same command goes on with the rest.")
