"""
Location of inducing points, three classes in the plane (Villacampa-Calvo and Hernández-Lobato 2020,
fig. 2): all methods train the points at the same fixed hyperparameters, near the true ones.
"""

from experiments.papers.grid import QUIET, Jobs, Records, Shown, by_label, grid
from experiments.papers.m1 import METHODS
from experiments.papers.run_pictures import decisions
from experiments.papers.tables import ERROR, EVIDENCE, NLPD, means


def jobs(full: bool) -> Jobs:
    size = {"M": 128, "maxiter": 2000} if full else {"M": 20, "maxiter": 15, "max_train": 400}
    fixed = {
        "train_kernel": False,
        "train_epsilon": False,
        "epsilon": 0.05,
        "lengthscales": 0.7,
    }
    common = QUIET | size | fixed | {"dataset": "three-classes"}
    return grid("classification", common, method=METHODS, alpha=(0.0, 0.5, 1.0))


def show(records: Records) -> Shown:
    yield means(
        records, ("method", "alpha"), (ERROR, NLPD, EVIDENCE), "Scores at fixed hyperparameters"
    )
    for method, group in by_label(records, "method").items():
        yield decisions(group, f"Inducing points, {method}")
