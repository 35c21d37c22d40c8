"""Data sets as their split says."""

from comparisons import assert_all_equal


def assert_is_split(data, X, Y, train, test):
    """The parts of a data set are these rows of X and Y."""
    found = data.X_train, data.Y_train, data.X_test, data.Y_test
    assert_all_equal(found, (X[train], Y[train], X[test], Y[test]))
