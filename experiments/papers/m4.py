"""
Scores against seconds on the ten digits of MNIST (Villacampa-Calvo and Hernández-Lobato 2020, fig.
4): minibatches of 200 rows, Adam, pixels as they are. Smaller than published, for the hours it
takes: 3 alphas for 11, and no PEP, whose sites of all rows and classes take gigabytes.
"""

from typing import Any

from experiments.papers.grid import Jobs, Records, Shown, repeats
from experiments.papers.m1 import TIED, beside_svgp
from experiments.papers.run_pictures import scores_and_seconds


def jobs(full: bool) -> Jobs:
    return minibatch_jobs(full, {"dataset": "mnist", "standardize": False})


def minibatch_jobs(full: bool, data: dict[str, Any]) -> Jobs:
    """Return the runs on a data set: repeats x methods x alpha; SVGP has no alpha."""
    size = (
        {"M": 200, "maxiter": 20_000, "log_interval": 500}
        if full
        else {"M": 20, "maxiter": 100, "log_interval": 20}
    )
    common = (
        size | data | {"optimizer": "adam", "batch_size": 200, "max_train": None if full else 4000}
    )
    alphas = (0.0, 0.5, 1.0) if full else (0.5,)
    of_seeds = repeats(3 if full else 1, "seed")
    return beside_svgp("classification", common, TIED, alphas, repeat=of_seeds)


def show(records: Records) -> Shown:
    return scores_and_seconds(records, "repeat", "method", "alpha")
