"""
Scores against seconds on delays of flights, three classes (Villacampa-Calvo and Hernández-Lobato
2020, fig. 5): minibatches of 200 rows, Adam. Smaller than published: a sample of other flights for
2.1 million rows, which are not available; 3 alphas for 11 and no PEP, as in M4.
"""

from experiments.papers.grid import Jobs
from experiments.papers.m4 import minibatch_jobs, show

__all__ = ["jobs", "show"]


def jobs(full: bool) -> Jobs:
    return minibatch_jobs(full, {"dataset": "flights"})
