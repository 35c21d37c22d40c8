"""
Structured bounds on Snelson's function, all 200 rows, with five inducing points (Bui and Titsias
2025, fig. 2): bounds, noise and kernel variance in training. Blocks are of random rows, as
published (app. C.1); those of neighbors are a variant. Published: structured bounds have a smaller
noise and a larger kernel variance.
"""

from typing import Any

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.run_pictures import fits, training
from experiments.papers.tables import EVIDENCE, NOISE, Score, means

VARIANCE = Score("kernel_variance", "kernel variance")
LENGTHSCALE = Score("lengthscale", "lengthscale")


def collapsed(N: int, *blocks: int) -> dict[str, dict[str, Any]]:
    """Return the methods of S1 and S2, BT-SGPR with these numbers of blocks of N rows."""
    return {
        "exact GP": {"model": "GPR"},
        "SGPR": {"model": "SGPR"},
        "T-SGPR": {"model": "TSGPR"},
        **{
            f"BT-SGPR, {number} blocks": {"model": "BTSGPR", "block_size": -(-N // number)}
            for number in blocks
        },
        "PEP 0.5": {"model": "PEPR", "alpha": 0.5},
        "T-PEP 0.5": {"model": "TPEP", "alpha": 0.5},
    }


def jobs(full: bool) -> Jobs:
    common = {"dataset": "snelson", "include_test": True, "M": 5, "log_interval": 1}
    common |= {"maxiter": 1000 if full else 100, "blocks": "random"}
    methods = collapsed(200, 20, 10)
    for number in (20, 10):
        name = f"BT-SGPR, {number} blocks"
        methods[f"{name} of neighbors"] = methods[name] | {"blocks": "neighbors"}
    return grid("regression", common, method=methods)


def show(records: Records) -> Shown:
    """Show final values, their course in training, and predictions."""
    yield means(
        records,
        ("method",),
        (EVIDENCE, NOISE, VARIANCE, LENGTHSCALE),
        "Snelson's function, M = 5",
    )
    scalars = {
        "objective_per_point": "objective a row, nats",
        "noise_sd": "noise s.d., standardized",
        "parameters/kernel.variance": "kernel variance, standardized",
    }
    title = "Bounds in the course of training"
    yield training(records, scalars, title)
    yield fits(records, "Predictions")
