"""
Eight UCI regression sets (Bui, Yan and Turner 2017, sec. 4.2): published splits, all alphas and M.
Win fractions are over all sets, splits and M, beside the published ones.
"""

from experiments.papers.grid import QUIET, Jobs, Records, Shown, grid
from experiments.papers.pairs import comparisons, matrix
from experiments.papers.pictures import against_M
from experiments.papers.tables import EVIDENCE, NOISE, SMLL, SMSE, means, ranks, wins

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine-red", "yacht")
WINS = {
    SMSE: {(0.5, 0.0): 67, (0.5, 1.0): 78, (0.0, 1.0): 64},
    SMLL: {(1.0, 0.0): 93, (0.5, 0.0): 93, (1.0, 0.5): 71},
}
"""Published: percentage of runs in which the first alpha is better than the second."""


def jobs(full: bool) -> Jobs:
    return grid(
        "regression",
        QUIET | {"model": "PEPR", "maxiter": 2000 if full else 200},
        dataset=SETS if full else ("boston", "energy", "yacht"),
        split=range(20 if full else 2),
        M=(5, 10, 20, 50, 100, 200) if full else (10, 50),
        alpha=(0.0, 0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0) if full else (0.0, 0.2, 0.5, 0.8, 1.0),
    )


def show(records: Records) -> Shown:
    """Show win fractions, ranks, means, pairs, and scores and evidence against M."""
    for score, published in WINS.items():
        yield wins(records, "alpha", score, published, f"Wins by {score.heading}")
    yield ranks(records, "alpha", (SMSE, SMLL), "Average ranks of alpha")
    yield means(
        records, ("dataset", "M", "alpha"), (SMSE, SMLL, EVIDENCE, NOISE), "Means of the splits"
    )
    yield from against_M(records, (SMSE, SMLL, EVIDENCE, NOISE), "alpha")
    for score, published in WINS.items():
        yield comparisons(records, score, published, f"Pairs by {score.heading}")
        yield matrix(records, score, f"All pairs by {score.heading}")
