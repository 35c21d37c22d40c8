"""
EP for a dense GP classifier (Bui, Yan and Turner 2017, app. I.5 and fig. 33; Kuss and Rasmussen
2005): ionosphere, an inducing point at every input, alpha = 1. Evidence and NLPD over a grid of
hyperparameters.
"""

import numpy as np

from experiments.papers.grid import Jobs, Records, grid
from experiments.papers.pictures import Shown
from experiments.papers.run_pictures import contours
from experiments.papers.tables import ERROR, EVIDENCE, NLPD, means


def jobs(full: bool) -> Jobs:
    """Return a run at each point of the grid, without training."""
    number = 15 if full else 4
    places = {
        name: [float(f"{value:.3g}") for value in np.geomspace(*ends, number)]
        for name, ends in {"lengthscales": (1.0, 50.0), "kernel_variance": (1.0, 1e5)}.items()
    }
    common = {"dataset": "iono", "alpha": 1.0, "M": None, "maxiter": 0, "max_jitter": 1e-2}
    return grid("classification", common, **places)


def show(records: Records) -> Shown:
    """Show evidence and NLPD over the hyperparameters, and the best of either."""
    by_evidence = max(records, key=EVIDENCE)
    by_nlpd = min(records, key=NLPD)
    names = ("lengthscales", "kernel_variance")
    yield means(
        [by_evidence, by_nlpd],
        names,
        (EVIDENCE, NLPD, ERROR),
        "Largest evidence, and smallest NLPD",
    )
    scores = {"objective_per_point": "log evidence a row, nats", "nlpd": "test NLPD, nats"}
    yield contours(records, *names, scores, "Evidence and NLPD over hyperparameters")
