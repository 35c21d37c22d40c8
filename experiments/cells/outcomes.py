"""
Outcomes of cells on disk, the only record of completed cells: a file for each cell that has ended, in the
folder ``cells`` of the runs, named by its key.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

from experiments.cells.cell import Cell, Outcome
from experiments.protocols.records import read_json


def read_outcome(runs: Path, cell: Cell) -> Outcome | None:
    """
    Return the outcome of a cell; None if it has not ended.

    :param runs: folder of the recorded runs.
    :raises ValueError: if :func:`write_outcome` did not write the file for this cell.
    """
    path = _path(runs, cell)
    if not path.exists():
        return None
    try:
        values = read_json(path)
        outcome = Outcome(**values | {"cell": Cell(**values["cell"])})
        if not isinstance(outcome.cell.updates, dict):
            raise ValueError("updates must be an object")
        if not isinstance(outcome.result, dict | None):
            raise ValueError("result must be an object")
        directory = (outcome.result or {}).get("directory", runs)
        if not Path(directory).is_dir():
            raise ValueError(f"the folder of its run, {directory}, is missing")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not the outcome of a run ({error}): delete it.") from error
    if outcome.cell.key != cell.key:
        raise ValueError(f"{path} is the outcome of {outcome.cell}, not of {cell}: delete it.")
    return outcome


def write_outcome(runs: Path, outcome: Outcome) -> None:
    """
    Record an outcome, in place of an earlier one.

    The file is written under another name and then renamed: it is complete or missing if the writer
    is killed.
    """
    path = _path(runs, outcome.cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(outcome), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _path(runs: Path, cell: Cell) -> Path:
    return runs / "cells" / f"{cell.key}.json"
