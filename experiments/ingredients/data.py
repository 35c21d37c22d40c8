"""The data ingredients, one for each task: data set, split and preparation."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Callable

import numpy as np
from sacred import Ingredient

from experiments import datasets
from experiments.datasets.info import Task
from experiments.recording.experiment import ingredient_of


def _config() -> None:
    # name of a data set for the experiment's tasks: one of experiments.datasets.names(task=...)
    dataset = ""

    # number of the split into training and test rows, from 0
    split = 0

    # subtract the training part's mean from each column (labels excepted) and divide by its standard deviation
    standardize = True

    # train on the test rows, too: for comparisons of bounds on all rows
    include_test = False

    # train on at most this many rows, drawn with the seed (after standardizing); None: on all
    max_train = None


def _data_for(default: str, *tasks: Task) -> tuple[Ingredient, Callable[[], datasets.Dataset]]:
    """Return the data ingredient for these tasks, and the function that loads its split."""
    ingredient = ingredient_of("data")
    ingredient.config(_config)
    ingredient.add_config(dataset=default)

    @ingredient.capture
    def load(
        dataset: str,
        split: int,
        standardize: bool,
        include_test: bool,
        max_train: int | None,
        _seed: int,
    ) -> datasets.Dataset:
        """Load the split of the configuration."""
        check_task(dataset, *tasks)
        loaded = datasets.load(dataset, split, standardize=standardize)
        if include_test:
            loaded = loaded.trained_on_all()
        N = len(loaded.X_train)
        if max_train is None or max_train >= N:
            return loaded
        if max_train < 1:
            raise ValueError(f"max_train must be None or at least 1, got {max_train}.")
        return loaded.trained_on(np.random.RandomState(_seed).permutation(N)[:max_train])

    return ingredient, load


def check_task(dataset: str, *tasks: Task) -> None:
    """
    Refuse a data set for any other task.

    :raises ValueError: if the data set is for another task, or does not exist.
    """
    found = datasets.describe(dataset).task
    if found not in tasks:
        accepted = [name for task in tasks for name in datasets.names(task=task)]
        experiment = "classification" if found == "multiclass" else found
        raise ValueError(
            f"dataset {dataset!r} is for {found} (python -m experiments.{experiment}); accepted for "
            f"{' and '.join(tasks)} are {', '.join(accepted)}."
        )


data, load = _data_for("diabetes", "regression")
labeled_data, load_labeled = _data_for("breast-cancer", "classification", "multiclass")
