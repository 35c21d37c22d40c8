"""
Streams of time series (Bui, Nguyen and Turner 2017, fig. 2): 24,000 pseudo-periodic steps and an
audio signal, against the exact GP and SGPR on the last 3000 rows and against SVGP with 100 steps a
batch.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid, grouped
from experiments.papers.run_pictures import streams
from experiments.papers.t1 import STREAM_SCORES, STREAMING
from experiments.papers.tables import SECONDS, means

PEERS = {
    "streaming SVGP": {"model": "STREAM-SVGP"},
    "GPR, window": {"model": "GPR"},
    "SGPR, window": {"model": "SGPR"},
    "SVGP": {"model": "SVGP"},
}


def jobs(full: bool) -> Jobs:
    common = {"first": 1000, "window": 3000}
    if not full:
        common |= {"max_train": 3000, "window": 1000, "maxiter": 10, "first_maxiter": 40}
    names = ("pseudo-periodic", "audio-subband")
    numbers, sizes = ((100, 200), (300, 500)) if full else ((60,), (500,))
    return grid(
        "streaming",
        common,
        dataset=names,
        M=numbers,
        batch_size=sizes,
        method=STREAMING | PEERS,
    )


def show(records: Records) -> Shown:
    by = ("dataset", "M", "batch_size", "method")
    yield means(
        records,
        by,
        (*STREAM_SCORES, SECONDS),
        "Scores of test points passed so far, and of all at the end",
    )
    for labels, group in grouped(records, "dataset", "M", "batch_size").items():
        name, M, size = labels
        yield streams(group, f"{name}, M = {M}, batches of {size}")
