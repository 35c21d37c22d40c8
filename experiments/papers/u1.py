"""
Draws from a Gaussian process (Bui, Yan and Turner 2017, sec. 4.1): 500 training rows, five inputs,
all alphas and M, beside the exact GP. Published: alpha from 0.5 to 0.8 predicts best; near 1 the
evidence is overestimated.
"""

from experiments.papers.grid import QUIET, Jobs, Records, Shown, by_label, grid
from experiments.papers.pictures import curves
from experiments.papers.tables import EVIDENCE, NOISE, SMLL, SMSE, means, ranks, wins
from experiments.papers.u2 import WINS

EXACT = "exact GP"


def jobs(full: bool) -> Jobs:
    """Return the runs: draws x M x alpha, and the exact GP of each draw."""
    draws = range(30 if full else 5)
    common = QUIET | {"dataset": "gp-draws", "maxiter": 2000 if full else 500}
    numbers = (5, 10, 20, 50, 100, 200, 500) if full else (5, 20, 50, 100)
    alphas = (0.0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0) if full else (0.0, 0.2, 0.5, 0.8, 1.0)
    sparse = grid("regression", common | {"model": "PEPR"}, split=draws, M=numbers, alpha=alphas)
    return sparse + grid("regression", common, split=draws, alpha={EXACT: {"model": "GPR"}})


def show(records: Records) -> Shown:
    """Show scores and evidence against M, win fractions and ranks."""
    exact = by_label(records, "alpha").get(EXACT, [])
    sparse = [record for record in records if record.labels["alpha"] != EXACT]
    scores = (EVIDENCE, SMSE, SMLL, NOISE)
    yield means(
        records,
        ("M", "alpha"),
        scores,
        "Means of the draws",
        note="SMLL and SMSE of test rows; nats.",
    )
    yield curves(
        sparse,
        "M",
        scores,
        "alpha",
        "Evidence and scores against M",
        logarithmic=True,
        reference=by_label(exact, "alpha"),
    )
    for score, published in WINS.items():
        yield wins(sparse, "alpha", score, dict.fromkeys(published), f"Wins by {score.heading}")
    yield ranks(sparse, "alpha", (SMSE, SMLL), "Average ranks of alpha")
