"""Base of all experiments: records in ``runs/``, and flat names for the configuration."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sacred import Experiment
from sacred.ingredient import Ingredient
from sacred.observers import FileStorageObserver, SqlObserver
from sacred.run import Run
from sacred.utils import SacredError, apply_backspaces_and_linefeeds

from experiments.recording.databases import SqlRuns, numbered_by_itself

SAVE_GIT_INFO = shutil.which("git") is not None
"""Sacred records commit and uncommitted changes; without git it would not start."""

_FILE_STORAGE = "--file_storage"


def ingredient_of(name: str) -> Ingredient:
    """Return an ingredient without configuration."""
    return Ingredient(name, save_git_info=SAVE_GIT_INFO)


class RecordedExperiment(Experiment):
    """
    A Sacred experiment with these additions:

    - Runs are recorded in ``runs/``, or in the folder of ``--file_storage``; with ``--sql`` or
      ``--mongo_db`` in a database too.
    - An ingredient's entry may be given without prefix: ``alpha=0.5`` is ``gp.alpha=0.5`` if no
      other ingredient, nor the experiment itself, has an ``alpha``. The recorded configuration has
      the full names.
    - The record has only the last state of a progress bar, and lists a repository once.
    """

    def __init__(self, name: str, ingredients: Sequence[Ingredient]):
        super().__init__(name, ingredients, save_git_info=SAVE_GIT_INFO)
        self.captured_out_filter = apply_backspaces_and_linefeeds  # type: ignore[assignment]  # declared as None

    def get_experiment_info(self) -> dict[str, Any]:
        """Describe the experiment: name, sources, dependencies, and each repository once."""
        info = super().get_experiment_info()  # type: ignore[no-untyped-call]
        once: dict[tuple[str, str], dict[str, Any]] = {}
        for repository in info["repositories"]:
            found = once.setdefault((repository["url"], repository["commit"]), dict(repository))
            found["dirty"] = found["dirty"] or repository["dirty"]
        return info | {"repositories": list(once.values())}

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
        for name in named_configs:
            if os.path.exists(name):  # Sacred would read it by jsonpickle or pickle
                reason = "reading a file of settings may run code that is in it"
                advice = "give each setting as NAME=VALUE"
                raise SacredError(f"with {name}: {reason}; {advice}.", print_traceback=False)
        options = dict(options or {})
        options[_FILE_STORAGE] = options.get(_FILE_STORAGE) or "runs"
        updates = {self._full_name(name): value for name, value in (config_updates or {}).items()}
        return super().run(command_name, updates, named_configs, info, meta_info, options)

    def _create_run(self, *arguments: Any, **options: Any) -> Run:
        """Create the run, numbered by its folder, and by each database on its own."""
        run = super()._create_run(*arguments, **options)  # type: ignore[no-untyped-call]
        for place, observer in enumerate(run.observers):
            if not isinstance(observer, FileStorageObserver):
                table = SqlRuns(observer) if isinstance(observer, SqlObserver) else observer
                run.observers[place] = numbered_by_itself(table)
        return run

    def accepts(self, name: str) -> bool:
        """
        Return True if `name`, with or without prefix, is exactly one entry of the configuration.
        """
        return len(self._full_names(name)) == 1

    def settings(self) -> list[str]:
        """List the entries of the configuration, without prefixes."""
        return sorted({name for part in (self, *self.ingredients) for name in _entries(part)})

    def _full_names(self, name: str) -> list[str]:
        """Return the full names of the entries that `name` may mean."""
        if name in _entries(self):
            return [name]
        entries = [
            (entry, f"{part.path!s}.{entry}")
            for part in self.ingredients
            for entry in _entries(part)
        ]
        return [full_name for entry, full_name in entries if name in (entry, full_name)]

    def _full_name(self, name: str) -> str:
        full_names = self._full_names(name)
        if len(full_names) > 1:
            raise SacredError(f"{name} is ambiguous: give one of {', '.join(full_names)}.")
        return full_names[0] if full_names else name


def _entries(ingredient: Ingredient) -> set[str]:
    """Return the names of the ingredient's own configuration entries."""
    return {name for scope in ingredient.configurations for name in scope()}


def run_directory(run: Run) -> Path | None:
    """Return the directory of the recorded run; None if it is not recorded (``--unobserved``)."""
    for observer in run.observers:
        if isinstance(observer, FileStorageObserver) and observer.dir is not None:
            return Path(observer.dir)
    return None
