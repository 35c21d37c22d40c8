"""
Errors by the order of arrival, banana in ten batches (Bui, Nguyen and Turner 2017, appendix): left to right, right to
left, at random, and all rows at once.
"""

from experiments.papers.grid import Job, Records, grid
from experiments.papers.pictures import Shown
from experiments.papers.t1 import STREAMING
from experiments.papers.t6 import LABEL_SCORES, banana
from experiments.papers.tables import means

_PUBLISHED = {"forward": 0.0875, "backward": 0.095, "shuffled": 0.095, "at once": 0.095}


def jobs(full: bool) -> list[Job]:
    orders = {name: {"order": name} for name in ("forward", "backward", "shuffled")}
    return grid(
        "streaming", banana(full), order={**orders, "at once": {"model": "BATCH"}}, method=STREAMING
    )


def show(records: Records) -> Shown:
    end = LABEL_SCORES[1]
    beside = {(order, method): error for order, error in _PUBLISHED.items() for method in STREAMING}
    yield means(
        records,
        ("order", "method"),
        (end, LABEL_SCORES[3]),
        "Scores by the order of arrival",
        {end: beside},
    )
