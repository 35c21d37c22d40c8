"""Counts of runs that did not converge."""

from collections.abc import Sequence

from experiments.cells.cell import Result


def endings(results: Sequence[Result], maxiter: int) -> tuple[str, str]:
    """Count the runs not converged at the last iteration, and the runs that ended earlier without converging."""
    at_limit = [not result["converged"] and result["iterations"] >= maxiter for result in results]
    others = sum(not result["converged"] for result in results) - sum(at_limit)
    return f"{sum(at_limit)}/{len(results)}", f"{others}/{len(results)}"
