"""The table of a sweep: means over its splits."""

from collections.abc import Sequence

from experiments.cells.cell import Outcome, Result
from experiments.report.columns import markdown, mean_and_error

_AXES = {"dataset": "data set", "model": "model", "alpha": "α", "M": "M"}
_SCORES = {
    "regression": {"objective_per_point": "evidence", "rmse": "RMSE", "nlpd": "NLPD"},
    "classification": {"objective_per_point": "evidence", "error": "error", "nlpd": "NLPD"},
}
_DIGITS = 3
HOW_TO_READ = (
    "Mean over the splits ± its standard error. Evidence: the objective, nats per training point. RMSE, error\n"
    "(fraction of the labels) and NLPD (nats): of test rows. Seconds: training. Splits: number with a result."
)


def sweep_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table in Markdown: a line for each data set, model, alpha and M, in their order."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(tuple(_cell(outcome.cell.updates.get(axis)) for axis in _AXES), []).append(outcome)
    scores = _SCORES[outcomes[0].cell.experiment]
    lines: list[tuple[str, ...]] = [(*_AXES.values(), *scores.values(), "seconds", "splits")]
    for group, of_group in groups.items():
        results = [outcome.result for outcome in of_group if outcome.result is not None]
        means = (_mean(results, score, _DIGITS) for score in scores)
        lines.append((*group, *means, _mean(results, "seconds", 1), f"{len(results)}/{len(of_group)}"))
    return markdown(lines)


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _mean(results: Sequence[Result], score: str, digits: int) -> str:
    return mean_and_error([result[score] for result in results], digits) if results else "–"
