"""
Alpha on a stream of a pseudo-periodic series (Bui, Nguyen and Turner 2017): four series, online
training, beside vanilla streaming VB. Published: small alpha is best online.
"""

from experiments.papers.grid import Jobs, Records, Shown, by_label, grid, in_course
from experiments.papers.pictures import curves
from experiments.papers.t1 import STREAM_SCORES, VANILLA
from experiments.papers.tables import RMSE, Score, means, ranks

_LL = Score("log_likelihood", "log likelihood, nats", larger_is_better=True)


def jobs(full: bool) -> Jobs:
    common = {"dataset": "pseudo-periodic", "first": 1000, "batch_size": 500, "M": 100}
    if not full:
        common |= {"max_train": 2500, "M": 60, "maxiter": 10, "first_maxiter": 40}
    alphas = (0.0, 0.01, 0.2, 0.5, 0.8, 1.0) if full else (0.0, 0.2, 0.5, 1.0)
    powers = {alpha: {"alpha": alpha} for alpha in alphas}
    return grid("streaming", common, split=range(4 if full else 2), alpha=powers | VANILLA)


def show(records: Records) -> Shown:
    """Show scores and ranks by alpha, and their course."""
    yield means(
        records,
        ("alpha",),
        STREAM_SCORES,
        "Scores of test points passed so far, and of all at the end",
    )
    yield ranks(records, "alpha", STREAM_SCORES, "Average ranks of alpha")
    vanilla = [record for record in records if record["alpha"] in VANILLA]
    yield curves(
        [record for record in records if record not in vanilla],
        "alpha",
        STREAM_SCORES,
        "split",
        "Scores by alpha",
        reference=by_label(vanilla, "alpha"),
    )
    after_batches = in_course(records, "seen", lambda record: record["course"])
    title = "Scores after each batch, means of the series"
    yield curves(after_batches, "seen", (RMSE, _LL), "alpha", title)
