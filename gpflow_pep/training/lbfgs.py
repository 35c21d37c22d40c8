"""SciPy's L-BFGS-B, which always ends at the best parameters evaluated."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import threadpool_limits

from ..runtime.checks import reason_of
from .history import NOT_FINITE, History, restore_on_failure
from .objectives import FAILURES, Objective
from .result import CONVERGED, FAILED, LIMIT, Outcome

FLAT_ITERATIONS, FLAT_GAIN = 20, 1e-3  # a search ends after this many iterations that gained less than this, in nats


class _Interrupted(Exception):
    """Raised between evaluations within a search, after Ctrl-C."""


@dataclass
class _Best:
    """The best evaluation of all searches, and the failures of the current search."""

    values: AnyNDArray
    is_current: bool = True
    """True if the variables have these values."""
    loss: float = np.inf
    failure: str = ""
    """The last failure after the best evaluation, in the current search."""
    any_failure: str = ""
    """The last failure of the current search."""
    slope: float = 0.0
    """The largest derivative at the best evaluation."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=FLAT_ITERATIONS + 1))
    """The best losses after the last iterations."""

    @property
    def is_flat(self) -> bool:
        """True if the last FLAT_ITERATIONS iterations gained less than FLAT_GAIN."""
        return len(self.recent) > FLAT_ITERATIONS and self.recent[0] - self.recent[-1] < FLAT_GAIN


def lbfgs(objective: Objective, history: History) -> Outcome:
    """Minimize the loss; the variables end at the best parameters evaluated."""
    shapes = [variable.numpy().shape for variable in objective.variables]  # static shapes may be unknown
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1]

    # In NumPy, because TensorFlow operations may take longer than a small model's step.
    def flat(tensors: Sequence[Any]) -> AnyNDArray:
        """Concatenate tensors of the variables' shapes, [P]."""
        return np.concatenate([np.ravel(tensor.numpy()) for tensor in tensors]).astype(np.float64)

    def assign(values: AnyNDArray) -> None:
        for variable, shape, part in zip(objective.variables, shapes, np.split(values, ends), strict=True):
            variable.assign(part.reshape(shape).astype(variable.dtype.as_numpy_dtype))

    best = _Best(flat(objective.variables))

    def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        if best.loss < np.inf and history.interrupted():
            raise _Interrupted
        assign(x)
        best.is_current = False
        try:
            value, derivatives = objective.evaluate(history.iterations)
            gradient = flat(derivatives)
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise FloatingPointError(NOT_FINITE)
        except FAILURES as error:
            objective.check_data()
            if best.loss == np.inf:
                raise
            best.failure = best.any_failure = reason_of(error)  # the line search will backtrack
            objective.restore_best()
            return best.loss + 1.0 + abs(best.loss), np.zeros_like(x)
        if value < best.loss:
            best.loss, best.failure, best.values = value, "", x.copy()
            best.is_current = True
            best.slope = float(np.abs(gradient).max())
            objective.mark_best()
        return value, gradient

    def callback(intermediate_result: OptimizeResult) -> None:  # SciPy requires this argument name
        if not best.is_current:
            assign(best.values)
            objective.restore_best()
        history.step(-best.loss if history.will_record else None)
        best.recent.append(best.loss)
        if history.is_over or best.is_flat:
            raise StopIteration

    with restore_on_failure(objective, history, lambda: assign(best.values)) as failure:
        # A search may end too early if it was resumed from a checkpoint, or if the loss is noisy because sites converge
        # to a tolerance. Start another search from its end until a search at the smallest tolerance gains nothing.
        gained, result = True, OptimizeResult()
        while gained and not (history.is_over or best.is_flat):
            previous, best.failure, best.any_failure = best.loss, "", ""
            # SciPy's default of 10 secants is too few for hyperparameters of very different scales.
            options = {"maxiter": history.steps - history.iterations, "maxfun": 4 * history.steps + 20, "maxcor": 20}
            try:
                with threadpool_limits(1, user_api="blas"):  # idle BLAS threads spin and slow down TensorFlow
                    result = minimize(
                        loss, best.values, jac=True, method="L-BFGS-B", callback=callback, options=options
                    )
            except _Interrupted:
                break
            finally:
                assign(best.values)
            gained = not previous - best.loss < 1e-6 * (1.0 + abs(best.loss))  # if less, another search gains nothing
            if not (history.is_over or best.is_flat) and objective.tighten(fully=not gained):
                gained = True  # a tighter tolerance may still improve
                best.loss, previous = np.inf, best.loss  # loose sites may underestimate it
                try:
                    loss(best.values)
                except FAILURES as error:
                    best.loss, best.failure, gained = previous, reason_of(error), False
                    objective.restore_best()
                best.recent.clear()
        history.record_last(-best.loss)
        return history.stopped or _outcome(result, best, gained=gained, limit=history.is_over)
    return Outcome(FAILED, failure[0])


def _outcome(result: OptimizeResult, best: _Best, *, gained: bool, limit: bool) -> Outcome:
    """Return the outcome of the last search: whether it `gained`, or reached the `limit` of iterations."""
    if limit:
        last = f" The last step failed: {best.failure}" if best.failure else ""
        return Outcome(LIMIT, f"L-BFGS: the limit of iterations was reached.{last}")
    if best.failure:  # no later evaluation was better, although SciPy reports convergence
        return Outcome(FAILED, f"L-BFGS: no step from the last good parameters succeeded. {best.failure}")
    if best.is_flat:
        gain = f"{FLAT_ITERATIONS} iterations gained less than {FLAT_GAIN:g} nats"
        return Outcome(CONVERGED, f"L-BFGS: the objective is flat: the last {gain}.")
    # A search without a step started at an optimum up to rounding, or at the edge of the loss's domain. SciPy reports
    # convergence at an edge, too, because steps that it shortens gain almost nothing; but the loss has a slope there.
    exhausted = not gained and result.nit == 0 and not best.any_failure
    at_edge = bool(best.any_failure) and best.slope > 1e-2  # nats; at an optimum the slopes are smaller
    if (result.success or exhausted) and not at_edge:
        return Outcome(CONVERGED, f"L-BFGS: {result.message}.")
    step = f" A step failed: {best.any_failure}" if best.any_failure else ""
    return Outcome(FAILED, f"L-BFGS: {result.message}.{step}")
