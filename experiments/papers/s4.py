"""
Power EP with the scale m = 1 and with a learned m, on small sets (Bui and Titsias 2025, sec. 5.3).
Published: m learned has a better RMSE everywhere, and a worse log likelihood near alpha = 1.
"""

from dataclasses import replace

from experiments.papers.grid import (
    QUIET,
    Jobs,
    Record,
    Records,
    Shown,
    by_label,
    grid,
    matched,
    repeats,
)
from experiments.papers.pictures import curves
from experiments.papers.tables import LL, RMSE, Score, means, wins

_SCALE = Score("scale", "m")


def jobs(full: bool) -> Jobs:
    return grid(
        "regression",
        QUIET | {"maxiter": 500 if full else 50},
        dataset=("yacht", "boston", "energy", "concrete", "wine-red")
        if full
        else ("yacht", "boston"),
        repeat=repeats(10 if full else 2, "split", "seed"),
        M=(10, 20, 50, 100) if full else (20,),
        alpha=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if full else (0.0, 0.5, 1.0),
        m={"1": {"model": "PEPR"}, "learned": {"model": "TPEP"}},
    )


def show(records: Records) -> Shown:
    """Show pairs, scores and the learned scale, and curves over alpha."""
    for score in (RMSE, LL):
        for alpha, group in by_label(records, "alpha").items():
            yield wins(
                group, "m", score, {("learned", "1"): None}, f"alpha = {alpha:g}: {score.heading}"
            )
    yield means(records, ("dataset", "M", "alpha", "m"), (RMSE, LL, _SCALE), "Means of the repeats")
    for name, group in by_label(records, "dataset").items():
        for score in (RMSE, LL, _SCALE):
            title = f"{score.heading} over alpha, {name}, by M"
            yield curves(group, "alpha", (score,), "m", title, panel="M")
    differences = [
        Record(one.labels, {entry: one[entry] - other[entry] for entry in ("rmse", "nlpd")})
        for one, other in matched(records, "m", "learned", "1")
    ]
    for score in (RMSE, LL):
        difference = replace(score, heading=f"difference of {score.heading}")
        title = f"{score.heading}, m learned less m = 1, by M"
        yield curves(differences, "alpha", (difference,), "dataset", title, panel="M")
