"""Attacks on the readers: files that are damaged, or hold other things than numbers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.attack_subjects import Attack, Attacks, Pair, Rows, drawn
from gpflow_pep.data.readers import (
    array_batches,
    csv_batches,
    parquet_batches,
    standardized,
    statistics,
)


class Table(Rows):
    """Random rows in the columns x1, x2 (if D = 2) and y of a CSV file."""

    def __init__(self, rng: np.random.Generator):
        super().__init__(rng)
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "rows.csv"
        self.inputs = [f"x{number + 1}" for number in range(self.X.shape[1])]
        self.table = pd.DataFrame(np.column_stack([self.X, self.Y]), columns=[*self.inputs, "y"])
        self.lines = self.table.to_csv(index=False).splitlines()

    def read(self, text: str | None = None) -> list[Any]:
        """Write a text, or the rows, and read the file."""
        self.path.write_text("\n".join(self.lines) + "\n" if text is None else text)
        return self._batches(csv_batches, self.path)

    def read_parquet(self, table: pd.DataFrame) -> list[Any]:
        """Write a table, and read the file."""
        path = self.path.with_suffix(".parquet")
        table.to_parquet(path)
        return self._batches(parquet_batches, path)

    def _batches(self, reader: Callable[..., tf.data.Dataset], path: Path) -> list[Any]:
        size = int(self.rng.integers(1, 9))
        batches = reader(path, inputs=self.inputs, outputs=["y"], batch_size=size)
        return list(batches.as_numpy_iterator())

    def row(self) -> int:
        """Draw a line of the file after its first one."""
        return int(self.rng.integers(1, len(self.lines)))


def _joined(batches: list[Any]) -> dict[str, AnyNDArray]:
    X, Y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return {"X": X, "Y": Y}


def _read(s: Table) -> Pair:
    """Batches of any size, in any spelling that is a number."""
    text = "\r\n".join(s.lines) if s.rng.uniform() < 0.5 else "\n".join(s.lines)
    return _joined(s.read(text + drawn(s, ["", "\n"]))), {"X": s.X, "Y": s.Y}


def _with_other_columns(s: Table) -> Pair:
    """Columns that are not read may hold anything."""
    table = s.table.assign(name="a, b", day="2020-01-01", note=['say "x"\nand y'] * len(s.X))
    table = table[[*s.rng.permutation(table.columns)]]
    return _joined(s.read(table.to_csv(index=False))), {"X": s.X, "Y": s.Y}


def _empty_lines(s: Table) -> Pair:
    s.lines.insert(s.row(), "")
    return _joined(s.read()), {"X": s.X, "Y": s.Y}


def _parquet(s: Table) -> Pair:
    table = s.table.astype(drawn(s, ["float64", "float32"]))
    values = table.to_numpy(float)
    return _joined(s.read_parquet(table.assign(name="a"))), {
        "X": values[:, :-1],
        "Y": values[:, -1:],
    }


def _arrays(s: Table) -> Pair:
    kind = drawn(s, [np.float64, np.float32, np.int64])
    X, Y = (3.0 * s.X).astype(kind), s.Y
    batches = array_batches(X, Y, batch_size=int(s.rng.integers(1, 30)))
    return _joined(list(batches.as_numpy_iterator())), {"X": X.astype(float), "Y": Y}


def _standardized(s: Table) -> Pair:
    """Statistics far from 0, of any batches, and what is standardized by them."""
    offset = 10.0 ** s.rng.uniform(0.0, 6.0)
    batches = array_batches(s.X + offset, s.Y, batch_size=int(s.rng.integers(1, 9)))
    found = statistics(batches)
    X = s.X + offset
    numbers = _joined(list(standardized(batches, found).as_numpy_iterator()))
    expected = {"X": (X - X.mean(0)) / X.std(0), "Y": (s.Y - s.Y.mean(0)) / s.Y.std(0)}
    return {**numbers, "std": found.X_std}, {**expected, "std": X.std(0)}


def _line(s: Table) -> None:
    """Read a file with a field that is no number, or a line of fewer or more fields."""
    row = s.row()
    fields = s.lines[row].split(",")
    fields[int(s.rng.integers(len(fields)))] = drawn(s, ["1_0", "foo", "1;2", "0x10", '"a b"'])
    short = s.lines[row].rpartition(",")[0]
    s.lines[row] = drawn(s, [",".join(fields), s.lines[row] + ",1", short, short + ",n/a"])
    s.lines += [s.lines[-1]] * drawn(s, [0, 2000])
    s.read()


def _read_by_any(s: Table, table: pd.DataFrame) -> list[Any]:
    """Read a table from a CSV file, a Parquet file or arrays."""
    kind = drawn(s, ["csv", "parquet", "arrays"])
    if kind == "csv":
        return s.read(table.to_csv(index=False))
    if kind == "parquet":
        return s.read_parquet(table)
    X, Y = table[s.inputs].to_numpy(), table[["y"]].to_numpy()
    return list(array_batches(X, Y, batch_size=int(s.rng.integers(1, 9))).as_numpy_iterator())


def _exact_integers(s: Table) -> Pair:
    """Integers of at most 53 significant bits, of any size."""
    bits = int(s.rng.integers(0, 10))
    y = s.rng.integers(-(2**53), 2**53, len(s.X)) * 2**bits
    read = _joined(_read_by_any(s, s.table.assign(y=y)))
    return {"X": read["X"], "Y": read["Y"] / 2.0**bits}, {
        "X": s.X,
        "Y": np.array([[int(value) // 2**bits] for value in y], dtype=float),
    }


def _integers(s: Table) -> None:
    """One integer among others that has more than 53 significant bits."""
    y = s.rng.integers(-5, 5, len(s.X))
    bits = int(s.rng.integers(0, 10))
    size = int(s.rng.integers(2**52, 2**53 - 1)) * 2 + 1
    y[int(s.rng.integers(len(y)))] = drawn(s, [1, -1]) * size * 2**bits
    _read_by_any(s, s.table.assign(y=y))


def _compressed(s: Table) -> None:
    """A page of a compressed file with checksums is damaged."""
    path = s.path.with_suffix(".parquet")
    compression = drawn(s, ["snappy", "gzip", "zstd", "brotli"])
    s.table.to_parquet(path, compression=compression, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[40:60] = bytes(20)
    path.write_bytes(content)
    batches = parquet_batches(path, inputs=s.inputs, outputs=["y"])
    read = _joined(list(batches.as_numpy_iterator()))
    if np.array_equal(read["X"], s.X) and np.array_equal(read["Y"], s.Y):
        raise ValueError("rows.parquet: bytes without meaning were changed")


def _damaged_parquet(s: Table) -> None:
    path = s.path.with_suffix(".parquet")
    s.table.to_parquet(path)
    path.write_bytes(path.read_bytes()[: int(s.rng.integers(100))])
    parquet_batches(path, inputs=s.inputs, outputs=["y"])


ATTACKS: Attacks = {
    "CSV": Attack(Table, _read),
    "other columns": Attack(Table, _with_other_columns),
    "empty lines": Attack(Table, _empty_lines),
    "Parquet": Attack(Table, _parquet),
    "arrays": Attack(Table, _arrays),
    "exact integers": Attack(Table, _exact_integers),
    "standardized": Attack(Table, _standardized),
    "line that is no row": Attack(Table, _line, r"rows\.csv"),
    "integers that would be rounded": Attack(Table, _integers, r"(column 'y'|Y from row).* rounds"),
    "damaged page of Parquet": Attack(Table, _compressed, r"rows\.parquet"),
    "damaged Parquet": Attack(Table, _damaged_parquet, r"rows\.parquet"),
}
