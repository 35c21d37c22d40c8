"""The state of the loop that converges the sites (:mod:`.convergence`), and what it starts from and returns."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..engine import OldPosteriorSite
from ..tilted import TiltedRule
from .anderson import Secants
from .rows import LatentRows, ProjectedRows
from .sweep import normalized

SWEEPING, PROBING, NEWTON_STEP = range(3)
"""Kinds of candidate: the sites after an update, sites near the iterate, the end of a Newton step."""
RUNNING, CONVERGED, LIMIT, STUCK, IMPROPER = range(5)
"""
Status of the loop: running; converged; max_sweeps reached (LIMIT); no update is proper (STUCK); not even the prior is
(IMPROPER).
"""

# Rounding may lower a bound by these fractions of its value and of the terms that cancel in it; but at least by this
# many eps, which is more in single precision only.
_SLACK, _ROUNDING = 1e-9, 1e-12
_SLACK_IN_EPS, _ROUNDING_IN_EPS = 100.0, 10.0
ATTEMPT_DAMPING = (1.0, 1.0, 1.0, 0.3, 0.1)  # of the damping, in one attempt after the other


class SitesProblem(NamedTuple):
    """The model quantities that the sites are updated for."""

    rows: LatentRows
    projected: ProjectedRows
    rule: TiltedRule
    L: tf.Tensor
    old: OldPosteriorSite | None
    is_bound: tf.Tensor  # Whether the energy is a lower bound on the log evidence, []


class ConvergenceOptions(NamedTuple):
    """Tolerance, largest number of sweeps, and damping."""

    tol: tf.Tensor
    max_sweeps: tf.Tensor
    damping: tf.Tensor


class Iterate(NamedTuple):
    """Sites, and the results of a sweep at them."""

    sites: tf.Tensor  # [N, 2, C]
    update: tf.Tensor  # The undamped update, [N, 2, C]
    tilted_derivatives: tf.Tensor  # d1 and d2 of the tilted distributions, [N, 2, C]
    A: tf.Tensor  # V diag(τ) V', [C, M, M]
    c: tf.Tensor  # V h, [C, M, 1]
    mean: tf.Tensor  # μ of the marginals of w, [N, C]
    variance: tf.Tensor  # s of the marginals of w, [N, C]
    change: tf.Tensor  # The largest change of a marginal by the update of its own site, []
    log_evidence: tf.Tensor  # The energy, []
    canceling: tf.Tensor  # The size of the terms that cancel in it, []

    def normalized(self, change: tf.Tensor) -> tf.Tensor:
        """Express changes of the sites [..., N, 2, C] as those of their own marginals, without unit."""
        return normalized(change, self.mean, self.variance)


class LoopResult(NamedTuple):
    """The last iterate of the loop, and how the loop ended."""

    iterate: Iterate
    sweeps: tf.Tensor
    fraction: tf.Tensor
    status: tf.Tensor


class Loop(NamedTuple):
    """The state of the loop: the last accepted iterate, the sites to try next, and how to go on from there."""

    iterate: Iterate
    is_valid: tf.Tensor
    """Whether there is an accepted iterate yet."""
    candidate: tf.Tensor
    kind: tf.Tensor
    """What the candidate is: SWEEPING, PROBING or NEWTON_STEP."""
    is_plain: tf.Tensor
    """Whether the candidate is not accelerated."""
    fraction: tf.Tensor
    comparable: tf.Tensor
    """Whether the update of the iterate was followed at once, so that the next one can be compared with it."""
    secants: Secants
    newton: tf.Tensor
    """Newton's step from the iterate, [N, 2, C]."""
    step_size: tf.Tensor
    """The fraction of it that is tried; 0 to begin with, at the best sites."""
    best: tf.Tensor
    """Sites of the smallest change, or of the largest bound, [N, 2, C]."""
    best_change: tf.Tensor
    """Their change; infinite where no sites have been proper."""
    best_evidence: tf.Tensor
    change_at_progress: tf.Tensor
    """The change when sweeps last made progress; a sweep makes progress if it halves this."""
    stalled: tf.Tensor
    """Sweeps since then."""
    patience: tf.Tensor
    """How many of them there may be."""
    preliminary: tf.Tensor
    """Whether these are the first sweeps from empty sites."""
    attempt: tf.Tensor
    """From the sites given (0), from none with preliminary sweeps (1), from none without (2 and more)."""
    halvings: tf.Tensor
    sweeps: tf.Tensor
    final_status: tf.Tensor
    """How the loop ends once it has swept at the candidate, the best sites; otherwise RUNNING."""
    status: tf.Tensor


def rounding(iterate: Iterate) -> tf.Tensor:
    """By how much rounding may change the energy."""
    eps = float(np.finfo(iterate.log_evidence.dtype.as_numpy_dtype).eps)
    slack, rounding = max(_SLACK, _SLACK_IN_EPS * eps), max(_ROUNDING, _ROUNDING_IN_EPS * eps)
    return slack * tf.abs(iterate.log_evidence) + rounding * iterate.canceling


def largest_fraction(options: ConvergenceOptions, attempt: tf.Tensor) -> tf.Tensor:
    """Return the largest fraction of an update that is taken."""
    return options.damping * tf.gather(tf.constant(ATTEMPT_DAMPING, options.damping.dtype), attempt)
