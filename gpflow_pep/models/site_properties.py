"""Properties of a model with sites: power, convergence options, sites and their status, all held in variables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from .. import validation
from ..ep import ConvergenceOptions, Sites, SitesStatus
from ..runtime.distribution import Workers
from ..tilted import KL, Projection, Wasserstein


def status_before_updates(damping: float) -> list[float]:
    """Return the status of sites that have not been updated, as its variable holds it."""
    return [0.0, 0.0, np.inf, np.nan, damping]


class SiteProperties:
    """Mixin with the properties of :class:`.pep.PEP` that describe its sites and their updates."""

    projection: str | Projection
    _alpha: tf.Variable
    _sites: Sites
    _options: ConvergenceOptions
    _status: tf.Variable
    _warned: tf.Variable
    _num_rows: int
    _workers: Workers | None

    @property
    def alpha(self) -> tf.Variable:
        """
        The power, [] or [N]. Set it, or ``.assign`` to it: compiled functions see the new value.

        :raises ValueError: when it is set to a value outside [0, 1], or to one number where there was one for each row.
        """
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: Any) -> None:
        powers = validation.power(alpha, self._num_rows, "row")
        if powers.ndim != self._alpha.shape.rank:
            kept = "one number" if self._alpha.shape.rank == 0 else "one number for each row"
            given = f"an array of shape {list(powers.shape)}" if powers.ndim else "one number"
            raise ValueError(f"alpha must stay {kept}, as it was given to the constructor, got {given}.")
        self._alpha.assign(powers)

    @property
    def tol(self) -> float:
        """Convergence tolerance of the sites; see the constructor. Compiled functions see a new value."""
        return float(self._options.tol)

    @tol.setter
    def tol(self, tol: float) -> None:
        self._options.tol.assign(validation.positive_number(tol, "tol"))

    @property
    def max_sweeps(self) -> int:
        """The largest number of sweeps in one update. Compiled functions see a new value."""
        return int(self._options.max_sweeps)

    @max_sweeps.setter
    def max_sweeps(self, max_sweeps: int) -> None:
        self._options.max_sweeps.assign(validation.positive_integer(max_sweeps, "max_sweeps"))

    @property
    def damping(self) -> float:
        """The largest fraction of an update that is taken. Compiled functions see a new value."""
        return float(self._options.damping)

    @damping.setter
    def damping(self, damping: float) -> None:
        self._options.damping.assign(validation.fraction(damping, "damping"))

    @property
    def sites(self) -> Sites:
        """Natural parameters of the sites: ``precision`` τ and ``linear`` h, variables [N, C]."""
        return self._sites

    @property
    def sites_status(self) -> SitesStatus:
        """Status of the last update of the sites, in a compiled function too."""
        converged, sweeps, change, log_evidence, damping = self._status.numpy().tolist()
        return SitesStatus(bool(converged), int(sweeps), change, log_evidence, damping)

    @property
    def sites_variables(self) -> dict[str, tf.Variable]:
        """The sites and their status, which holds the damping that the next sweeps start with."""
        return {"precision": self._sites.precision, "linear": self._sites.linear, "status": self._status}

    @property
    def is_lower_bound(self) -> bool:
        """Whether the objective is a lower bound on the log evidence: alpha is 0."""
        return bool(self._is_bound())

    def reset_sites(self) -> None:
        """Make q the prior; the next update starts from there. The status is that of sites that have not converged."""
        self._sites.reset(self._num_rows)
        self._status.assign(status_before_updates(self.damping))

    @contextmanager
    def without_warnings(self) -> Iterator[None]:
        """Do not warn of sites that have not converged."""
        before = bool(self._warned)
        self._warned.assign(True)
        try:
            yield
        finally:
            self._warned.assign(before)

    def _is_bound(self) -> tf.Tensor:
        projection = self.projection
        zero = projection in ("kl", "wasserstein") or isinstance(projection, KL | Wasserstein)
        above = tf.reduce_any(tf.not_equal(self._alpha, 0.0))
        if self._workers is not None and self._alpha.shape.rank == 1:
            above = self._workers.any(above)
        return ~above & zero
