"""
Memory against accuracy on terrain (Bui, Nguyen and Turner 2017): streams with several M, SGPR with
600 inducing points on windows of 2000 and 6000 rows, and the exact GP on 2000; published is also
the exact GP on 6000, which takes hours. Memory: the peak of a run beyond the memory before it
(Linux), and what a model carries from batch to batch.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.pictures import curves
from experiments.papers.t1 import END_LL, END_RMSE, STREAM_SCORES
from experiments.papers.t4 import TERRAIN
from experiments.papers.tables import SECONDS, Score, means

_PEAK, _CARRIED = Score("peak", "peak MB", 0), Score("carried", "kB carried", 0, sign=1e-3)


def jobs(full: bool) -> Jobs:
    """Return the runs: M of streams, and windows of SGPR and of the exact GP."""
    common = TERRAIN | {"batch_size": 750}
    if not full:
        common |= {"max_train": 3000, "maxiter": 10, "first_maxiter": 20}
    numbers, windows, M = (
        ((50, 100, 200, 400, 600), (2000, 6000), 600) if full else ((50, 150), (1000, 2000), 100)
    )
    own = grid("streaming", common, method={"streaming VFE": {"alpha": 0.0}}, M=numbers)
    sparse = grid("streaming", common, method={"SGPR": {"model": "SGPR"}}, M=(M,), window=windows)
    exact = {"exact GP": {"model": "GPR"}}
    return own + sparse + grid("streaming", common, method=exact, window=windows[:1])


def show(records: Records) -> Shown:
    scores = (_PEAK, _CARRIED, *STREAM_SCORES, SECONDS)
    yield means(records, ("method", "M", "window"), scores, "Memory and scores")
    for entry, text in {"peak": "MB at the peak", "carried": "bytes carried"}.items():
        yield curves(
            records,
            entry,
            (END_RMSE, END_LL),
            "method",
            f"Scores at the end against {text}",
            logarithmic=True,
        )
