"""
Active learning on waveform (Villacampa-Calvo and Hernández-Lobato 2020, fig. 6): 100 initial
labels, a pool of 400 rows, 500 test rows, 100 additions by the highest predictive entropy, against
random rows. Smaller than published, for the hours it takes: 20 repetitions for 100, 3 alphas for
11, and 20 iterations of L-BFGS after each label for 250 steps at first and 25 after each label.
"""

from experiments.papers.grid import Jobs, Records, Shown, by_label, in_course
from experiments.papers.m1 import METHODS, beside_svgp
from experiments.papers.pictures import curves
from experiments.papers.tables import ERROR, NLPD, SECONDS, means


def jobs(full: bool) -> Jobs:
    """Return the runs: repetitions x methods x alpha x rules; SVGP has no alpha."""
    methods = METHODS if full else {name: METHODS[name] for name in ("PEP", "APEP")}
    size = {"per_round": 1, "maxiter": 20} if full else {"per_round": 50, "maxiter": 10}
    return beside_svgp(
        "labeling",
        size,
        methods,
        (0.0, 0.5, 1.0),
        repetition=range(20 if full else 2),
        rule=("entropy", "random"),
    )


def show(records: Records) -> Shown:
    names = ("labels", "error", "nlpd", "seconds")
    rounds = in_course(records, "labels", lambda record: {name: record[name] for name in names})
    last = [record for record in rounds if record["labels"] == max(r["labels"] for r in rounds)]
    yield means(last, ("method", "alpha", "rule"), (ERROR, NLPD, SECONDS), "With the last labels")
    for rule, group in by_label(rounds, "rule").items():
        for score in (ERROR, NLPD):
            title = f"{score.heading} against the number of labels, {rule}"
            yield curves(group, "labels", (score,), "alpha", title, panel="method")
