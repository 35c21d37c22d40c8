"""
EP and quantile propagation of a dense GP, probit, ten folds (Zhang et al. 2020, table 1): at most
10 inner sweeps and 40 iterations. The folds are not the paper's. QP's gradient is the true one
here.
"""

from experiments.papers.grid import Jobs, Records, Shown, grid
from experiments.papers.tables import PUBLISHED, SECONDS, Score, means, wins

_PUBLISHED = PUBLISHED["Q1"]
"""Published error in % and log likelihood summed over a fold, means of ten folds."""

_ERROR = Score("error", "error, %", 2, sign=100.0)
_LL = Score("log_likelihood", "log likelihood of a fold, nats", larger_is_better=True)


def jobs(full: bool) -> Jobs:
    return grid(
        "classification",
        {
            "alpha": 1.0,
            "M": None,
            "max_jitter": 1e-2,
            "max_sweeps": 10,
            "maxiter": 40,
            "log_interval": 10**5,
        },
        dataset=tuple(_PUBLISHED) if full else ("qp-iris-12", "qp-iris-23", "qp-wine-23"),
        split=range(10 if full else 2),
        method={"EP": {"model": "PEP"}, "QP": {"model": "QP"}},
    )


def show(records: Records) -> Shown:
    """Show scores beside the published, and how often QP is better."""
    beside = {
        (name, method): scores for name, of in _PUBLISHED.items() for method, scores in of.items()
    }
    yield means(
        records,
        ("dataset", "method"),
        (_ERROR, _LL, SECONDS),
        "Scores beside the published",
        beside,
    )
    for score in (_ERROR, _LL):
        yield wins(records, "method", score, {("QP", "EP"): None}, f"Wins by {score.heading}")
