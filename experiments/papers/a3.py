"""
Initial inducing points drawn uniformly, by k-means and by greedy conditional variance: PEPR's
objective per row at the initial hyperparameters, then after training with the points fixed and
trained. At alpha = 0 it is a bound; with alpha > 0 it approximates the evidence.
"""

from experiments.papers.grid import QUIET, Jobs, Records, Shown, grid
from experiments.papers.tables import EVIDENCE, LL, RMSE, means


def jobs(full: bool) -> Jobs:
    common = QUIET | ({"M": 200, "max_train": 10_000} if full else {"M": 20})
    iterations = {"maxiter": 50 if full else 10}
    trainings = {
        "none": {"maxiter": 0},
        "points fixed": iterations | {"train_inducing": False},
        "points trained": iterations,
    }
    return grid(
        "regression",
        common,
        dataset=("kin40k", "elevators", "power") if full else ("diabetes",),
        alpha=(0.0, 0.5),
        points=("uniform", "k-means", "greedy"),
        training=trainings,
    )


def show(records: Records) -> Shown:
    by = ("dataset", "alpha", "points", "training")
    yield means(records, by, (EVIDENCE, RMSE, LL), "Objective and scores by the initial points")
