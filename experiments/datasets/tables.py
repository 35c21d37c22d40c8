"""Readers of published files as tables of numbers [N, columns], with labels for class codes.

All row and column numbers in the published files count from 0.
"""

import gzip
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.datasets.files import PublishedFile, local_copy

Floats = npt.NDArray[np.float64]
Reader = Callable[[], Floats]
"""Reads a table; if it reads files, a `partial` with the files or other readers as arguments."""

MISSING = {"?", "NA"}  # missing values in text files


def read_csv(file: PublishedFile, *, delimiter: str | None = ",") -> Floats:
    """
    Read the numbers of a text file without a header, plain or gzipped; the delimiter None is white
    space.
    """
    return np.loadtxt(local_copy(file), delimiter=delimiter)  # [N, columns]


def read_words(
    *files: PublishedFile,
    codes: Mapping[str, float],
    delimiter: str | None = None,
    num_header_lines: int = 0,
) -> Floats:
    """
    Read text files with words among their numbers, one file below the other, without rows with a
    missing value.

    :param files: files with the same columns.
    :param codes: number for each word.
    :param delimiter: separator of columns; None is white space.
    :param num_header_lines: lines to skip at the top of each file.
    :return: the numbers [N, columns].
    :raises ValueError: if a word has no code.
    """
    rows = [
        line.split(delimiter)
        for file in files
        for line in local_copy(file).read_text(encoding="ascii").splitlines()[num_header_lines:]
        if line.strip()
    ]
    return np.array(
        [[codes.get(cell, cell) for cell in row] for row in rows if MISSING.isdisjoint(row)], float
    )  # [N, columns]


def read_columns(inputs: PublishedFile, targets: PublishedFile) -> Floats:
    """Read two comma-separated files side by side."""
    return np.column_stack([read_csv(inputs), read_csv(targets)])  # [N, D + 1]


def stack(*readers: Reader) -> Floats:
    """Read the tables of several readers, one below the other."""
    return np.vstack([read() for read in readers])  # [N, columns]


def read_images(images: PublishedFile, digits: PublishedFile) -> Floats:
    """Read the gray values of MNIST's images, divided by 255, and last the digit."""
    pixels, digit = _read_idx(images, num_axes=3), _read_idx(digits, num_axes=1)
    table = np.empty((len(pixels), pixels[0].size + 1))  # [N, D + 1]
    np.divide(pixels.reshape(len(pixels), -1), 255.0, out=table[:, :-1])
    table[:, -1] = digit
    return table


def read_parity(images: PublishedFile, digits: PublishedFile) -> Floats:
    """
    Read the gray values of MNIST's images, divided by 255, and last 1 for an odd and 0 for an even
    digit.
    """
    table = read_images(images, digits)
    table[:, -1] %= 2.0
    return table


def read_bundled(name: str, **options: Any) -> Floats:
    """Read a set that comes with scikit-learn, target last."""
    import sklearn.datasets  # slow to import, needed here only

    return np.column_stack(
        getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, **options)
    )  # [N, D + 1]


def two_classes(
    read_table: Reader,
    classes: tuple[float, float] = (0.0, 1.0),
    target: int = -1,
    dropped: tuple[int, ...] = (),
) -> Floats:
    """
    Read the rows of two classes of a table: inputs first, label last.

    The label is 0 for ``classes[0]`` in the column ``target`` and 1 for ``classes[1]``. The columns
    ``dropped`` are not inputs.
    """
    table = read_table()  # [all rows, columns]
    table = table[np.isin(table[:, target], classes)]  # [N, columns]
    inputs = np.delete(table, [target, *dropped], axis=1)  # [N, D]
    return np.column_stack([inputs, as_labels(table[:, target], classes)])  # [N, D + 1]


def as_labels(codes: Floats, classes: tuple[float, float]) -> Floats:
    """Return 0 for ``classes[0]`` and 1 for ``classes[1]``; refuse other codes."""
    if not np.isin(codes, classes).all():
        raise ValueError(
            f"codes of classes are {np.unique(codes).tolist()}; accepted are {list(classes)}."
        )
    return np.where(codes == classes[1], 1.0, 0.0)


def _read_idx(file: PublishedFile, num_axes: int) -> npt.NDArray[np.uint8]:
    """
    Read a gzipped IDX file of bytes: four bytes, of which the last is the number of axes, the
    shape, the data.
    """
    with gzip.open(local_copy(file)) as content:
        data = content.read()
    magic = int.from_bytes(data[:4], "big")
    if magic != 0x0800 + num_axes:
        raise ValueError(
            f"{file.path} starts with {magic:#010x}; expected {0x0800 + num_axes:#010x}."
        )
    shape = np.frombuffer(data, dtype=">u4", offset=4, count=num_axes)
    return np.frombuffer(data, dtype=np.uint8, offset=4 * (1 + num_axes)).reshape(shape)
