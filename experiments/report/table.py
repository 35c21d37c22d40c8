"""A table of recorded runs on one data set, as text."""

from collections.abc import Sequence

from experiments.report.recorded import RecordedRun

_HEADINGS = ("method", "log evidence", "RMSE", "NLPD", "noise s.d.", "iterations", "seconds")


def heading(runs: Sequence[RecordedRun]) -> str:
    """One line that says what the runs have in common: data set, split, N, D, M."""
    result, config = runs[0].result, runs[0].config
    return (
        f"{config['data']['dataset']}, split {config['data']['split']}: N = {result['N']} training and "
        f"{result['N_test']} test points, D = {result['D']}, M = {config['gp']['M']} inducing points"
    )


def units(runs: Sequence[RecordedRun]) -> str:
    """What the columns measure."""
    targets = "standardised targets" if runs[0].config["data"]["standardise"] else "the targets as published"
    return (
        "Log evidence: nats per training point, ≥ a lower bound of it, ≈ an approximation to it. RMSE, NLPD (nats):\n"
        f"test points. All with {targets}. Seconds: training, without the tracing of the graph.\n"
        "Iterations marked + are the limit: there the optimiser had not converged."
    )


def table(runs: Sequence[RecordedRun]) -> str:
    """The runs' results, one a line, in aligned columns."""
    lines = [_HEADINGS, *(_cells(run) for run in runs)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    aligned = [_aligned(line, widths) for line in lines]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _cells(run: RecordedRun) -> tuple[str, ...]:
    result = run.result
    return (
        run.title,
        f"{'≥' if run.is_bound else '≈'} {result['objective_per_point']:.4f}",
        f"{result['rmse']:.4f}",
        f"{result['nlpd']:.4f}",
        f"{result['noise_sd']:.4f}",
        f"{result['iterations']}{' ' if result['converged'] else '+'}",
        f"{result['seconds']:.1f}",
    )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first cell to the left, the others to the right."""
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])
