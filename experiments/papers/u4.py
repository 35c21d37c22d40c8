"""
Even and odd digits of MNIST (Bui, Yan and Turner 2017, app. I.4): minibatches of sites and Adam,
pixels as they are.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.run_pictures import against_seconds, reliability
from experiments.papers.tables import ERROR, NLPD, SECONDS, means
from experiments.papers.u3 import ADAM


def jobs(full: bool) -> Jobs:
    size = (
        {"maxiter": 6000, "log_interval": 240}
        if full
        else {"maxiter": 200, "log_interval": 20, "max_train": 5000}
    )
    common = ADAM | size | {"dataset": "mnist-even-odd", "standardize": False, "batch_size": 500}
    return grid("classification", common, M=(100, 200) if full else (30,), alpha=(0.0, 0.5, 1.0))


def show(records: Records) -> Shown:
    """Show final scores, scores against seconds, and the reliability of the probabilities."""
    yield means(records, ("M", "alpha"), (ERROR, NLPD, SECONDS), "Scores of 10,000 test digits")
    yield against_seconds(
        records, lambda r: f"M = {r['M']}, alpha {r['alpha']:g}", "Scores against seconds"
    )
    yield reliability(records, "M")
