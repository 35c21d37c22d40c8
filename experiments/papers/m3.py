"""
Scores against seconds on satellite (Villacampa-Calvo and Hernández-Lobato 2020, fig. 3): L-BFGS on
all rows, several M and alphas, repeats on splits. Smaller than published, for the hours it takes: 5
splits for 100, 3 alphas for 5.
"""

from experiments.papers.grid import Jobs, Records, Shown
from experiments.papers.m1 import METHODS, beside_svgp
from experiments.papers.run_pictures import scores_and_seconds


def jobs(full: bool) -> Jobs:
    """Return the runs: splits x M x methods x alpha; SVGP has no alpha."""
    common = {"dataset": "satellite", "max_jitter": 1e-2}
    common |= (
        {"maxiter": 500, "log_interval": 50}
        if full
        else {"maxiter": 10, "log_interval": 2, "max_train": 400}
    )
    alphas = (0.0, 0.5, 1.0) if full else (0.5,)
    return beside_svgp(
        "classification",
        common,
        METHODS,
        alphas,
        split=range(5 if full else 1),
        M=(4, 20, 100) if full else (4, 20),
    )


def show(records: Records) -> Shown:
    return scores_and_seconds(records, "split", "M", "method", "alpha")
