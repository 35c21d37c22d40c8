"""The catalog: every set is described and every file of it pinned."""

import re

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets.catalog import ENTRIES


def test_every_set_is_described():
    assert datasets.names() == tuple(ENTRIES)
    for name in datasets.names():
        info = datasets.describe(name)
        assert info.name == name
        assert info.target
        assert info.license
        assert info.notes == info.notes.strip()
        assert info.num_splits == ENTRIES[name].source.num_splits
        if info.task == "multiclass":
            assert len(set(info.classes)) == len(info.classes) > 2
        else:
            assert len(set(info.classes)) == (0 if info.task in ("regression", "streaming") else 2)


def test_every_file_is_pinned():
    pinned = {file for name in datasets.names() for file in datasets.describe(name).files}
    # Regression: the archive, snelson, a table and a mask for each of five sets. Classification:
    # the archive, australian, eight files of quantile propagation, two of USPS, four of MNIST and
    # four of banana. The archive of more classes, flights and planes. Streaming: two of the toy,
    # audio and terrain.
    assert len(pinned) == 12 + 20 + 3 + 4
    for file in pinned:
        assert (
            file.url
            == f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/{file.path}"
        )
        assert re.fullmatch("[0-9a-f]{40}", file.commit)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    assert [file.path for file in pinned if file.packed] == ["data/train-images-idx3-ubyte.gz"]


def test_sets_without_files_come_with_a_library_or_are_generated():
    without = [name for name in datasets.names() if not datasets.describe(name).files]
    bundled = [
        "diabetes",
        "gp-draws",
        "qp-iris-12",
        "qp-iris-13",
        "qp-iris-23",
        "breast-cancer",
        "iris",
        "digits",
    ]
    assert without == [*bundled, "three-classes", "jacksboro", "pseudo-periodic", "gp-series"]


LABELED = [
    pytest.param(name, marks=pytest.mark.data) if datasets.describe(name).files else name
    for task in ("classification", "multiclass")
    for name in datasets.names(task=task)
    if name not in ("mnist-even-odd", "mnist", "flights", "three-classes")
]


@pytest.mark.parametrize("name", LABELED)
def test_no_input_is_a_row_number_or_the_label(name):
    table = ENTRIES[name].source.read(0)
    X = table.X
    y = table.Y[:, 0]
    assert not (np.diff(X, axis=0) > 0.0).all(axis=0).any()
    codes = [np.unique(column, return_inverse=True)[1].ravel() for column in X.T]
    assert not any(
        len(set(zip(code, y, strict=True))) == code.max() + 1 == y.max() + 1 for code in codes
    )
