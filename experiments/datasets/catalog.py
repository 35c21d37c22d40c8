"""
All data sets by name, from ``catalog.toml``: their descriptions, and their sources.

A source is a class of `experiments.datasets.sources`. Its arguments are published files, and functions
of this package with their own files, functions and options.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

from experiments.datasets.files import published
from experiments.datasets.info import DatasetInfo, Entry, Task
from experiments.protocols.records import read_toml


def _with_arguments(
    use: str, files: Iterable[str] = (), of: Iterable[dict[str, Any]] = (), **options: Any
) -> "partial[Any]":
    """
    Return a class or function of this package with its arguments.

    :param use: module and name.
    :param files: places of published files.
    :param of: other functions with their arguments.
    """
    function = resolve_name(f"{__package__}.{use}")
    functions = (_with_arguments(**each) for each in of)
    return partial(function, *map(published, files), *functions, **options)


def _entry(task: Task, name: str, description: dict[str, Any]) -> Entry:
    source = _with_arguments(**description.pop("source"))()
    classes = tuple(description.pop("classes", ()))
    of_source = (source.num_splits, source.splits_published, source.files)
    return Entry(
        DatasetInfo(name, task, *of_source, classes=classes, **{"notes": "", **description}), source
    )


_DESCRIBED = read_toml(Path(__file__).with_suffix(".toml"))

ENTRIES: dict[str, Entry] = {
    name: _entry(task, name, description)
    for task in get_args(Task)
    for name, description in _DESCRIBED[task].items()
}
