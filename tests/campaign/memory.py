"""
Memory of many models of a kind, made, trained and dropped one after the other: it must not grow
with their number.

Each kind runs in a process of its own. What counts is the resident memory after the last model
beyond that after the first (Linux). Graphs that outlive their model would show: 50 MB a classifier,
10 MB and more a training.

    python -m campaign.memory [--models 200] [--kinds PEPR PEP] [--output FILE.json]
"""

import argparse
import gc
import json
import warnings
from pathlib import Path

import numpy as np

from campaign.relations import MODELS, batch_of, drawn, make
from campaign.running import Rng
from experiments.benchmarks.machine import in_process
from experiments.protocols.arguments import count
from experiments.recording.memory import MEGABYTE, resident
from gpflow_pep.training import fit

_ITERATIONS = 3
_SHOWN = 10  # numbers of models at which memory is noted, at most


def main() -> None:
    """Print a row for each kind of model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=count, default=200, help="of each kind (%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=MODELS, default=MODELS, metavar="KIND")
    parser.add_argument("--output", type=Path, help="file for the numbers (JSON)")
    asked = parser.parse_args()
    print(f"{'model':15}{'after the first, MB':>21}{f'beyond, after {asked.models}, MB':>25}")
    found = {}
    for kind in asked.kinds:
        found[kind] = in_process(measure, kind, asked.models)
        first, *_, last = found[kind].values()
        print(f"{kind:15}{first:21.0f}{last - first:25.0f}", flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(found, indent=1))


def measure(kind: str, number: int) -> dict[int, float]:
    """
    Make and train models; return the resident memory in MB after the first, some of the others, and
    the last.
    """
    found = {}
    for model in range(1, number + 1):
        _train(kind, np.random.default_rng(model))
        if model == 1 or model == number or model % -(-number // _SHOWN) == 0:
            gc.collect()
            found[model] = resident() / MEGABYTE
    return found


def _train(kind: str, rng: Rng) -> None:
    case = drawn(0, rng, [kind], ["Gaussian", "Probit"], spread=0.3)
    model = make(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sites that have not converged after so few iterations
        fit(model, *batch_of(case, model), max_iterations=_ITERATIONS)
    model.predict_f(case.X)
    model.predict_y(case.X)


if __name__ == "__main__":
    main()
