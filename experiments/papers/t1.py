"""
A toy function in three parts, ten inducing points (Bui, Nguyen and Turner 2017, fig. 1): rows in
order and shuffled, VFE and PEP, beside vanilla streaming VB (`experiments.learners.vanilla`).
"""

from experiments.papers.grid import Jobs, Records, Shown, by_label, grid
from experiments.papers.run_pictures import posteriors, streams
from experiments.papers.tables import Score, means

STREAMING = {"VFE": {"alpha": 0.0}, "PEP 0.5": {"alpha": 0.5}}
VANILLA = {"vanilla VB": {"model": "VANILLA"}}
MEAN_RMSE = Score("mean_rmse", "RMSE, mean")
MEAN_LL = Score("mean_log_likelihood", "log likelihood, mean", larger_is_better=True)
END_RMSE = Score("rmse", "RMSE at the end")
END_LL = Score("log_likelihood", "log likelihood at the end", larger_is_better=True)
STREAM_SCORES = (MEAN_RMSE, END_RMSE, MEAN_LL, END_LL)


def jobs(full: bool) -> Jobs:
    common = {
        "dataset": "toy-stream",
        "first": 40,
        "batch_size": 40,
        "M": 10,
        "fraction_to_move": 0.3,
        "lengthscales": 0.8,
        "noise_variance": 0.01,
        "first_maxiter": 500,
        "maxiter": 500 if full else 100,
    }
    methods = STREAMING | VANILLA
    return grid("streaming", common, order=("forward", "shuffled"), method=methods)


def show(records: Records) -> Shown:
    """Show scores, their course, and frames of the posterior."""
    yield means(
        records,
        ("order", "method"),
        STREAM_SCORES,
        "Scores of test points passed so far, and of all at the end",
    )
    for order, group in by_label(records, "order").items():
        yield posteriors(group, f"Posteriors, {order}")
        yield streams(group, f"Scores, {order}", along="seen")
