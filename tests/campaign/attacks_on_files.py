"""Attacks on the readers: files that are damaged, or hold other things than numbers."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.attack_subjects import Attack, Attacks, Pair, Rows, drawn, masked, unequal_batch
from gpflow_pep import PEPR
from gpflow_pep.data.readers import (
    Statistics,
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

    def read(self, text: str | None = None, **options: Any) -> list[Any]:
        """Write a text, or the rows, and read the file."""
        self.path.write_text("\n".join(self.lines) + "\n" if text is None else text)
        given: dict[str, Any] = {
            "inputs": self.inputs,
            "outputs": ["y"],
            "batch_size": int(self.rng.integers(1, 9)),
        }
        return list(csv_batches(self.path, **(given | options)).as_numpy_iterator())

    def read_parquet(self, table: pd.DataFrame) -> list[Any]:
        """Write a table, and read the file."""
        path = self.path.with_suffix(".parquet")
        table.to_parquet(path)
        batches = parquet_batches(
            path, inputs=self.inputs, outputs=["y"], batch_size=int(self.rng.integers(1, 9))
        )
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


def _field(*values: str) -> Callable[[Table], None]:
    """Read a file with one of these fields in a row."""

    def act(s: Table) -> None:
        row = s.row()
        fields = s.lines[row].split(",")
        fields[int(s.rng.integers(len(fields)))] = drawn(s, values)
        s.lines[row] = ",".join(fields)
        s.read()

    return act


def _line(s: Table) -> None:
    """Read a file with a line of fewer or more fields."""
    row = s.row()
    s.lines[row] = drawn(
        s, [s.lines[row] + ",1", s.lines[row].rpartition(",")[0], s.lines[row] + ",", "1"]
    )
    s.read()


def _text_late(s: Table) -> None:
    """Text after many rows."""
    s.lines += [s.lines[1]] * int(s.rng.integers(1000, 3000)) + [
        s.lines[1].rpartition(",")[0] + ",n/a"
    ]
    s.read(batch_size=500)


def _pipe(s: Table) -> None:
    path = s.path.with_suffix(".pipe")
    os.mkfifo(path)
    csv_batches(
        drawn(s, [path, s.path.parent, s.path.with_name("no.csv")]), inputs=s.inputs, outputs=["y"]
    )


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


def _parquet_text(s: Table) -> None:
    values: Any = drawn(s, ["a", "1", b"1", pd.Timestamp("2020-01-01"), pd.Timedelta("1s")])
    s.read_parquet(s.table.assign(y=[values] * len(s.X)))


def _other_encoding(s: Table) -> None:
    text = "\n".join(s.lines).replace("y", "größe", 1) + "\n"
    s.path.write_bytes(text.encode(drawn(s, ["latin-1", "utf-16", "cp1252"])))
    csv_batches(s.path, inputs=s.inputs, outputs=["größe"])


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


def _broken_dataset(s: Table) -> None:
    """A dataset that raises an error in a pass after the first one."""
    num_batches = int(s.rng.integers(1, 4))
    read = iter(range(num_batches + int(s.rng.integers(0, 2 * num_batches))))
    parts = np.array_split(np.arange(len(s.X)), num_batches)
    error = drawn(s, [OSError, KeyError, MemoryError, NotImplementedError, ValueError])

    def rows() -> Any:
        for part in parts:
            if next(read, None) is None:
                raise error("disk fell off")
            yield s.X[part], s.Y[part]

    specs = tuple(tf.TensorSpec([None, values.shape[1]], tf.float64) for values in (s.X, s.Y))
    data = tf.data.Dataset.from_generator(rows, output_signature=specs)
    model = PEPR(data, gpflow.kernels.SquaredExponential(), s.X[:3])
    for _ in range(3):
        drawn(s, [model.training_loss, model.check_data])()


def _damaged_parquet(s: Table) -> None:
    path = s.path.with_suffix(".parquet")
    s.table.to_parquet(path)
    path.write_bytes(path.read_bytes()[: int(s.rng.integers(100))])
    parquet_batches(path, inputs=s.inputs, outputs=["y"])


def _array(*values: Any) -> Callable[[Table], None]:
    def act(s: Table) -> None:
        array_batches(*drawn(s, values))

    return act


def _statistics(*values: Any) -> Callable[[Table], None]:
    def act(s: Table) -> None:
        statistics(drawn(s, values))

    return act


def _other_statistics(s: Table) -> None:
    ones = np.ones(s.X.shape[1] + 1)
    values = drawn(
        s,
        [
            Statistics(ones, ones, np.ones(1), np.ones(1)),
            Statistics(ones[1:], ones[1:], ones, ones),
        ],
    )
    standardized(array_batches(s.X, s.Y), values)


ATTACKS: Attacks = {
    "CSV": Attack(Table, _read),
    "other columns": Attack(Table, _with_other_columns),
    "empty lines": Attack(Table, _empty_lines),
    "Parquet": Attack(Table, _parquet),
    "arrays": Attack(Table, _arrays),
    "exact integers": Attack(Table, _exact_integers),
    "standardized": Attack(Table, _standardized),
    "field that is no number": Attack(
        Table, _field("1_0", "foo", "n/a", "1;2", "0x10", "2020-01-01", '"a b"'), r"rows\.csv"
    ),
    "line of other fields": Attack(Table, _line, r"rows\.csv.*(?i:row|line)"),
    "text after many rows": Attack(Table, _text_late, r"rows\.csv.*(?i:row|line)"),
    "file that is none": Attack(Table, _pipe, "path must be a file"),
    "empty file": Attack(Table, lambda s: s.read(drawn(s, ["", "\n", "x1\n"])), r"rows\.csv"),
    "columns that are missing": Attack(
        Table,
        lambda s: s.read(
            **{drawn(s, ["inputs", "outputs"]): drawn(s, [["z"], "y", [], ["x1", "z"]])}
        ),
        "inputs|outputs",
    ),
    "column twice": Attack(Table, lambda s: s.read(outputs=["x1"]), "inputs and outputs"),
    "batch size": Attack(
        Table, lambda s: s.read(batch_size=drawn(s, [0, -1, 2.5, True, "all"])), "batch_size"
    ),
    "integers that would be rounded": Attack(Table, _integers, r"(column 'y'|Y from row).* rounds"),
    "delimiter": Attack(
        Table, lambda s: s.read(delimiter=drawn(s, ["||", "", "\n", '"', "é", ".", 3])), "delimiter"
    ),
    "another encoding": Attack(Table, _other_encoding, r"rows\.csv.*UTF-8"),
    "damaged page of Parquet": Attack(Table, _compressed, r"rows\.parquet"),
    "dataset that breaks": Attack(
        Table, _broken_dataset, r"after batch \d of pass \d: \w+Error: .*disk fell off"
    ),
    "Parquet without numbers": Attack(Table, _parquet_text, r"rows\.parquet"),
    "damaged Parquet": Attack(Table, _damaged_parquet, r"rows\.parquet"),
    "arrays that are no matrices": Attack(
        Table,
        _array(
            lambda s: (s.X.tolist(), s.Y),
            lambda s: (s.X, s.Y[:, 0]),
            lambda s: (s.X.astype(str), s.Y),
            lambda s: (s.X, s.Y[:2]),
            lambda s: (s.X, masked(s.Y)),
            lambda s: (s.X.astype("M8[s]"), s.Y),
            lambda s: (s.X + 1j, s.Y),
        ),
        r"\b[XY]\b",
    ),
    "statistics of what has none": Attack(
        Table,
        _statistics(
            unequal_batch,
            lambda s: array_batches(s.X, np.ones_like(s.Y)),
            lambda s: array_batches(s.X * np.nan, s.Y),
            lambda s: array_batches(s.X[:0], s.Y[:0]),
            lambda s: array_batches(s.X, s.Y).repeat(),
        ),
        r"dataset|\bX and Y\b",
    ),
    "statistics of other columns": Attack(Table, _other_statistics, "columns"),
}
