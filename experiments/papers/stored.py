"""
Results of runs that are kept with the repository: ``results/U2/runs.csv``, a line for each run.

Its columns are labels, the key of the run's cell, and the result in JSON.
"""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cells.cell import Result
from experiments.papers.grid import Record

RESULTS = Path(__file__).parents[1] / "results"
"""Folder of the protocols' stored results."""

_FILE, _KEY = "runs.csv", "key"


def stored_results(folder: Path) -> dict[str, Result]:
    """
    Return the stored results by key.

    :param folder: folder of a protocol's tables and figures.
    :raises ValueError: if the file, or a line of it, is not as written.
    """
    path = folder / _FILE
    headings, lines = _read(path)
    entries = headings[headings.index(_KEY) + 1 :]
    found = {}
    for key, line in lines.items():
        try:
            if None in line:
                raise ValueError("it has more cells than the first line")
            found[key] = {name: json.loads(line[name]) for name in entries if line[name] != ""}
        # TypeError: the line has fewer cells.
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}: the line of the run {key} is damaged ({error}): delete the line to "
                "repeat the run."
            ) from error
    return found


def store(folder: Path, records: Sequence[Record]) -> None:
    """
    Store records beside those in the file, in place of those with their keys.

    Numbers have six digits; text is left out. The file is written under another name and then
    renamed: it is complete if the writer is killed.
    """
    path = folder / _FILE
    headings, lines = _read(path)
    place = headings.index(_KEY)
    labels = dict.fromkeys(headings[:place])
    entries = dict.fromkeys(headings[place + 1 :])
    for record in records:
        result = {
            name: _rounded(value)
            for name, value in record.result.items()
            if not isinstance(value, str)
        }
        labels |= dict.fromkeys(record.labels)
        entries |= dict.fromkeys(result)
        lines[record.key] = result | record.labels | {_KEY: record.key}
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        columns = [*labels, _KEY, *(name for name in entries if name not in labels)]
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(lines.values())
    os.replace(temporary, path)


def _read(path: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the headings, and the lines by key."""
    if not path.exists():
        return [_KEY], {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            headings = list(table.fieldnames or ())
            headings.index(_KEY)
            return headings, {line[_KEY]: line for line in table}
    except (ValueError, csv.Error, OSError) as error:
        raise ValueError(
            f"{path} is not a table of runs ({error}): delete it to repeat all of them."
        ) from error


def _rounded(value: Any) -> str:
    """Return a value in JSON, with numbers of six digits, also in lists and objects."""
    exact = json.dumps(value)
    return json.dumps(json.loads(exact, parse_float=lambda text: float(f"{float(text):.6g}")))
