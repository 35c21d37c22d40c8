"""The result of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..ep import SitesStatus

STATUSES = ("converged", "limit", "stopped early", "failed", "interrupted")
CONVERGED, LIMIT, EARLY, FAILED, INTERRUPTED = STATUSES


class Outcome(NamedTuple):
    """Status of a training run, and the reason."""

    status: str
    reason: str


@dataclass(frozen=True, repr=False)
class FitResult:
    """Outcome and history of a training run, with the part before it was resumed."""

    status: str
    """
    "converged": the optimizer reports it (Adam never does), and the sites have converged | "limit":
    the limit of iterations was reached | "stopped early": by `patience` or the callback |
    "interrupted": by Ctrl-C | "failed": the last good parameters were restored, or the sites have
    not converged.
    """
    reason: str  #: The reason, as a sentence.
    iterations: int  #: Iterations of L-BFGS, or steps of Adam.
    recorded: tuple[int, ...]
    """
    The iteration of every record, plus a last entry for the final parameters, if `patience`
    restored them or the sites converged after training: the last values always belong to the
    trained model.
    """
    objective: tuple[float, ...]
    """
    The objective in nats at every record. L-BFGS: the best so far. Adam: the value before the step,
    or the mean over minibatches since the last record. Models with sites: the energy; the last one
    is at converged sites. Empty if nothing is trainable.
    """
    held_out: Mapping[str, tuple[float, ...]]
    """Held-out scores at every record: "nlpd" in nats per row, "rmse" for Gaussian likelihoods."""
    sites: (
        SitesStatus | None
    )  #: Status of the last update of the sites; None for a model without sites.
    seconds: float  #: Wall time.

    @property
    def converged(self) -> bool:
        """True if the status is "converged"."""
        return self.status == CONVERGED

    def __repr__(self) -> str:
        scores = "".join(
            f", held-out {name} {values[-1]:.4g}"
            for name, values in self.held_out.items()
            if values
        )
        objective = f", objective {self.objective[-1]:.6g} nats" if self.objective else ""
        run = f"{self.status} after {self.iterations} iterations, {self.seconds:.3g} s"
        return f"FitResult({run}{objective}{scores}; {self.reason})"


def uninterrupted(result: object) -> Any:
    """Return the result of a training function; raise `KeyboardInterrupt` if Ctrl-C ended it."""
    if isinstance(result, FitResult) and result.status == INTERRUPTED:
        raise KeyboardInterrupt
    return result
