"""
Six binary sets (Bui, Yan and Turner 2017, sec. 4.3): minibatches of sites, updated once a step, and
Adam, beside the variational classifier with an explicit q(u) (Hensman et al. 2015). Published:
alpha = 0.5 has a lower NLPD than 1 in 65 % of the runs; differences are small otherwise.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.pictures import against_M
from experiments.papers.run_pictures import reliability
from experiments.papers.tables import ERROR, NLPD, means, ranks, wins

SETS = ("australian", "breast", "crabs", "iono", "pima", "sonar")
ADAM = {
    "model": "PEP",
    "optimizer": "adam",
    "batch_size": 50,
    "learning_rate": 0.01,
    "max_jitter": 1e-3,
}
HENSMAN = "SVGP"
_PAIRS = ((0.5, 1.0), (0.5, 0.0), (1.0, 0.0), (0.5, HENSMAN), (0.0, HENSMAN))


def jobs(full: bool) -> Jobs:
    alphas = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0) if full else (0.0, 0.2, 0.5, 0.8, 1.0)
    return grid(
        "classification",
        ADAM | {"maxiter": 2000 if full else 1000, "log_interval": 10**5},
        dataset=SETS if full else ("crabs", "pima"),
        split=range(20 if full else 2),
        M=(10, 50, 100) if full else (10, 50),
        alpha={alpha: {"alpha": alpha} for alpha in alphas} | {HENSMAN: {"model": "SVGP"}},
    )


def show(records: Records) -> Shown:
    """
    Show win fractions, ranks, means, scores against M, and the reliability of the probabilities.
    """
    unknown = dict.fromkeys(_PAIRS)
    yield wins(records, "alpha", NLPD, unknown | {(0.5, 1.0): 65}, "Wins by NLPD")
    yield wins(records, "alpha", ERROR, unknown, "Wins by error")
    yield ranks(records, "alpha", (ERROR, NLPD), "Average ranks of alpha")
    yield means(records, ("dataset", "M", "alpha"), (ERROR, NLPD), "Means of the splits")
    yield from against_M(records, (ERROR, NLPD), "alpha")
    yield reliability(records, "dataset")
