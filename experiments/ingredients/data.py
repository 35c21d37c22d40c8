"""The data ingredient: which split of which data set, and how it is prepared."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from dataclasses import replace

import numpy as np
from sacred import Ingredient

from experiments.recording import SAVE_GIT_INFO
from gpflow_pep import datasets

data = Ingredient("data", save_git_info=SAVE_GIT_INFO)


@data.config
def _config() -> None:
    # name of a data set: one of gpflow_pep.datasets.names()
    dataset = "diabetes"

    # number of the split into training and test rows, from 0
    split = 0

    # subtract the training part's mean from each column and divide by its standard deviation
    standardise = True

    # train on at most this many rows, drawn with the seed (after standardising); None: on all
    max_train = None


@data.capture
def load(dataset: str, split: int, standardise: bool, max_train: int | None, _seed: int) -> datasets.Dataset:
    """The split that the configuration asks for."""
    loaded = datasets.load(dataset, split, standardise=standardise)
    N = len(loaded.X_train)
    if max_train is None or max_train >= N:
        return loaded
    if max_train < 1:
        raise ValueError(f"max_train must be None or at least 1, got {max_train}.")
    rows = np.random.RandomState(_seed).permutation(N)[:max_train]
    return replace(loaded, X_train=loaded.X_train[rows], Y_train=loaded.Y_train[rows])
