"""
Sources: the rows and columns that each kind of publication gives, from small tables written here.
"""

import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from comparisons import assert_all_equal
from numpy.testing import assert_allclose, assert_array_equal
from splits import assert_is_split

from experiments import datasets
from experiments.datasets.catalog import ENTRIES
from experiments.datasets.sources import (
    ArchivedArrays,
    ArchivedSplits,
    MaskedFolds,
    SeededFolds,
    TrainAndTest,
)

TOY_TABLE = np.array([[10.0 * row + column for column in range(4)] for row in range(6)])  # [6, 4]
TOY_TABLE[:, 2] = 0.1


def as_text(rows):
    text = io.BytesIO()
    np.savetxt(text, rows, fmt="%g")
    return text.getvalue()


def packed(members):
    """A tar archive of files [name, bytes] of one set."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in members.items():
            header = tarfile.TarInfo(f"toy/{name}")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
    return content.getvalue()


def toy_archive(table=TOY_TABLE):
    """
    A tar archive with one set: inputs are columns 3, 0 and 2 of the table, the target is column 1.
    """
    members = {"data": table, "index_features": [3, 0, 2], "index_target": [1]}
    members |= {"index_train_0": [4, 0, 2], "index_test_0": [1, 3, 5]}
    members |= {"index_train_1": [1, 3, 5, 0], "index_test_1": [4, 2]}
    return packed({f"data/{name}.txt": as_text(rows) for name, rows in members.items()})


@pytest.fixture
def toy(publish, monkeypatch):
    """The name of a data set of 6 rows with 2 splits, whose archive lies in the local directory."""
    source = ArchivedSplits(publish("toy.tgz", toy_archive()), "toy", num_splits=2)
    changed = {"name": "toy", "num_splits": 2, "files": source.files, "source": source}
    monkeypatch.setitem(ENTRIES, "toy", replace(ENTRIES["boston"], **changed))
    return "toy"


def test_archive_gives_the_columns_and_rows_it_names(toy):
    data = datasets.load(toy, 1, standardize=False)
    assert data.name == "toy"
    X, Y = TOY_TABLE[:, [3, 0, 2]], TOY_TABLE[:, [1]]
    assert_is_split(data, X, Y, [1, 3, 5, 0], [4, 2])


def test_archive_is_not_extracted(toy, tmp_path, monkeypatch):
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    datasets.load(toy)
    assert sorted(tmp_path.rglob("*")) == before


def test_constant_column_keeps_scale_one(toy):
    data = datasets.load(toy)
    # The table's column 2, 0.1 in every row: numpy's deviation of three such rows is 1e-17, not 0.
    constant = 2
    assert data.x_scale[constant] == 1.0
    assert_allclose(data.X_train[:, constant], 0.0, atol=1e-15)
    assert_allclose(data.X_test[:, constant], 0.0, atol=1e-15)
    assert np.all(data.x_scale[:2] > 1.0)


def test_mask_marks_the_test_rows(publish):
    mask = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
    source = MaskedFolds(
        publish("data.csv", as_text(TOY_TABLE).replace(b" ", b",")),
        publish("mask.csv", as_text(mask).replace(b" ", b",")),
        num_splits=3,
    )
    expected = TOY_TABLE[:, :3], TOY_TABLE[:, 3:], [0, 2, 3, 5], [1, 4]
    assert_all_equal(source.read(1), expected)


def test_archive_leaves_out_dropped_features_and_makes_labels(publish):
    table = TOY_TABLE.copy()
    table[:, 1] = [-1, 1, 1, -1, 1, -1]
    archive = publish("toy.tgz", toy_archive(table))
    plain = ArchivedSplits(archive, "toy").read(0)
    read = ArchivedSplits(archive, "toy", dropped=(1,), classes=(1.0, -1.0)).read(0)
    # The feature at place 1 of 3, 0 and 2 is dropped.
    labels = [[1], [0], [0], [1], [0], [1]]
    assert_all_equal(read, (table[:, [3, 2]], labels, plain.train, plain.test))


def test_archived_arrays_have_labels_from_0(publish):
    train = np.array([[4, 0, 2], [1, 3, 5]])
    test = np.array([[1, 3, 5], [4, 0, 2]])
    codes = np.array([3, 1, 2, 2, 1, 3], np.int32)
    members = {}
    for name, pair in {"data": (TOY_TABLE, codes), "folds": (train, test)}.items():
        arrays = io.BytesIO()
        np.savez(arrays, *pair)
        members[f"{name}.npz"] = arrays.getvalue()
    source = ArchivedArrays(publish("toy.tgz", packed(members)), "toy", num_splits=2)
    read = source.read(1)
    labels = [[2.0], [0.0], [1.0], [1.0], [0.0], [2.0]]
    assert_all_equal(read, (TOY_TABLE, labels, [1, 3, 5], [4, 0, 2]))
    assert (source.num_splits, source.splits_published, read.Y.dtype) == (2, True, np.float64)


@pytest.mark.parametrize("N", [20, 23, 29])
def test_folds_are_as_documented_and_test_every_row_once(N):
    table = np.arange(3.0 * N).reshape(N, 3)
    source = SeededFolds(lambda: table)
    permutation = np.random.RandomState(0).permutation(N)
    tested = []
    for split in range(10):
        read = source.read(split)
        assert_all_equal(read[:2], (table[:, :2], table[:, 2:]))
        assert_array_equal(read.test, np.array_split(permutation, 10)[split])
        assert_array_equal(np.sort(np.concatenate([read.train, read.test])), np.arange(N))
        assert len(read.test) in (N // 10, N // 10 + 1)
        tested.extend(read.test)
    assert sorted(tested) == list(range(N))
    assert (source.num_splits, source.splits_published) == (10, False)


def test_train_and_test_part_are_the_tables_given():
    train = np.arange(12.0).reshape(4, 3)
    test = np.arange(12.0, 18.0).reshape(2, 3)
    source = TrainAndTest(lambda: train, lambda: test)
    read = source.read(0)
    assert_array_equal(np.hstack([read.X, read.Y])[read.train], train)
    assert_array_equal(np.hstack([read.X, read.Y])[read.test], test)
    assert (source.num_splits, source.splits_published) == (1, True)
