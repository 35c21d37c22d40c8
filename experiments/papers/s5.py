"""
Blocks of neighbors against blocks of random rows (Bui and Titsias 2025, sec. 7): bound and
predictions of BT-SGPR by the size of the blocks, on three sets whose rows are in random order.
"""

from experiments.papers.grid import QUIET, Jobs, Records, Shown, grid
from experiments.papers.pictures import curves
from experiments.papers.tables import EVIDENCE, LL, RMSE, means


def jobs(full: bool) -> Jobs:
    common = QUIET | {"model": "BTSGPR", "M": 20, "maxiter": 500 if full else 100}
    kinds = {"neighbors": {"blocks": "neighbors"}, "random": {"blocks": "order"}}
    sizes = (5, 10, 20, 50, 100, 200) if full else (10, 50)
    return grid(
        "regression",
        common,
        dataset=("boston", "concrete", "energy"),
        split=range(10 if full else 2),
        block_size=sizes,
        blocks=kinds,
    )


def show(records: Records) -> Shown:
    scores = (EVIDENCE, RMSE, LL)
    yield means(records, ("dataset", "block_size", "blocks"), scores, "Bounds and scores, M = 20")
    for score in scores[:2]:
        title = f"{score.heading} by the size of the blocks"
        yield curves(
            records, "block_size", (score,), "blocks", title, panel="dataset", logarithmic=True
        )
