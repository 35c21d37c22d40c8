"""
EP for a dense GP classifier (Bui, Yan and Turner 2017, app. I.5 and fig. 33; Kuss and Rasmussen
2005): ionosphere, an inducing point at every input, alpha = 1. Evidence and NLPD over a grid of
hyperparameters, of PEP and of dense EP.
"""

import numpy as np

from experiments.papers.grid import Jobs, Records, Shown, by_label, grid, matched
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
    models = {"PEP": {}, "dense EP": {"model": "EP"}}
    return grid("classification", common, **places, model=models)


def show(records: Records) -> Shown:
    """Show evidence and NLPD over the hyperparameters, and the best of either."""
    by_model = by_label(records, "model")
    best = [
        record
        for own in by_model.values()
        for record in (max(own, key=EVIDENCE), min(own, key=NLPD))
    ]
    gaps = [abs(EVIDENCE(a) - EVIDENCE(b)) for a, b in matched(records, "model", *by_model)]
    yield means(
        best,
        ("model", "lengthscales", "kernel_variance"),
        (EVIDENCE, NLPD, ERROR),
        "Largest evidence, and smallest NLPD",
        note=f"The log evidence of a row differs by at most {max(gaps):.1e} nats.",
    )
    scores = {"objective_per_point": "log evidence a row, nats", "nlpd": "test NLPD, nats"}
    for model, own in by_model.items():
        yield contours(own, scores, f"Evidence and NLPD over hyperparameters, {model}")
