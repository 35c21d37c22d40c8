"""
Structured bounds by minibatches on four medium sets (Bui and Titsias 2025): SVGP, T-SVGP and BT-
SVGP, batches and blocks of 500 rows, Adam 0.005, 300 epochs. Published: bounds tighten in this
order, noise falls, predictions are as good or better. Smaller than published, for the hours it
takes: at most 10,000 training rows of each set.
"""

from experiments import datasets
from experiments.papers.grid import Jobs, Records, Shown, grid, repeats
from experiments.papers.pictures import against_M
from experiments.papers.tables import EVIDENCE, LL, NOISE, RMSE, SECONDS, means

_BATCH = 500


def jobs(full: bool) -> Jobs:
    names, epochs = (("kin8nm", "power", "elevators", "kin40k"), 300) if full else (("kin8nm",), 20)
    rows = {name: min(round(0.9 * datasets.describe(name).N), 10_000) for name in names}
    sets = {
        name: {"dataset": name, "maxiter": epochs * -(-N // _BATCH)} for name, N in rows.items()
    }
    common = {
        "batch_size": _BATCH,
        "learning_rate": 0.005,
        "log_interval": 10**5,
        "max_train": 10_000,
    }
    methods = {
        "SVGP": {"model": "SVGP"},
        "T-SVGP": {"model": "TSVGP"},
        "BT-SVGP": {"model": "BTSVGP"},
    }
    return grid(
        "regression",
        common,
        dataset=sets,
        repeat=repeats(10 if full else 1, "split", "seed"),
        M=(256, 512) if full else (32, 64),
        method=methods,
    )


def show(records: Records) -> Shown:
    scores = (EVIDENCE, RMSE, LL, NOISE)
    yield means(
        records,
        ("dataset", "M", "method"),
        (*scores, SECONDS),
        "Bounds and scores, at most 10,000 rows",
    )
    yield from against_M(records, scores, "method")
