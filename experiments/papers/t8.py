"""
Streams are exact at fixed hyperparameters: batches give the posterior of all rows at once, and with
inducing points at all inputs the exact GP (Bui, Nguyen and Turner 2017). If hyperparameters are
trained (appendix E.1), online objectives no longer add up to the objective of all rows: do not
compare their sums. The hyperparameters follow the exact GP's if there are enough inducing points;
with 30 on this series they deviate.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.run_pictures import training
from experiments.papers.t1 import STREAMING
from experiments.papers.tables import Lines, Table, shown


def jobs(full: bool) -> Jobs:
    """Return comparisons at fixed hyperparameters, and streams with trained ones."""
    rows = {"rows": 600 if full else 200, "batches": 6}
    against = {"all rows, M = 20": {"exact": False}, "exact GP of 60 rows": {"exact": True}}
    fixed = grid("exactness", rows, against=against, alpha=(0.0, 0.5, 1.0))
    common = {
        "dataset": "periodic",
        "first": 100,
        "batch_size": 100,
        "M": 30,
        "first_maxiter": 100,
        "window": 10**6,
    }
    if not full:
        common |= {"max_train": 500, "maxiter": 10}
    methods = {**STREAMING, "exact GP of all rows": {"model": "GPR"}}
    return fixed + grid("streaming", common, method=methods)


def show(records: Records) -> Shown:
    lines: Lines = [("stream against", "alpha", "objective, relative", "mean", "variance")]
    fixed = [record for record in records if "against" in record.labels]
    for r in fixed:
        differences = (f"{r[name]:.0e}" for name in ("objective", "mean", "variance"))
        lines.append((r["against"], shown(r["alpha"]), *differences))
    note = (
        "The stream's inducing points have a jitter of 1e-6 on their covariance; the exact GP has "
        "none."
    )
    yield Table("Largest differences at fixed hyperparameters", lines, note)
    streams = [record for record in records if "method" in record.labels]
    scalars = {
        "parameters/kernel.lengthscales/0": "lengthscale, of inputs in [0, 10]",
        "parameters/kernel.variance": "kernel variance",
        "parameters/likelihood.variance": "noise variance",
    }
    title = "Hyperparameters along a stream, standardized targets"
    yield training(streams, scalars, title, "training rows")
