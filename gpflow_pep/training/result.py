"""How a training ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..ep import SitesStatus

CONVERGED, LIMIT, EARLY, FAILED = "converged", "limit", "stopped early", "failed"
STATUSES = (CONVERGED, LIMIT, EARLY, FAILED)


@dataclass(frozen=True)
class Ending:
    """Why an optimizer stopped."""

    status: str
    reason: str


@dataclass(frozen=True, repr=False)
class FitResult:
    """How a training ended, and its history: of one that a checkpoint resumed, from its beginning."""

    status: str
    """
    "converged": the optimizer says so (Adam never does), and the sites have | "limit": that of the iterations was
    reached | "stopped early" | "failed": the last good parameters are back, or the sites have not converged.
    """

    reason: str
    """Why it stopped, in words."""

    iterations: int
    """Iterations of L-BFGS, or steps of Adam."""

    objective: tuple[float, ...]
    """
    What is maximized, in nats, at every record: of L-BFGS the best so far, in minibatch training the mean of the
    minibatches' since the last record, of models with sites the energy; the last one of these at converged sites.
    """

    held_out: Mapping[str, tuple[float, ...]]
    """Scores of held-out rows by name, at every record: "nlpd" (nats a row), "rmse" (of Gaussian likelihoods)."""

    sites: SitesStatus | None
    """How the last update of the sites ended; None: the model has none."""

    seconds: float
    """Wall time."""

    @property
    def converged(self) -> bool:
        """Whether the status is "converged"."""
        return self.status == CONVERGED

    def __repr__(self) -> str:
        """Return a line without the histories."""
        parts = [f"{self.status} after {self.iterations} iterations, {self.seconds:.3g} s"]
        parts += [f"objective {values[-1]:.6g} nats" for values in [self.objective] if values]
        parts += [f"held-out {name} {values[-1]:.4g}" for name, values in self.held_out.items() if values]
        return f"FitResult({', '.join(parts)}; {self.reason})"
