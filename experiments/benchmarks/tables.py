"""
Compare default estimators with other methods on tables: held-out scores and CPU seconds of the
first fit.

The tables are the files NAME.npz, X [N, D] and y [N], of the folder `tables` below
`GPFLOW_PEP_DATA`; a y that is not of floating point holds labels. Without that variable they are
the sets of the catalog that need no download. With `--catalog 1000` they are at most 1,000 random
rows of every set of the catalog, with `--blobs 100` 100 draws of 2 to 10 normal clusters
(:func:`experiments.datasets.generated.blobs`). Each fit has one core and a process of its own, and
appends a line of JSON to a file; fits that are there are skipped.

NLPD is in nats a held-out row, of y over the standard deviation of the training y, or the log loss;
the error is the RMSE of the same y, or the fraction of wrong labels. In summaries, the score of a
table is the mean over the seeds that all methods have; a fit without a score has an infinite one;
means are over tables, with scores above 3 set to 3.

A variant is a method with arguments: "default:alpha=1.0,n_draws=0", "svgp:M=50". `sgpr` is for
numbers only, `sklearn-gp` for at most 1,500 training rows with numbers, 800 with labels. GPflow's
models that reach the limit are scored as they are, others have no score then.

    python -m experiments.benchmarks.tables [NAME ...] [--methods default linear] [--seeds 0 1 2]
        [--rows 1100]
    python -m experiments.benchmarks.tables --catalog 1000 [NAME ...] [--records runs/catalog.jsonl]
    python -m experiments.benchmarks.tables --blobs 100 [--methods default svgp]
        [--records runs/blobs.jsonl]
    python -m experiments.benchmarks.tables --summary
"""

import argparse
import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from experiments import datasets
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.rankings import Record, Rows, num_classes, summary
from experiments.datasets.files import DIRECTORY_VARIABLE
from experiments.datasets.generated import blobs

METHODS = ("default", "sklearn-gp", "sgpr", "svgp", "linear", "boosting")
_ENTRIES = {"table", "method", "seed", "N", "D", "classes"}  # of every record
_SKLEARN_ROWS = {False: 1500, True: 800}  # of regression and classification
_TASKS = ("regression", "classification", "multiclass")
_key = itemgetter("table", "method", "seed")  # of a record


def main() -> None:
    """Run fits that have no record, and print the summary of all records."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables (all)")
    parser.option("--blobs", int, "this many generated tables of classes instead")
    parser.option("--catalog", int, "random rows of sets of the catalog instead, this many at most")
    parser.add_argument("--methods", nargs="+", type=_method, help="methods and variants (all)")
    parser.option("--seeds", [0], "of splits (0)", type=int)
    parser.option("--rows", 10**9, "rows of a table, at most")
    parser.option("--limit", 100, "CPU seconds of a fit (100)")
    parser.option("--records", Path("runs/tables.jsonl"), "the file")
    parser.option("--summary", False, "fit nothing; default: all records")
    arguments = parser.parse_args()
    if not arguments.summary:
        run(arguments)
    records = [
        record
        for record in read(arguments.records)
        if record["N"] <= arguments.rows
        and (not arguments.names or record["table"] in arguments.names)
        and (not arguments.methods or record["method"] in arguments.methods)
    ]
    write(summary(records), arguments.json)


def run(arguments: argparse.Namespace) -> None:
    """Run the fits that have no record yet, table by table."""
    # Imported here, since it takes seconds.
    from experiments.benchmarks.methods import fit_alone, of_table

    arguments.records.parent.mkdir(parents=True, exist_ok=True)
    done = {_key(record) for record in read(arguments.records)}
    shown = Table(
        "fits",
        {
            "table": "<16",
            "method": "<24",
            "seed": "d",
            "status": "<12",
            "seconds": ".1f",
            "NLPD": ".3f",
            "error": ".3f",
        },
    )
    sources = arguments.blobs, arguments.catalog
    for name, (X, y) in tables(arguments.names, arguments.rows, *sources):
        classes = num_classes(y)
        for seed in arguments.seeds:
            for method in arguments.methods or METHODS:
                of = {"table": name, "method": method, "seed": seed}
                if _key(of) in done or not _is_for(method, len(X), bool(classes)):
                    continue
                size = {"N": len(X), "D": X.shape[1], "classes": classes}
                record = of | size | fit_alone(arguments.limit, of_table, method, X, y, seed)
                with arguments.records.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                found = (record.get(key) for key in ("seconds", "nlpd", "error"))
                shown.add(name, method, seed, record["status"], *found)


def tables(
    names: list[str], rows: int, num_blobs: int | None = None, drawn: int | None = None
) -> Iterator[tuple[str, Rows]]:
    """
    Read tables of at most this many rows, or generate blobs, or draw at most `drawn` rows of sets
    of the catalog; the smallest first; no names: all.
    """
    folder = os.environ.get(DIRECTORY_VARIABLE)
    found: dict[str, Callable[[], Rows]]
    if num_blobs is not None:
        found = {f"blobs-{number}": partial(blobs, number) for number in range(num_blobs)}
    elif folder and drawn is None:
        files = sorted(Path(folder, "tables").glob("*.npz"))
        if not files:
            raise SystemExit(f"{folder}/tables must hold tables NAME.npz, found none.")
        found = {path.stem: partial(_from_file, path) for path in files}
    else:
        infos = [datasets.describe(name) for name in datasets.names()]
        found = {
            info.name: partial(_from_catalog, info.name, bool(info.classes), drawn)
            for info in infos
            if info.task in _TASKS and not (drawn is None and info.files)
        }
    if unknown := set(names) - set(found):
        raise SystemExit(f"{', '.join(sorted(unknown))}: no such table; there are {sorted(found)}.")
    loaded = {name: found[name]() for name in names or found}
    for name, (X, y) in sorted(loaded.items(), key=lambda item: len(item[1][1])):
        if len(y) <= rows:
            yield name, (X, y)


def _from_file(path: Path) -> Rows:
    try:
        with np.load(path) as arrays:
            return arrays["X"], arrays["y"]
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise SystemExit(f"{path} must be a file of arrays X and y: {error}") from error


def _from_catalog(name: str, has_classes: bool, drawn: int | None) -> Rows:
    found = datasets.load(name, standardize=False).trained_on_all()
    y = found.Y_train[:, 0]
    rows = np.arange(len(y))
    if drawn is not None:
        rows = np.random.default_rng(0).permutation(rows)[:drawn]
    return found.X_train[rows], y[rows].astype(int) if has_classes else y[rows]


def read(path: Path) -> list[Record]:
    """Read the records of a file; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SystemExit(
                f"{path}, line {number}, is not JSON ({error}): delete the line."
            ) from error
        if not isinstance(record, dict) or not record.keys() >= _ENTRIES:
            raise SystemExit(
                f"{path}, line {number}, is no record of a fit, got {line[:60]}: delete the line."
            )
        records.append(record)
    return records


def _is_for(method: str, N: int, is_classifier: bool) -> bool:
    name = method.partition(":")[0]
    few = min(3000, int(0.7 * N)) <= _SKLEARN_ROWS[is_classifier]
    return few if name == "sklearn-gp" else not (name == "sgpr" and is_classifier)


def _method(text: str) -> str:
    if text.partition(":")[0] not in METHODS:
        accepted = ", ".join(METHODS)
        raise argparse.ArgumentTypeError(f"{text!r} is none of {accepted}, nor a variant of one")
    return text


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, ends the fit in progress
    main()
