"""
A stream of labels, banana in ten batches, in order and shuffled (Bui, Nguyen and Turner 2017, figs
5 and 12): VFE, PEP the stream by minibatches, and all rows at once; error of all test rows after
each batch, and the boundary.
"""

from typing import Any

from experiments.papers.grid import Jobs, Records, Shown, by_label, grid
from experiments.papers.run_pictures import posteriors, streams
from experiments.papers.t1 import END_LL, MEAN_LL, STREAMING
from experiments.papers.tables import Score, means

BANANA = {
    "dataset": "banana",
    "first": 40,
    "batch_size": 40,
    "M": 30,
    "fraction_to_move": 0.2,
    "lengthscales": 1.5,
}
LABEL_SCORES = (
    Score("mean_error", "error, mean"),
    Score("error", "error at the end", 4),
    MEAN_LL,
    END_LL,
)


def banana(full: bool) -> dict[str, Any]:
    """Return the entries that all runs share."""
    iterations = 30 if full else 10
    return BANANA | {"first_maxiter": iterations, "maxiter": iterations}


def jobs(full: bool) -> Jobs:
    methods = STREAMING | {"streaming SVGP": {"model": "STREAM-SVGP"}}
    streams = grid("streaming", banana(full), order=("forward", "shuffled"), method=methods)
    at_once = {"at once": {"model": "BATCH"}}
    return streams + grid("streaming", banana(full), order=at_once, method=STREAMING)


def show(records: Records) -> Shown:
    """Show scores, their course, and frames of the boundary."""
    yield means(
        records, ("order", "method"), LABEL_SCORES, "Scores of all test rows after the batches"
    )
    for order, group in by_label(records, "order").items():
        if order != "at once":
            yield streams(group, f"Scores, {order}", along="seen")
        yield posteriors(group, f"Boundaries, {order}")
