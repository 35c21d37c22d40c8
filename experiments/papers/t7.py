"""
Errors by the order of arrival, banana in ten batches (Bui, Nguyen and Turner 2017, appendix): left
to right, right to left, at random, and all rows at once. The published errors are multiples of
1/400, so each run is scored on 400 of the 4,900 test rows, drawn with its seed; a draw also has its
own random order and initial inducing points.
"""

from experiments.papers.grid import Jobs, Records, Shown, by_label, grid, in_course, repeats
from experiments.papers.pictures import curves
from experiments.papers.t1 import STREAMING
from experiments.papers.t6 import LABEL_SCORES, banana
from experiments.papers.tables import ERROR, means

_PUBLISHED = {"forward": 0.0875, "backward": 0.095, "shuffled": 0.095, "at once": 0.095}


def jobs(full: bool) -> Jobs:
    """Return the runs: orders x methods x draws."""
    orders = {name: {"order": name} for name in ("forward", "backward", "shuffled")}
    return grid(
        "streaming",
        banana(full) | {"max_test": 400},
        order=orders | {"at once": {"model": "BATCH"}},
        method=STREAMING,
        draw=repeats(10 if full else 2, "seed"),
    )


def show(records: Records) -> Shown:
    """Show scores beside the published, and errors after each batch."""
    beside = {
        (order, method): [error] for order, error in _PUBLISHED.items() for method in STREAMING
    }
    yield means(
        records,
        ("order", "method"),
        LABEL_SCORES[1::2],
        "Scores by the order of arrival",
        beside,
    )
    streams = [record for record in records if record["order"] != "at once"]
    after_batches = in_course(streams, "seen", lambda record: record["course"])
    for method, group in by_label(after_batches, "method").items():
        yield curves(group, "seen", (ERROR,), "order", f"Errors after each batch, {method}")
