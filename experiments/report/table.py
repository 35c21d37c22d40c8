"""A table of recorded runs on one data set, as text."""

from collections.abc import Callable, Sequence

from experiments.report.columns import aligned
from experiments.report.recorded import RecordedRun


def heading(runs: Sequence[RecordedRun]) -> str:
    """Return a line with data set, split, N, D and M of the runs."""
    result, config = runs[0].result, runs[0].config
    M = config["gp"]["M"]
    inducing = "an inducing point at every input" if M is None else f"M = {M} inducing points"
    return (
        f"{config['data']['dataset']}, split {config['data']['split']}: N = {result['N']} training and "
        f"{result['N_test']} test points, D = {result['D']}, {inducing}"
    )


def units(runs: Sequence[RecordedRun]) -> str:
    """Return the explanation of the columns."""
    if runs[0].task == "streaming":
        return (
            "RMSE and mean log likelihood (nats) of test points: of points passed so far, mean over the batches; and\n"
            "of all points at the end. Seconds: training after the first batch. Kept: memory that the model carries\n"
            "from batch to batch, without the batch."
        )
    if runs[0].task == "classification":
        return (
            "Log evidence: nats per training point, ≥ a lower bound of it, ≈ an approximation to it. Error: fraction\n"
            "of the test labels. NLPD: mean negative log predictive probability (nats) of the test labels; LOO: of\n"
            "the training labels, leave-one-out. Seconds: training, tracing of the graph included. Not converged:\n"
            "iterations marked + (limit) or ! (the optimizer gave up)."
        )
    targets = "standardized targets" if runs[0].config["data"]["standardize"] else "the targets as published"
    return (
        "Log evidence: nats per training point, ≥ a lower bound of it, ≈ an approximation to it. RMSE, NLPD (nats):\n"
        f"test points. All with {targets}. Seconds: training, without the tracing of the graph.\n"
        "Iterations marked + are the limit: the optimizer had not converged."
    )


def table(runs: Sequence[RecordedRun]) -> str:
    """Format the runs' results, one per line, in aligned columns."""
    columns = _COLUMNS[runs[0].task]
    return aligned([tuple(columns), *(tuple(cell(run) for cell in columns.values()) for run in runs)])


def _number(name: str, digits: int = 4) -> Callable[[RecordedRun], str]:
    """Format an entry of the result; a dash if the model has none."""

    def cell(run: RecordedRun) -> str:
        value = run.result[name]
        return "–" if value is None else f"{value:.{digits}f}"

    return cell


def _either(*names: str) -> Callable[[RecordedRun], str]:
    """Format the entry that the result has."""
    return lambda run: next(_number(name)(run) for name in names if name in run.result)


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f}"


def _evidence(run: RecordedRun) -> str:
    sign = "≥" if run.is_bound else "=" if run.result["objective_kind"] == "log evidence" else "≈"
    return f"{sign} {run.result['objective_per_point']:.4f}"


def _iterations(run: RecordedRun) -> str:
    limit = run.config.get("training", {}).get("maxiter")
    at_limit = limit is None or run.result["iterations"] >= limit
    return f"{run.result['iterations']}{' ' if run.result['converged'] else '+' if at_limit else '!'}"


_METHOD_AND_EVIDENCE = {"method": lambda run: run.title, "log evidence": _evidence}
_EFFORT = {"iterations": _iterations, "seconds": _number("seconds", 1)}
_COLUMNS: dict[str, dict[str, Callable[[RecordedRun], str]]] = {
    "regression": {
        **_METHOD_AND_EVIDENCE,
        "RMSE": _number("rmse"),
        "NLPD": _number("nlpd"),
        "noise s.d.": _number("noise_sd"),
        **_EFFORT,
    },
    "classification": {
        **_METHOD_AND_EVIDENCE,
        "error": _number("error"),
        "NLPD": _number("nlpd"),
        "LOO NLPD": _number("loo_nlpd"),
        **_EFFORT,
    },
    "streaming": {
        "method": lambda run: run.title,
        "RMSE or error": _either("mean_rmse", "mean_error"),
        "at the end": _either("rmse", "error"),
        "log likelihood": _number("mean_log_likelihood", 3),
        "at the end ": _number("log_likelihood", 3),
        "seconds": _number("seconds", 1),
        "ms a batch": lambda run: _milliseconds(run.result["seconds_batch"]),
        "kB kept": lambda run: f"{run.result['carried'] / 1000:.0f}",
    },
}
