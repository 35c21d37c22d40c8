"""
Active learning on waveform (Villacampa-Calvo and Hernández-Lobato 2020, fig. 6): 100 initial
labels, a pool of 400 rows, 500 test rows, 100 additions by the highest predictive entropy, against
random rows. Smaller than published, for the hours it takes: 20 repetitions for 100, alpha = .5
alone, and 20 iterations of L-BFGS after each label for 250 steps at first and 25 after each label.
"""

from experiments.papers.grid import Job, Record, Records, grid, in_course
from experiments.papers.m1 import METHODS
from experiments.papers.pictures import Shown, curves
from experiments.papers.tables import ERROR, NLPD, SECONDS, means


def jobs(full: bool) -> list[Job]:
    methods = (
        {**METHODS, "SVGP": {"model": "SVGP"}}
        if full
        else {name: METHODS[name] for name in ("PEP", "APEP")}
    )
    size = {"per_round": 1, "maxiter": 20} if full else {"per_round": 50, "maxiter": 10}
    repetitions = range(20 if full else 2)
    return grid(
        "labeling", size, repetition=repetitions, method=methods, rule=("entropy", "random")
    )


def show(records: Records) -> Shown:
    names = ("labels", "error", "nlpd", "seconds")
    rounds = [
        Record(
            {**record.labels, "method, rule": f"{record['method']}, {record['rule']}"},
            record.result,
        )
        for record in in_course(records, "labels", lambda record: {n: record[n] for n in names})
    ]
    last = [record for record in rounds if record["labels"] == max(r["labels"] for r in rounds)]
    yield means(last, ("method", "rule"), (ERROR, NLPD, SECONDS), "With the last labels")
    yield curves(
        rounds, "labels", (ERROR, NLPD), "method, rule", "Scores against the number of labels"
    )
