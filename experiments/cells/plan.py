"""The cells of a sweep, read from a TOML file."""

import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from experiments import classification, datasets, regression
from experiments.cells.cell import Cell
from experiments.datasets.info import Task
from experiments.ingredients import classifier, model
from experiments.recording.experiment import RecordedExperiment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class _Swept(NamedTuple):
    """Properties of an experiment that can be swept."""

    experiment: RecordedExperiment
    tasks: tuple[Task, ...]
    models: tuple[str, ...]
    powered: tuple[str, ...]
    """Models with an alpha."""
    dense: tuple[str, ...]
    """Models without inducing points."""


_EXPERIMENTS = {
    "regression": _Swept(regression.ex, ("regression",), model.MODELS, model.POWERED, ("GPR",)),
    "classification": _Swept(
        classification.ex, ("classification", "multiclass"), classifier.MODELS, classifier.POWERED, ()
    ),
}
_REQUIRED = ("experiment", "datasets", "splits", "models", "alphas", "M")
_KEYS = (*_REQUIRED, "settings", "seed", "options")
_OF_CELLS = ("dataset", "split", "model", "alpha", "M", "seed", "progress")


def read_plan(path: Path) -> list[Cell]:
    """
    Read the cells of a sweep: all combinations of data set, split, model, alpha and M.

    A model without alpha, or without inducing points, has one cell for all values.

    :raises ValueError: if a key is invalid; the message has its value and what is accepted.
    :raises OSError: if the file cannot be read.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}.") from error
    try:
        return _cells(given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _cells(given: dict[str, Any]) -> list[Cell]:
    for key in given:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}; accepted are {', '.join(_KEYS)}.")
    for key in _REQUIRED:
        if key not in given:
            raise ValueError(f"missing key {key!r}; required are {', '.join(_REQUIRED)}.")
    name = _one_of("experiment", given["experiment"], _EXPERIMENTS)
    swept = _EXPERIMENTS[name]
    accepted = [each for task in swept.tasks for each in datasets.names(task=task)]
    sets = _list("datasets", given, lambda value: value in accepted, ", ".join(accepted))
    most = min(datasets.describe(each).num_splits for each in sets)
    splits = _list("splits", given, lambda value: _is_whole(value, 0, most - 1), f"whole numbers from 0 to {most - 1}")
    models = _list("models", given, lambda value: value in swept.models, ", ".join(swept.models))
    alphas = list(map(float, _list("alphas", given, _is_power, "numbers from 0 to 1")))
    counts = _list("M", given, lambda value: _is_whole(value, 1, None), "whole numbers from 1")
    settings = given.get("settings")
    if settings is not None:
        settings = _one_of("settings", settings, sorted(swept.experiment.named_configs))
    seed = given.get("seed", 0)
    if not _is_whole(seed, 0, 2**32 - 1):
        raise ValueError(f"seed is {seed!r}; a whole number from 0 to {2**32 - 1} is accepted.")
    options = _options(given.get("options", {}), swept.experiment, name)
    cells = []
    for dataset, method, alpha, M, split in product(sets, models, alphas, counts, splits):
        updates = {"dataset": dataset, "split": split, "model": method, "alpha": alpha, "M": M, "seed": seed}
        if method not in swept.powered:
            del updates["alpha"]
        if method in swept.dense:
            del updates["M"]
        cells.append(Cell(name, updates | options, settings))
    return list({cell.key: cell for cell in cells}.values())


def _one_of(key: str, value: Any, accepted: Any) -> str:
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{key} is {value!r}; accepted are {', '.join(accepted)}.")
    return value


def _list(key: str, given: dict[str, Any], is_accepted: Callable[[Any], bool], accepted: str) -> Sequence[Any]:
    """Return the values of a key: at least one, each once."""
    values = given[key]
    if not isinstance(values, list) or not values:
        raise ValueError(f"{key} is {values!r}; a list of at least one is accepted, of {accepted}.")
    for place, value in enumerate(values):
        if not is_accepted(value):
            raise ValueError(f"{key} has {value!r}; accepted are {accepted}.")
        if value in values[:place]:
            raise ValueError(f"{key} has {value!r} twice; each is accepted once.")
    return values


def _is_whole(value: Any, least: int, most: int | None) -> bool:
    return type(value) is int and least <= value and (most is None or value <= most)


def _is_power(value: Any) -> bool:
    return type(value) in (int, float) and 0.0 <= value <= 1.0


def _options(values: Any, experiment: RecordedExperiment, name: str) -> dict[str, Any]:
    """Return further entries of the configuration, the same for all cells."""
    if not isinstance(values, dict):
        raise ValueError(f"options is {values!r}; a table of entries of the configuration is accepted.")
    for key, value in values.items():
        if key.rpartition(".")[2] in _OF_CELLS or not experiment.accepts(key):
            raise ValueError(
                f"options has a key {key!r}; accepted are entries of `python -m experiments.{name} print_config` "
                f"other than {', '.join(_OF_CELLS)}."
            )
        if not isinstance(value, str | int | float):
            raise ValueError(f"options has {key} = {value!r}; a string, a number, true or false is accepted.")
    return values
