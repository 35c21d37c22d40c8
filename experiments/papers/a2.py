"""
A power for each cluster of rows (three, by k-means), chosen by leave-one-out densities, beside the
best power of all rows; PEPR with 20 inducing points.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.tables import Lines, Score, Table, means, shown

_SCORES = (
    Score("single_loo", "leave-one-out, one power", larger_is_better=True),
    Score("loo", "leave-one-out, by cluster", larger_is_better=True),
    Score("single_held_out", "held out, one power", larger_is_better=True),
    Score("held_out", "held out, by cluster", larger_is_better=True),
)


def jobs(full: bool) -> Jobs:
    common = {"maxiter": 100 if full else 60}
    return grid(
        "cluster_alphas", common, dataset=("yacht", "energy"), split=range(20 if full else 2)
    )


def show(records: Records) -> Shown:
    yield means(records, ("dataset",), _SCORES, "Log densities, nats a row")
    lines: Lines = [("dataset", "split", "one power", "powers of the clusters")]
    for record in records:
        powers = ", ".join(map(shown, record["powers"]))
        lines.append((record["dataset"], str(record["split"]), shown(record["single"]), powers))
    yield Table("The chosen powers", lines)
