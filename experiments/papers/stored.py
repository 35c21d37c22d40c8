"""Results of runs that are kept with the repository: ``results/U2/runs.csv``, a line for each run."""

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cells.cell import Result
from experiments.papers.grid import Record

RESULTS = Path(__file__).parents[1] / "results"
"""Folder of the protocols' stored results."""

_KEY = "key"


@dataclass(frozen=True)
class _Line:
    labels: dict[str, str]
    result: dict[str, str]  # in JSON


class StoredRuns:
    """
    The file ``runs.csv`` in a folder: columns for labels, for the key of the run's cell, and for its result in JSON.

    Numbers have six digits; text is left out. The file is written under another name and then renamed: it is complete
    if the writer is killed.
    """

    def __init__(self, folder: Path):
        """
        :param folder: folder of a protocol's tables and figures.
        """
        self._path = folder / "runs.csv"

    def results(self) -> dict[str, Result]:
        """
        Return the stored results by key.

        :raises ValueError: if the file, or a line of it, is not as written.
        """
        found = {}
        for key, line in self._read().items():
            try:
                found[key] = {name: json.loads(value) for name, value in line.result.items()}
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{self._path}: the line of the run {key} is damaged ({error}): delete the line."
                ) from error
        return found

    def add(self, records: Sequence[Record]) -> None:
        """Store records beside those in the file, in place of those with their keys."""
        self._write(self._read() | {record.key: _line(record) for record in records})

    def replace(self, records: Sequence[Record]) -> None:
        """Store records in place of all in the file."""
        self._write({record.key: _line(record) for record in records})

    def _read(self) -> dict[str, _Line]:
        if not self._path.exists():
            return {}
        try:
            with self._path.open(newline="", encoding="utf-8") as file:
                headings, *rows = csv.reader(file)
            place = headings.index(_KEY)
        except (ValueError, csv.Error, OSError) as error:
            raise ValueError(
                f"{self._path} is not a table of runs ({error}): delete it to repeat all of them."
            ) from error
        lines = {}
        for number, row in enumerate(rows, 2):
            if len(row) != len(headings):
                raise ValueError(
                    f"{self._path}: line {number} has {len(row)} cells, and the first has {len(headings)}: delete it "
                    "to repeat its run."
                )
            cells = [(name, cell) for name, cell in zip(headings, row, strict=True)]
            labels, result = cells[:place], cells[place + 1 :]
            lines[row[place]] = _Line(
                {name: cell for name, cell in labels if cell},
                {name: cell for name, cell in result if cell},
            )
        return lines

    def _write(self, lines: dict[str, _Line]) -> None:
        labels = dict.fromkeys(name for line in lines.values() for name in line.labels)
        entries = dict.fromkeys(name for line in lines.values() for name in line.result)
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([*labels, _KEY, *entries])
            for key, line in lines.items():
                of_run = [line.labels.get(name, "") for name in labels]
                table.writerow([*of_run, key, *(line.result.get(name, "") for name in entries)])
        os.replace(temporary, self._path)


def _line(record: Record) -> _Line:
    return _Line(
        {name: str(value) for name, value in record.labels.items()},
        {
            name: json.dumps(_rounded(value))
            for name, value in record.result.items()
            if not isinstance(value, str)
        },
    )


def _rounded(value: Any) -> Any:
    """Round numbers to six digits, also in lists and objects."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value
