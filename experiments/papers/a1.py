"""
The alpha that `select_alpha` chooses from training rows, by cross-validation and by leave-one-out,
beside the alpha that is best on held-out rows; PEPR.
"""

import numpy as np

from experiments.papers.grid import Jobs, Records, Shown, grid, grouped
from experiments.papers.tables import Lines, Table, shown


def jobs(full: bool) -> Jobs:
    sets = (
        ("boston", "concrete", "energy", "wine-red", "yacht", "airfoil")
        if full
        else ("boston", "yacht")
    )
    ways = {"5 folds": {"folds": 5}, "leave-one-out": {"folds": None}}
    common = {"M": 50, "maxiter": 60} if full else {"M": 20, "maxiter": 20}
    return grid("alpha_choice", common, dataset=sets, split=range(3 if full else 1), way=ways)


def show(records: Records) -> Shown:
    """
    Show mean log densities of selection and held-out rows for each alpha, and the chosen alphas.
    """
    alphas = records[0]["alphas"]
    lines: Lines = [("dataset", "way", *(f"alpha {alpha:g}" for alpha in alphas), "chosen", "best")]
    for labels, group in grouped(records, "dataset", "way").items():
        selection, held_out = (
            np.mean([record[name] for record in group], axis=0)
            for name in ("selection", "held_out")
        )
        pairs = (f"{a:.3f} / {b:.3f}" for a, b in zip(selection, held_out, strict=True))
        lines.append(
            (
                *map(shown, labels),
                *pairs,
                *(f"{alphas[np.argmax(of)]:g}" for of in (selection, held_out)),
            )
        )
    note = "Log densities in nats a row, selection / held-out rows; means of the splits."
    yield Table("Log densities, and the alpha that is chosen", lines, note)
