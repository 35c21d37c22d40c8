"""
Structured bounds on Snelson's function with five inducing points (Bui and Titsias 2025, fig. 2): bounds, noise and
kernel variance in training. Published: structured bounds have a smaller noise and a larger kernel variance.
"""

from collections.abc import Mapping
from typing import Any

from experiments.papers.grid import Job, Records, grid
from experiments.papers.pictures import Shown
from experiments.papers.run_pictures import fits, training
from experiments.papers.tables import EVIDENCE, LL, NOISE, RMSE, Score, means

VARIANCE = Score("kernel_variance", "kernel variance")
LENGTHSCALE = Score("lengthscale", "lengthscale")


def collapsed(N: int, *blocks: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the methods of S1 and S2, BT-SGPR with these numbers of blocks of N rows."""
    sizes = {number: -(-N // number) for number in blocks}
    return {
        "exact GP": {"model": "GPR"},
        "SGPR": {"model": "SGPR"},
        "T-SGPR": {"model": "TSGPR"},
        **{
            f"BT-SGPR, {number} blocks": {"model": "BTSGPR", "block_size": size}
            for number, size in sizes.items()
        },
        "PEP 0.5": {"model": "PEPR", "alpha": 0.5},
        "T-PEP 0.5": {"model": "TPEP", "alpha": 0.5},
    }


def jobs(full: bool) -> list[Job]:
    common = {"dataset": "snelson", "M": 5, "maxiter": 1000 if full else 100, "log_interval": 1}
    return grid("regression", common, method=collapsed(180, 20, 10))


def show(records: Records) -> Shown:
    """Show final values, their course in training, and predictions."""
    yield means(
        records, ("method",), (EVIDENCE, NOISE, VARIANCE, RMSE, LL), "Snelson's function, M = 5"
    )
    scalars = {
        "objective_per_point": "objective a row, nats",
        "noise_sd": "noise s.d., standardized",
        "parameters/kernel.variance": "kernel variance, standardized",
    }
    title = "Bounds in the course of training"
    yield training(records, lambda record: str(record["method"]), scalars, title)
    yield fits(records, "method", "Predictions")
