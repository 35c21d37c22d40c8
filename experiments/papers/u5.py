"""
Inducing points move with alpha (Bui, Yan and Turner 2017, fig. 23). Published: at alpha = 0 they
lie at the decision boundary; they spread over the data as alpha grows.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.run_pictures import decisions
from experiments.papers.tables import ERROR, EVIDENCE, NLPD, means


def jobs(full: bool) -> Jobs:
    common = {"dataset": "banana", "M": 30, "maxiter": 300 if full else 100, "max_jitter": 1e-3}
    return grid("classification", common, alpha=(0.0, 0.01, 0.5, 1.0))


def show(records: Records) -> Shown:
    yield means(records, ("alpha",), (ERROR, NLPD, EVIDENCE), "Scores on banana, M = 30")
    yield decisions(records, "Inducing points by alpha")
