"""The comparison on tables: fits in separate processes, the records, and the summary."""

import json
import multiprocessing
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.dummy import DummyRegressor

from experiments.benchmarks import methods, rankings, tables

FORK = multiprocessing.get_context("fork")
LINE = np.linspace(0.0, 1.0, 20)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """
    Two tables, of numbers and of labels, and fits in forked processes, which inherit the
    replacements of a test.
    """
    (tmp_path / "tables").mkdir()
    noise = np.random.default_rng(0).normal(size=(20, 2))
    labels = np.where(LINE > 0.5, "high", "low")
    np.savez(tmp_path / "tables" / "numbers.npz", X=noise + LINE[:, None], y=3.0 * LINE)
    np.savez(tmp_path / "tables" / "labels.npz", X=noise + LINE[:, None], y=labels)
    monkeypatch.setenv("GPFLOW_PEP_DATA", str(tmp_path))
    monkeypatch.setattr(methods, "get_context", lambda _: FORK)
    return tmp_path


class Constant:
    """Predicts 2 with standard deviation 0.5, or "low" with probability 0.8."""

    classes_ = np.array(["high", "low"])

    def fit(self, X, y):
        warnings.warn("of a stub", stacklevel=1)

    def predict(self, X, return_std=False):
        if return_std:
            return np.full(len(X), 2.0), np.full(len(X), 0.5)
        return np.full(len(X), "low")

    def predict_proba(self, X):
        return np.tile([0.2, 0.8], (len(X), 1))


class Loop(Constant):
    def fit(self, X, y):
        while True:
            pass


class Stubborn(Constant):
    def fit(self, X, y):
        while True:
            try:
                Loop().fit(X, y)
            except TimeoutError:
                continue


def run(monkeypatch, folder, *options):
    records = folder / "records.jsonl"
    monkeypatch.setattr("sys.argv", ["tables", *options, "--records", str(records)])
    tables.main()
    return tables.read(records)


def test_names_of_methods_are_known_without_tensorflow():
    assert tuple(methods.METHODS) == tables.METHODS
    script = "import sys, experiments.benchmarks.tables as t; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_second_run_fits_only_what_is_missing(folder, monkeypatch, capsys):
    first = run(monkeypatch, folder, "--methods", "linear")
    assert {(each["table"], each["N"], each["D"], each["classes"]) for each in first} == {
        ("numbers", 20, 2, 0),
        ("labels", 20, 2, 2),
    }
    second = run(monkeypatch, folder, "--methods", "linear", "sklearn-gp", "--seeds", "0")
    assert second[:2] == first and [each["method"] for each in second[2:]] == ["sklearn-gp"] * 2
    third = run(monkeypatch, folder, "numbers", "--methods", "linear", "--seeds", "0", "1")
    assert third[:4] == second and (third[4]["table"], third[4]["seed"]) == ("numbers", 1)
    assert all(each["status"] == "completed" and each["seconds"] >= 0.0 for each in third)
    shown = capsys.readouterr().out
    assert run(monkeypatch, folder, "--summary") == third
    assert "regressions: 1 tables, 1 splits" in capsys.readouterr().out and "fits" in shown


@pytest.mark.parametrize(
    ("kind", "status"), [(Loop, "cut off"), (Stubborn, "ended with -9")], ids=["loop", "deaf"]
)
def test_a_fit_ends_at_its_limit_of_cpu_seconds(kind, status, folder, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "linear", lambda X, classes: kind())
    monkeypatch.setattr(methods, "_GRACE", 1)
    record = methods.fit_alone(1, methods.of_table, "linear", LINE[:, None], LINE, 0)
    assert record["status"] == status and "nlpd" not in record


def test_an_error_is_recorded(folder):
    record = methods.fit_alone(1, methods.of_table, "linear:unknown=1", LINE[:, None], LINE, 0)
    assert record["status"].startswith("TypeError") and "unknown" in record["status"]


@pytest.mark.parametrize("method", ["default", "linear"])
def test_scores_of_numbers(method, monkeypatch):
    """
    The default predicts y, others standardized y; both are scored as y over its training part's
    deviation.
    """
    monkeypatch.setitem(methods.METHODS, method, lambda X, classes: Constant())
    y = 7.0 + 4.0 * LINE
    found = methods.of_table(100, method, LINE[:, None], y, 3)
    _, _, train, test = methods.split(LINE[:, None], y, 3)
    assert (len(train), len(test)) == (14, 6)
    unit = train.std()
    center = train.mean()
    mean, std = (2.0 / unit, 0.5 / unit) if method == "default" else (2.0 + center / unit, 0.5)
    assert_allclose(found["nlpd"], -norm.logpdf(test / unit, mean, std).mean(), rtol=1e-12)
    assert_allclose(found["error"], np.sqrt(np.mean((test / unit - mean) ** 2)), rtol=1e-12)


def test_scores_of_labels(monkeypatch):
    """
    Half of the rows are of each class, in both parts; a class that a method does not know has
    probability 1e-15.
    """
    monkeypatch.setitem(methods.METHODS, "linear", lambda X, classes: Constant())
    for label, probability in (("high", 0.2), ("new", 1e-15)):
        y = np.where(LINE > 0.5, label, "low")
        found = methods.of_table(100, "linear", LINE[:, None], y, 0)
        assert_allclose(found["nlpd"], -np.log(probability * 0.8) / 2.0, rtol=1e-12)
        assert found["error"] == 0.5 and found["warnings"] == ["UserWarning: of a stub"]


def test_the_spread_of_folds():
    """Each fold of a mean over two rows is the other row: residuals are their difference."""
    mean = methods.WithSpread(DummyRegressor())
    mean.fit(np.array([[0.0], [1.0]]), np.array([1.0, 4.0]))
    predicted, std = mean.predict(np.zeros((1, 1)), return_std=True)
    assert_allclose([predicted[0], std[0]], [2.5, 3.0], rtol=1e-12)


def test_tables_of_the_catalog_need_no_download(monkeypatch):
    monkeypatch.delenv("GPFLOW_PEP_DATA", raising=False)
    found = dict(tables.tables([], 160))
    assert list(found) == ["qp-iris-12", "qp-iris-13", "qp-iris-23", "iris"]
    X, y = found["iris"]
    assert X.shape == (150, 4) and np.unique(y).tolist() == [0, 1, 2] and X.max() == 7.9
    ((_, drawn),) = tables.tables(["iris"], 160, drawn=20)
    assert len(drawn[1]) == 20
    with pytest.raises(SystemExit, match="nothing: no such table"):
        next(tables.tables(["nothing"], 160))


def test_blobs(monkeypatch):
    """
    Clusters of one spread, around centers in [-10, 10]: all have the same pooled standard
    deviation.
    """
    monkeypatch.delenv("GPFLOW_PEP_DATA", raising=False)
    found = dict(tables.tables(["blobs-1", "blobs-2"], 1000, num_blobs=3))
    assert list(found) == ["blobs-2", "blobs-1"]
    X, y = found["blobs-1"]
    names = np.unique(y)
    assert X.shape == (780, 6) and len(names) == 6 and y.dtype.kind == "U"
    centers = np.array([X[y == name].mean(axis=0) for name in names])
    residuals = X - centers[np.searchsorted(names, y)]
    assert np.abs(centers).max() < 11.0 and 0.5 < residuals.std() < 4.0
    # A standard deviation from n numbers has the relative error 1 / sqrt(2 n): four of them for n =
    # 780.
    assert_allclose(residuals.std(axis=0), residuals.std(), rtol=0.1)


@pytest.mark.parametrize(
    ("line", "message"),
    [('{"table": "wi', "is not JSON"), ("{}", "is no record"), ("[1]", "is no record")],
)
def test_a_damaged_record_is_named(tmp_path, line, message):
    good = json.dumps(toy_records()[0] | {"seed": 0})
    (tmp_path / "records.jsonl").write_text(f"{good}\n{line}")
    with pytest.raises(SystemExit, match=f"line 2, {message}"):
        tables.read(tmp_path / "records.jsonl")


def test_folders_and_files_of_tables_are_checked(monkeypatch, tmp_path):
    monkeypatch.setenv("GPFLOW_PEP_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="must hold tables"):
        list(tables.tables([], 160))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "junk.npz").write_text("junk")
    with pytest.raises(SystemExit, match=r"junk\.npz must be a file of arrays X and y"):
        list(tables.tables([], 160))


def record(table, method, nlpd, seed=0, **others):
    sizes = {"N": len(table), "D": 1, "classes": 0, "seconds": 1.0, "status": "converged"}
    found = {} if nlpd is None else {"nlpd": nlpd, "error": 0.5}
    return {"table": table, "method": method, "seed": seed} | sizes | found | others


def toy_records():
    """
    Scores of three methods on three tables; `default` has no score on the last, `linear` has only
    seed 0 of one.
    """
    return [
        record("aa", "default", 0.1, seconds=3.0),
        record("aa", "default", 0.5, seed=1),
        record("aa", "sgpr", 0.5),
        record("aa", "sgpr", 0.29, seed=1),
        record("aa", "linear", 0.2),
        record("bbb", "default", 5.0, warnings=["one"]),
        record("bbb", "sgpr", 1.0),
        record("bbb", "linear", 4.0),
        record("cccc", "default", None),
        record("cccc", "sgpr", 2.0),
        record("cccc", "linear", 2.0),
    ]


def test_summary(capsys):
    """
    Seed 1 of aa does not count. Scores: aa .1 .5 .2, bbb 5 1 4, cccc infinite 2 2.

    Ranks: default 1 3 3, sgpr 3 1 1.5, linear 2 2 1.5. Clipped at 3: means 6.1 / 3, 3.5 / 3, 5.2 /
    3; distances to the best: default 0 2 1, sgpr .4 0 0, linear .1 2 0. Near SGPR's score: default
    aa, linear aa and cccc. Worse than linear by .05: default bbb and cccc, sgpr aa. Behind the
    better of SGPR and linear by .03: default bbb and cccc, sgpr aa, linear bbb. No method is SVGP.
    """
    methods_table, tables_table = rankings.summary(toy_records())
    rows = [list(row.values()) for row in methods_table.rows]
    expected = [
        ["default", 7 / 3, 6.1 / 3, 1.0, 4.0 / 3, 1, 2, 2, 1.0, 3.0, 0.0, 1, 1],
        ["sgpr", 5.5 / 3, 3.5 / 3, 0.4 / 3, 0.5, 3, 1, 1, 1.0, 1.0, 0.0, 0, 0],
        ["linear", 5.5 / 3, 5.2 / 3, 2.1 / 3, 0.5, 2, 0, 1, 1.0, 1.0, 0.0, 0, 0],
    ]
    for row, values in zip(rows, expected, strict=True):
        assert row[0] == values[0] and row[1:] == pytest.approx(values[1:], rel=1e-12)
    assert tables_table.rows[0] == {
        "table": "aa", "N": 2, "D": 1, "default": 0.1, "sgpr": 0.5, "linear": 0.2
    }  # fmt: skip
    assert "3 tables, 3 splits" in capsys.readouterr().out


def test_means_over_seeds():
    """Both seeds of aa count for the two methods that have them."""
    chosen = [each for each in toy_records() if each["method"] != "linear"]
    values = rankings.means(rankings.complete(chosen), "nlpd")
    assert_allclose(values, [[0.3, 0.395], [5.0, 1.0], [np.inf, 2.0]], rtol=1e-12)


def test_the_picture(monkeypatch):
    """The curve of `default`: distances to the best 0, 4 and infinite on three tables."""
    import matplotlib.pyplot as plt

    monkeypatch.syspath_prepend(str(tables.Path(__file__).parents[3] / "docs" / "pictures"))
    found = json.loads(json.dumps([each.as_data() for each in rankings.summary(toy_records())]))
    with plt.rc_context():
        from measurements import quality

        figure = quality(found)
        curve = {line.get_label(): line for line in figure.axes[0].lines}["default"]
        assert_allclose(curve.get_ydata(), [1 / 3, 2 / 3, 1.0])
        assert_allclose(curve.get_xdata()[1:], [4.0, np.inf])
        assert curve.get_color() == "#1f5a99" and len(figure.axes) == 1
        figure.canvas.draw()
        plt.close(figure)
