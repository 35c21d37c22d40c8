"""The history that a checkpoint holds."""

import math
from typing import Any, NamedTuple

from .. import validation
from .result import STATUSES


class SavedHistory(NamedTuple):
    """The history of a training run up to the checkpoint, as JSON data."""

    iterations: int
    seconds: float
    recorded: list[int]
    objective: list[float]
    held_out: dict[str, list[float]]
    ended: list[str] | None
    """Status and reason of a run that had ended; None if it had not."""


def saved_history_of(value: Any) -> SavedHistory:
    """
    Validate a `SavedHistory` decoded from JSON.

    :raises ValueError: if it is not one.
    """
    if not isinstance(value, dict) or value.keys() != set(SavedHistory._fields):
        raise ValueError("it has no record of the training")
    saved = SavedHistory(**value)
    validation.whole_number(saved.iterations, "iterations", 0, None)
    if not _are_numbers([saved.seconds]) or not 0.0 <= saved.seconds < math.inf:
        raise ValueError(f"seconds must be a finite number of at least 0, got {saved.seconds!r}")
    if not isinstance(saved.recorded, list):
        raise ValueError("recorded must be a list of iterations")
    for iteration in saved.recorded:
        validation.whole_number(iteration, "recorded", 0, None)
    scores = list(saved.held_out.values()) if isinstance(saved.held_out, dict) else [None]
    if not all(isinstance(values, list) and _are_numbers(values) for values in [saved.objective, *scores]):
        raise ValueError("objective and held_out must be lists of numbers")
    if saved.ended is not None and not _is_outcome(saved.ended):
        raise ValueError(f"ended must be a status and a reason, got {saved.ended!r}")
    return saved


def _is_outcome(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return is_pair and value[0] in STATUSES


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
