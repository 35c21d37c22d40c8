"""
Inference by power EP (JMLR 18(104), sec. 3.8): convergence of the sites, energy and gradient,
minibatches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..engine import SiteSums
from ..runtime import Tensors, asserted, local_variable
from .energy import minibatch_objective
from .solver import (
    CONVERGED,
    IMPROPER,
    MAX_HALVINGS,
    SMALLEST_FRACTION,
    SolverOptions,
    SolverState,
    solve_fixed_point,
)
from .sweep import LatentRows, Problem, Site

_IMPROPER = (
    "The sites cannot be updated: even under the prior, tilted distributions are not finite or the "
    "precision of q is not positive definite. Check data, likelihood and kernel for NaN, infinite "
    "or overflowing values. At alpha = 0, E[log p(y|f)] may overflow: try a larger alpha. BlockPEP "
    "cannot integrate cavities that are much wider than the likelihood: try smaller blocks or PEP."
)


@dataclass(frozen=True, repr=False)
class SitesStatus:
    """How an update of the sites ended."""

    converged: bool  #: True if the last change was at most `tol`.
    sweeps: int
    """
    Sweeps after the first evaluation; ``max_sweeps + 1`` if, without convergence, the last is at
    the best sites.
    """
    change: float
    """
    Largest undamped change of a marginal: of its mean in standard deviations, or of its variance as
    a fraction.
    """
    log_evidence: float  #: The energy at the sites: an approximation to log p(y), in nats.
    damping: float  #: The fraction of an update taken at the end.
    tol: float  #: The tolerance of this update. In training it may be looser than the model's.

    def __repr__(self) -> str:
        end = "converged" if self.converged else "not converged"
        numbers = (
            f"change {self.change:.2g}, tol {self.tol:.2g}, log_evidence {self.log_evidence:.8g}, "
            f"damping {self.damping:.2g}"
        )
        return f"SitesStatus({end}, {self.sweeps} sweeps, {numbers})"


class Sites(tf.Module):
    """The sites of all rows, in variables [N, C], so that compiled functions use new values."""

    def __init__(self, precision: Sequence[int], linear: Sequence[int], dtype: tf.DType):
        """Take the shapes of the natural parameters."""
        super().__init__()
        self.precision, self.linear = (
            local_variable(tf.zeros(shape, dtype), dtype, [None, *shape[1:]])
            for shape in (precision, linear)
        )

    def reset(self, num_data: int) -> None:
        """Make q the prior: sites of `num_data` rows with natural parameters 0."""
        for variable in (self.precision, self.linear):
            variable.assign(tf.zeros([num_data, *variable.shape[1:]], variable.dtype))

    def stacked(self) -> tf.Tensor:
        """Return the natural parameters as one tensor, [N, 2, C]."""
        return tf.stack([self.precision, self.linear], axis=1)

    def assign_stacked(self, values: tf.Tensor) -> None:
        """Set the natural parameters from one tensor, [N, 2, C]."""
        precision, linear = tf.unstack(values, axis=1)
        self.precision.assign(precision)
        self.linear.assign(linear)


def status_before_updates(damping: float, tol: float) -> list[float]:
    """Return the status vector of sites that have not been updated."""
    return [0.0, 0.0, np.inf, np.nan, damping, tol]


class UpdatedPosterior(NamedTuple):
    """Result of an update of the sites: the sites, the energy, and the sums that define q."""

    sites: tf.Tensor  # [N, 2, C]
    log_evidence: tf.Tensor
    total: SiteSums  # of the sites, and of an old posterior if there is one


@dataclass(frozen=True)
class Inference:
    """Power EP of a model at its current hyperparameters; updates the variables of the sites."""

    problem: Problem
    sites: Sites
    status: tf.Variable  # converged (0 or 1), sweeps, change, log evidence, fraction, tol; [6]
    options: SolverOptions
    num_data: int

    def solve(self, interrupt_after: int | None = None) -> SolverState:
        """
        Run the solver from the current sites without assigning the result, for `interrupt_after`
        sweeps at most.
        """
        options = SolverOptions(*map(tf.convert_to_tensor, self.options))
        fraction = tf.where(self.status[0] > 0.0, options.damping, self.status[4])
        return solve_fixed_point(
            self.problem,
            self.sites.stacked(),
            options,
            num_data=self.num_data,
            fraction=fraction,
            interrupt_after=interrupt_after,
        )

    def accept(self, last: SolverState) -> UpdatedPosterior:
        """
        Assign sites and status of the solver's last state; raise an error if no proper sites were
        found.
        """
        iterate = last.iterate
        sites = iterate.swept.sites
        log_evidence = iterate.log_evidence + self.problem.terms
        counts = (
            tf.cast(count, log_evidence.dtype)
            for count in (tf.equal(last.status, CONVERGED), last.sweeps)
        )
        numbers = (iterate.change, log_evidence, last.anderson.fraction, self.options.tol)
        status = tf.stack([*counts, *numbers])
        status = asserted(status, last.status != IMPROPER, _IMPROPER)
        with tf.control_dependencies([status]):
            self.sites.assign_stacked(sites)
            self.status.assign(status)
        return UpdatedPosterior(sites, log_evidence, self.problem.total(iterate.A, iterate.c))

    def proper_sums(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Sum the sites, A and c. If B is not positive definite, as after a step of the
        hyperparameters, first halve the negative precisions until it is, or set them to 0.
        """
        sites = self.sites.stacked()

        def is_improper(number: tf.Tensor, _: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
            return ~self.problem.total(A, c).is_proper() & (number <= MAX_HALVINGS)

        def halve(number: tf.Tensor, sites: tf.Tensor, *_: tf.Tensor) -> Tensors:
            factor = tf.where(number < MAX_HALVINGS, tf.constant(0.5, sites.dtype), 0.0)
            precision, linear = tf.unstack(sites, axis=1)
            precision = tf.where(precision < 0.0, factor * precision, precision)
            sites = tf.stack([precision, linear], axis=1)
            return number + 1, sites, *self.problem.sum_sites(sites)

        start = (tf.constant(0), sites, *self.problem.sum_sites(sites))
        _, sites, A, c = tf.while_loop(is_improper, halve, start, parallel_iterations=1)
        self.sites.assign_stacked(sites)
        return A, c

    def update_some(
        self, rows: LatentRows, indices: tf.Tensor, sums: SiteSums, damping: tf.Tensor
    ) -> SiteSums:
        """
        Update the sites of some rows, of these indices [n], damped, and the sums over all sites.
        Sites with an improper cavity and rows with a non-finite update stay. The fraction is halved
        until B is positive definite, or set to 0.
        """
        problem = replace(self.problem, rows=rows, keep=False, variables=())
        sites = self.sites
        total = sums.with_old(problem.old)
        values = tf.stack(
            [tf.gather(variable, indices) for variable in (sites.precision, sites.linear)], axis=1
        )
        swept = problem.sweep(values, total.posterior())
        # True for rows whose values are finite.
        finite = tf.reduce_all(tf.math.is_finite(swept.update), axis=[1, 2], keepdims=True)
        update = tf.where(finite, swept.update, 0.0)
        A, c = problem.sum_sites(update)

        fraction = tf.while_loop(
            lambda fraction: ~total.plus(fraction * A, fraction * c).is_proper() & (fraction > 0.0),
            lambda fraction: [tf.where(fraction >= SMALLEST_FRACTION, 0.5 * fraction, 0.0)],
            [damping],
        )[0]
        pairs = zip(
            (sites.precision, sites.linear), tf.unstack(fraction * update, axis=1), strict=True
        )
        moved = [
            variable.scatter_add(tf.IndexedSlices(change, indices)) for variable, change in pairs
        ]
        with tf.control_dependencies([change for change in moved if isinstance(change, tf.Tensor)]):
            return sums.plus(fraction * A, fraction * c)

    def sweep_in_batches(
        self, batch: Callable[[tf.Tensor], LatentRows], order: tf.Tensor, size: tf.Tensor
    ) -> None:
        """
        Update the sites, `size` of them at a time in this order [N], and q after each batch.

        :param batch: returns the rows of these indices, in one chunk.
        """
        damping = tf.convert_to_tensor(self.options.damping)

        def step(first: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> Tensors:
            indices = order[first : first + size]
            sums = self.update_some(
                batch(indices), indices, SiteSums(self.problem.L, A, c), damping
            )
            return first + size, sums.A, sums.c

        start = (tf.constant(0), *self.proper_sums())
        tf.while_loop(lambda first, *_: first < tf.size(order), step, start, parallel_iterations=1)

    def minibatch(
        self,
        tape: tf.GradientTape,
        batch: LatentRows,
        sums: tuple[tf.Tensor, tf.Tensor],
        indices: tf.Tensor,
        damping: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Update the sites of a minibatch and their sums A and c; return A, c and the objective that
        `tape` records.

        :param batch: the rows of these indices, in one chunk.
        """
        problem = self.problem
        with tape.stop_recording():
            A_c = self.update_some(batch, indices, SiteSums(problem.L, *sums), damping)
            q = A_c.with_old(problem.old).posterior()
        with tf.control_dependencies([A_c.A]):  # the sites of the minibatch have been updated
            variables = self.sites.precision, self.sites.linear
            site = Site(*(tf.transpose(tf.gather(variable, indices)) for variable in variables))
            return (
                A_c.A,
                A_c.c,
                minibatch_objective(problem, batch, site, q, tf.shape(self.sites.precision)[0]),
            )
