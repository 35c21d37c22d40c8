"""
Streams of terrain (Bui, Nguyen and Turner 2017, fig. 3): 10,000 training rows in spatial order,
30,000 test rows between them, against windows of 7500 rows and SVGP. Smaller than published, for
the hours it takes: two of the four pairs of M and size of batches, and inducing points are not
trained, unlike in app. A.6; at each batch up to a tenth of them move to its rows.
"""

from experiments.papers.grid import Jobs, grid
from experiments.papers.t1 import STREAMING
from experiments.papers.t3 import PEERS, show

__all__ = ["TERRAIN", "jobs", "show"]

TERRAIN = {
    "dataset": "terrain-nn27",
    "first": 1000,
    "fraction_to_move": 0.1,
    "train_inducing": False,
}


def jobs(full: bool) -> Jobs:
    short = {"max_train": 3000, "window": 1000, "maxiter": 10, "first_maxiter": 30}
    found = []
    for M, size in ((400, 750), (600, 1000)) if full else ((100, 750),):
        common = TERRAIN | ({"window": 7500} if full else short)
        found += grid("streaming", common, dataset=(TERRAIN["dataset"],), M=(M,), batch_size=(size,),
                      method=STREAMING | PEERS)  # fmt: skip
    return found
