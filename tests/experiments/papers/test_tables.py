"""Tables and figures of records: means, win fractions, ranks, and their appearance."""

import pytest
from numpy.testing import assert_allclose

from experiments.papers.grid import Record, grid, grouped
from experiments.papers.pairs import comparisons, matrix
from experiments.papers.pictures import courses, curves, dots
from experiments.papers.tables import LL, RMSE, means, ranks, wins


@pytest.fixture
def records():
    """Two sets, two splits; alpha = 0.5 has the smaller RMSE but in one of four."""
    rmse = {("a", 0, 0.0): 0.4, ("a", 0, 0.5): 0.2, ("a", 1, 0.0): 0.6, ("a", 1, 0.5): 0.4}
    rmse |= {("b", 0, 0.0): 0.1, ("b", 0, 0.5): 0.3, ("b", 1, 0.0): 0.3, ("b", 1, 0.5): 0.1}
    return [
        Record(
            {"dataset": name, "split": split, "alpha": alpha},
            {"rmse": value, "nlpd": 1.0, "converged": alpha == 0},
        )
        for (name, split, alpha), value in rmse.items()
    ]


def test_grid_takes_values_and_named_changes():
    jobs = grid(
        "regression",
        {"maxiter": 5},
        split=(0, 1),
        method={"SGPR": {"model": "SGPR"}, "P": {"alpha": 0.5}},
    )
    assert [list(job.labels.values()) for job in jobs] == [
        [0, "SGPR"],
        [0, "P"],
        [1, "SGPR"],
        [1, "P"],
    ]
    assert jobs[1].cell.updates == {"seed": 0, "maxiter": 5, "split": 0, "alpha": 0.5}
    assert jobs[0].changed({"split": 7, "M": 3}).labels == {"split": 7, "method": "SGPR"}


def test_means_have_errors_and_published_values(records):
    table = means(records, ("dataset", "alpha"), (RMSE, LL), "Title", {("b", 0.5): [0.25]}, "Note.")
    assert str(table).splitlines() == [
        "**Title**",
        "",
        "| dataset | alpha |          RMSE | published | log likelihood, nats | runs | not "
        "converged |",
        "| ------- | ----: | ------------: | --------: | -------------------: | ---: | "
        "------------: |",
        "| a       |     0 | 0.500 ± 0.100 |         – |       -1.000 ± 0.000 |    2 |             "
        "0 |",
        "| a       |   0.5 | 0.300 ± 0.100 |         – |       -1.000 ± 0.000 |    2 |             "
        "2 |",
        "| b       |     0 | 0.200 ± 0.100 |         – |       -1.000 ± 0.000 |    2 |             "
        "0 |",
        "| b       |   0.5 | 0.200 ± 0.100 |     0.250 |       -1.000 ± 0.000 |    2 |             "
        "2 |",
        "",
        "Note.",
    ]


def test_wins_have_errors_over_the_sets_and_ties_count_half(records):
    table = wins(records, "alpha", RMSE, {(0.5, 0.0): 67, (0.0, 0.5): None, (1.0, 0.0): 5}, "Wins")
    # Of the sets' means, 100 and 50: 75 ± 25; alpha = 1 has no run.
    assert table.lines[1:] == [("0.5, 0", "75 ± 25", "67", "4"), ("0, 0.5", "25 ± 25", "–", "4")]
    assert wins(records, "alpha", LL, {(0.5, 0.0): None}, "Ties").lines[1][1] == "50 ± 0"


def test_ranks_share_ties(records):
    table = ranks(records, "alpha", (RMSE, LL), "Ranks")
    assert table.lines[1:] == [
        ("0", "1.75 ± 0.25", "1.50 ± 0.00"),
        ("0.5", "1.25 ± 0.25", "1.50 ± 0.00"),
    ]


def test_ranks_without_complete_groups_are_empty(records):
    table = ranks([records[0], records[3]], "alpha", (RMSE,), "Ranks")
    assert table.lines == [("alpha", "rank by RMSE")] and table.note.startswith("Over 0 groups")


def test_curves_are_means_with_errors(records):
    picture = curves(
        records,
        "split",
        (RMSE,),
        "alpha",
        "Title",
        panel="dataset",
        reference={"exact GP": records[:1]},
    )
    first, second = picture.figure.axes
    assert [first.get_title(), second.get_title()] == ["a", "b"] and first.get_ylabel() == "RMSE"
    assert_allclose([first.containers[k][0].get_ydata() for k in (0, 1)], [[0.4, 0.6], [0.2, 0.4]])
    legend = {text.get_text() for text in picture.figure.legends[0].get_texts()}
    assert legend == {"alpha = 0", "alpha = 0.5", "exact GP"}


def test_pairs_are_drawn_beside_their_differences_and_counts(records):
    """alpha = 0.5 wins twice on set a, and once of two on b; there is no run with alpha = 1."""
    figure = comparisons(records, RMSE, [(0.5, 0.0), (1.0, 0.0)], "Title").figure
    scatter, histogram, counts = figure.axes
    a, b, _ = (line.get_xydata() for line in scatter.get_lines())
    assert_allclose(a, [[0.2, 0.4], [0.4, 0.6]])
    assert_allclose(b, [[0.3, 0.1], [0.1, 0.3]])
    assert sum(bar.get_height() for bar in histogram.patches) == 4
    assert sorted(bar.get_width() for bar in counts.patches) == [-1, 1, 2]
    (panel,) = matrix(records, RMSE, "Title").figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("alpha = 0", "alpha = 0.5")
    assert_allclose(panel.get_lines()[0].get_xydata(), a[:, ::-1])


def test_lines_differ_without_color(records):
    picture = courses(
        {"a": {"x": ([1, 2], [3, 4])}, "b": {"x": ([1, 2], [3, 5])}}, {"x": "unit"}, "step", "Title"
    )
    lines = picture.figure.axes[0].get_lines()
    assert len({line.get_marker() for line in lines}) == 2
    assert picture.figure.axes[0].get_xlabel() == "step"
    named = [Record({"method": place}, each.result) for place, each in enumerate(records)]
    assert len(dots(named, {"rmse": "RMSE"}, "Title").figure.axes[0].get_lines()) == 8


def test_missing_labels_are_none(records):
    assert list(grouped([*records, Record({"dataset": "c"}, {})], "dataset", "M")) == [
        (name, None) for name in "abc"
    ]
