"""What all experiments here have in common: runs are recorded in ``runs/``, and flat names for the configuration."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sacred import Experiment
from sacred.ingredient import Ingredient
from sacred.observers import FileStorageObserver
from sacred.run import Run
from sacred.utils import SacredError

RUNS = "runs"
"""Where runs are recorded unless told otherwise, below the current directory."""

SAVE_GIT_INFO = shutil.which("git") is not None
"""Sacred notes commit and uncommitted changes; without git it would refuse to start."""

_FILE_STORAGE = "--file_storage"


class RecordedExperiment(Experiment):
    """
    A Sacred experiment with two additions:

    - Runs are recorded in ``runs/``, or where ``--file_storage`` says.
    - An ingredient's entry may be given by its own name: ``alpha=0.5`` is ``gp.alpha=0.5`` as long as no other
      ingredient, nor the experiment itself, has an ``alpha``. The configuration on record has the full names.
    """

    def run(
        self,
        command_name: str | None = None,
        config_updates: Mapping[str, Any] | None = None,
        named_configs: Sequence[str] = (),
        info: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Run:
        """See :meth:`sacred.Experiment.run`."""
        options = dict(options or {})
        options[_FILE_STORAGE] = options.get(_FILE_STORAGE) or RUNS
        updates = {self._full_name(name): value for name, value in (config_updates or {}).items()}
        return super().run(command_name, updates, named_configs, info, meta_info, options)

    def accepts(self, name: str) -> bool:
        """Whether there is one entry of the configuration that this names, by its own or by its full name."""
        part, _, entry = name.rpartition(".")
        if part:
            return any(
                str(ingredient.path) == part and entry in _entries(ingredient) for ingredient in self.ingredients
            )
        return name in _entries(self) or sum(name in _entries(ingredient) for ingredient in self.ingredients) == 1

    def _full_name(self, name: str) -> str:
        if name in _entries(self):
            return name
        full_names = [f"{part.path!s}.{name}" for part in self.ingredients if name in _entries(part)]
        if len(full_names) > 1:
            raise SacredError(f"{name} is ambiguous: give one of {', '.join(full_names)}.")
        return full_names[0] if full_names else name


def _entries(ingredient: Ingredient) -> set[str]:
    """Names of the ingredient's own configuration entries."""
    return {name for scope in ingredient.configurations for name in scope()}


def run_directory(run: Run) -> Path | None:
    """The directory that the run is recorded in; None if it is not (``--unobserved``)."""
    for observer in run.observers:
        if isinstance(observer, FileStorageObserver) and observer.dir is not None:
            return Path(observer.dir)
    return None
