"""Ctrl-C ends an experiment, and not only the training under way."""

from gpflow_pep.training import FitResult


def uninterrupted(result: FitResult) -> FitResult:
    """
    Return the result of a training run.

    :raises KeyboardInterrupt: if Ctrl-C ended it.
    """
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result
