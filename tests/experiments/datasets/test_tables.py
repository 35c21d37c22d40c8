"""Tables: words, missing values, pairs of classes and images, from small files written here."""

import gzip
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refused

from experiments.datasets.tables import (
    as_labels,
    read_columns,
    read_csv,
    read_images,
    read_parity,
    read_words,
    stack,
    two_classes,
)


def test_words_become_their_codes(publish):
    file = publish("plants.data", b"0.5,2,tall\n1,-3e1,low\n\n")
    table = read_words(file, codes={"tall": 1.0, "low": 0.0}, delimiter=",")
    assert_array_equal(table, [[0.5, 2.0, 1.0], [1.0, -30.0, 0.0]])


def test_several_files_with_headers_and_missing_values(publish):
    first = publish("first.txt", b" a b kind\n 1  NA Yes\n 2 3 No\n")
    second = publish("second.txt", b"a b kind\r\n4 5 Yes\r\n6 ? No\r\n")
    table = read_words(first, second, codes={"Yes": 1.0, "No": 0.0}, num_header_lines=1)
    assert_array_equal(table, [[2.0, 3.0, 0.0], [4.0, 5.0, 1.0]])


def test_word_without_a_code_is_refused(publish):
    with refused("perhaps"):
        read_words(publish("answers.txt", b"1 perhaps\n"), codes={"Yes": 1.0})


def test_two_files_side_by_side(publish):
    inputs = publish("x.txt", b"1,2\n3,4\n")
    targets = publish("y.txt", b"-1\n1\n")
    assert_array_equal(read_columns(inputs, targets), [[1.0, 2.0, -1.0], [3.0, 4.0, 1.0]])


def test_white_space_and_gzip(publish):
    assert_array_equal(
        read_csv(publish("t.gz", gzip.compress(b"1 2\n3 4\n")), delimiter=None), [[1, 2], [3, 4]]
    )


def test_tables_are_stacked_in_order():
    assert_array_equal(stack(lambda: np.ones((2, 3)), lambda: np.zeros((1, 3)))[:, 0], [1, 1, 0])


CODED = np.array([[3.0, 10.0, 11.0], [5.0, 20.0, 21.0], [4.0, 30.0, 31.0], [3.0, 40.0, 41.0]])


def test_rows_of_two_classes_with_the_label_last():
    table = two_classes(lambda: CODED, (5.0, 3.0), target=0)
    assert_array_equal(table, [[10.0, 11.0, 1.0], [20.0, 21.0, 0.0], [40.0, 41.0, 1.0]])


def test_dropped_columns_are_no_inputs():
    table = two_classes(lambda: CODED[:, ::-1], (3.0, 5.0), dropped=(0,))  # the codes come last
    assert_array_equal(table, [[10.0, 0.0], [20.0, 1.0], [40.0, 0.0]])


def test_code_of_a_third_class_is_refused():
    with refused(r"codes of classes are \[3.0, 4.0, 5.0\]; accepted are \[3.0, 5.0\]"):
        as_labels(CODED[:, :1], (3.0, 5.0))


def idx(array):
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize(
    ("read", "labels"), [(read_images, [7.0, 0.0, 4.0]), (read_parity, [1.0, 0.0, 0.0])]
)
def test_images_and_their_digits_or_the_parity_of_these(publish, read, labels):
    images = np.arange(3 * 2 * 4).reshape(3, 2, 4) * 10
    digits = np.array([7, 0, 4])
    table = read(publish("images.gz", idx(images)), publish("digits.gz", idx(digits)))
    assert_array_equal(table[:, :-1], images.reshape(3, 8) / 255.0)
    assert_array_equal(table[:, -1], labels)


def test_labels_in_place_of_images_are_refused(publish):
    digits = publish("digits.gz", idx(np.array([7, 0, 4])))
    with refused(r"digits.gz starts with 0x00000801; expected 0x00000803"):
        read_parity(digits, digits)
