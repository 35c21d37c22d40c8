"""
Eight sets of several classes (Villacampa-Calvo and Hernández-Lobato 2020, tables C.3 and C.4):
inducing points for 5, 10 and 20 % of the training rows, kernels with White noise, all methods and
alphas, beside regression on the labels and GPflow's SGPMC. Published figures are PEP's at 5 %;
their smallest alpha is near 0.

PEP is trained in four ways. "ascent" is the paper's (app. A.5 to A.7): a joint update of the sites
with each step of gradient ascent, epsilon fixed; the paper leaves the number of steps open, here
Adam takes 250 of .01. "converged" is maximum likelihood with converged sites by L-BFGS, with
epsilon and the inducing points trained or the points fixed. "weak priors" is the mode under
`gpflow_pep.weak_priors`, epsilon and points fixed.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from experiments import datasets
from experiments.papers.grid import Axis, Jobs, Records, Shown, by_label, grid
from experiments.papers.tables import ERROR, NLPD, PUBLISHED, SECONDS, means, ranks

_PUBLISHED = PUBLISHED["M1"]
"""Published error and NLPD at alpha near 0, 0.5 and 1; means of 20 splits."""

TRAININGS: dict[str, dict[str, Any]] = {
    "converged": {},
    "fixed points": {"train_inducing": False},
    "weak priors": {"train_inducing": False, "train_epsilon": False, "weak_priors": True},
    "ascent": {"optimizer": "adam", "max_sweeps": 1, "train_epsilon": False},
}
"""Ways to train PEP."""

TIED = {name: {"model": name} for name in ("APEP", "ARPEP", "RPAPEP")}
METHODS = {"PEP": {"model": "PEP"}} | TIED
COMMON: dict[str, Any] = {"white": 1e-2, "max_jitter": 1e-2, "log_interval": 10**5}


def jobs(full: bool) -> Jobs:
    found = []
    for name in _PUBLISHED if full else ("new-thyroid", "wine"):
        N = len(datasets.load(name).X_train)
        fractions = {
            f"{percent} %": {"M": max(1, N * percent // 100)}
            for percent in ((5, 10, 20) if full else (5,))
        }
        runs = partial(
            grid,
            "classification",
            COMMON | {"maxiter": 500 if full else 30},
            dataset=(name,),
            split=range(20 if full else 2),
            M=fractions,
        )
        alphas = tuple(round(0.1 * k, 1) for k in range(11)) if full else (0.0, 0.5, 1.0)
        ascent = TRAININGS["ascent"] | {"maxiter": 250 if full else 30}
        trainings = TRAININGS | {"ascent": ascent}
        found += runs(method={"PEP": METHODS["PEP"]}, training=trainings, alpha=alphas)
        found += runs(method=TIED, training={"converged": {}}, alpha=alphas)
        found += runs(method={"regression": {"model": "LABELS"}}, alpha=(0.5,))
        found += runs(method={"MCMC": {"model": "MCMC"}})
    return found


def beside_svgp(
    experiment: str, common: Mapping[str, Any], methods: Axis, alphas: Axis, **axes: Axis
) -> Jobs:
    """Return the runs of methods at several powers, and those of SVGP, which has no alpha."""
    powered = grid(experiment, common, **axes, method=methods, alpha=alphas)
    return powered + grid(experiment, common, **axes, method={"SVGP": {"model": "SVGP"}})


def show(records: Records) -> Shown:
    """Show scores beside the published, and ranks of alphas and of methods."""
    beside = {
        (name, "5 %", "PEP", training, alpha): scores
        for name, of in _PUBLISHED.items()
        for alpha, scores in zip((0.0, 0.5, 1.0), of, strict=True)
        for training in TRAININGS
    }
    by = ("dataset", "M", "method", "training", "alpha")
    yield means(records, by, (ERROR, NLPD, SECONDS), "Scores beside the published", beside)
    pep = by_label(records, "method").get("PEP", [])
    scores = (ERROR, NLPD)
    for training, group in by_label(pep, "training").items():
        yield ranks(group, "alpha", scores, f"Average ranks of alpha, PEP, {training}")
    yield ranks(pep, "training", scores, "Average ranks of the ways to train PEP")
    converged = by_label(records, "training").get("converged", [])
    yield ranks(converged, "method", scores, "Average ranks of the methods")
