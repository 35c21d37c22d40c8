"""Outcomes of cells on disk, the only record of completed cells."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from experiments.cells.cell import Cell, Outcome
from experiments.protocols.records import read_json

FOLDER = "cells"
"""Folder of the files, in the folder of the runs."""


class Outcomes:
    """
    A file for each cell that has ended, named by its key.

    A file is written under another name and then renamed: it is complete or missing if the writer
    is killed.
    """

    def __init__(self, runs: Path):
        """
        :param runs: folder of the recorded runs.
        """
        self._folder = runs / FOLDER

    def read(self, cell: Cell) -> Outcome | None:
        """
        Return the outcome of a cell; None if it has not ended.

        :raises ValueError: if :meth:`write` did not write the file for this cell.
        """
        path = self._path(cell)
        if not path.exists():
            return None
        try:
            values = read_json(path)
            outcome = Outcome(**{**values, "cell": Cell(**values["cell"])})
            if not isinstance(outcome.cell.updates, dict):
                raise ValueError("updates must be an object")
            if not isinstance(outcome.result, dict | None):
                raise ValueError("result must be an object")
            directory = (outcome.result or {}).get("directory", self._folder)
            if not Path(directory).is_dir():
                raise ValueError(f"the folder of its run, {directory}, is missing")
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is not the outcome of a run ({error}): delete it.") from error
        if outcome.cell.key != cell.key:
            raise ValueError(f"{path} is the outcome of {outcome.cell}, not of {cell}: delete it.")
        return outcome

    def write(self, outcome: Outcome) -> None:
        """Record an outcome, in place of an earlier one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(outcome.cell)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(asdict(outcome), indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.key}.json"
