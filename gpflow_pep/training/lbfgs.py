"""SciPy's L-BFGS-B, which always ends at the best parameters evaluated."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import threadpool_limits

from ..runtime.checks import reason_of
from .history import NOT_FINITE, History
from .objectives import FAILURES, Objective
from .result import CONVERGED, FAILED, LIMIT, Outcome

FLAT_ITERATIONS, FLAT_GAIN = 20, 1e-3  # a search ends after this many iterations that gained less than this, in nats


class _Interrupted(Exception):
    """Raised between evaluations within a search, after Ctrl-C."""


class LBFGS:
    """Minimize the loss by searches, each from the end of the one before."""

    state: Mapping[str, tf.Variable] = {}
    """Variables besides the parameters: none, so that a resumed run restarts from the parameters."""

    def __init__(self, objective: Objective):
        self._objective = objective
        self._shapes = [variable.numpy().shape for variable in objective.variables]  # static shapes may be unknown
        self._ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes])[:-1]
        self._best, self._best_loss = np.zeros(0), np.inf  # of all evaluations
        self._best_slope = 0.0  # the largest derivative there
        self._is_at_best = True  # the variables have these values
        self._failure = ""  # the last failure after the best evaluation, in the current search
        self._any_failure = ""  # the last failure of the current search
        self._recent: deque[float] = deque(maxlen=FLAT_ITERATIONS + 1)  # the best losses after the last iterations

    def restore(self) -> None:
        """Assign the best parameters to the variables."""
        self._assign(self._best)

    def __call__(self, history: History) -> Outcome:
        """Minimize the loss; the variables end at the best parameters evaluated."""

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            if self._best_loss < np.inf and history.interrupted():
                raise _Interrupted
            return self._evaluate(x, history.iterations)

        def callback(intermediate_result: OptimizeResult) -> None:  # SciPy requires this argument name
            if not self._is_at_best:
                self.restore()
                self._objective.restore_best()
            history.step(-self._best_loss if history.will_record else None)
            self._recent.append(self._best_loss)
            if history.is_over or self._is_flat:
                raise StopIteration

        self._best = _flat(self._objective.variables)
        # A search may end too early if it was resumed from a checkpoint, or if the loss is noisy because sites converge
        # to a tolerance. Start another search from its end until a search at the smallest tolerance gains nothing.
        gained, result = True, OptimizeResult()
        while gained and not (history.is_over or self._is_flat):
            before, self._failure, self._any_failure = self._best_loss, "", ""
            # SciPy's default of 10 secants is too few for hyperparameters of very different scales.
            options = {"maxiter": history.steps - history.iterations, "maxfun": 4 * history.steps + 20, "maxcor": 20}
            try:
                with threadpool_limits(1, user_api="blas"):  # idle BLAS threads spin and slow down TensorFlow
                    result = minimize(loss, self._best, jac=True, method="L-BFGS-B", callback=callback, options=options)
            except _Interrupted:
                break
            finally:
                self.restore()
            gained = not before - self._best_loss < 1e-6 * (1.0 + abs(self._best_loss))  # else stop searching
            if not (history.is_over or self._is_flat) and self._objective.tighten(fully=not gained):
                gained = True  # a tighter tolerance may still improve
                self._best_loss, before = np.inf, self._best_loss  # loose sites may underestimate it
                try:
                    loss(self._best)
                except FAILURES as error:
                    self._best_loss, self._failure, gained = before, reason_of(error), False
                    self._objective.restore_best()
                self._recent.clear()
        history.record_last(-self._best_loss)
        return history.stopped or self._outcome(result, gained=gained, limit=history.is_over)

    @property
    def _is_flat(self) -> bool:
        """True if the last FLAT_ITERATIONS iterations gained less than FLAT_GAIN."""
        return len(self._recent) > FLAT_ITERATIONS and self._recent[0] - self._recent[-1] < FLAT_GAIN

    def _assign(self, x: AnyNDArray) -> None:
        for variable, shape, part in zip(self._objective.variables, self._shapes, np.split(x, self._ends), strict=True):
            variable.assign(part.reshape(shape).astype(variable.dtype.as_numpy_dtype))

    def _evaluate(self, x: AnyNDArray, step: int) -> tuple[float, AnyNDArray]:
        """Return loss and gradient; after a failure, a larger loss, so that the line search backtracks."""
        self._assign(x)
        self._is_at_best = False
        try:
            loss, derivatives = self._objective.evaluate(step)
            gradient = _flat(derivatives)
            if not (np.isfinite(loss) and np.isfinite(gradient).all()):
                raise FloatingPointError(NOT_FINITE)
        except FAILURES as error:
            self._objective.check_data()
            if self._best_loss == np.inf:
                raise
            self._failure = self._any_failure = reason_of(error)
            self._objective.restore_best()
            return self._best_loss + 1.0 + abs(self._best_loss), np.zeros_like(x)
        if loss < self._best_loss:
            self._best, self._best_loss, self._best_slope = x.copy(), loss, float(np.abs(gradient).max())
            self._failure, self._is_at_best = "", True
            self._objective.mark_best()
        return loss, gradient

    def _outcome(self, result: OptimizeResult, *, gained: bool, limit: bool) -> Outcome:
        """Return the outcome of the last search: whether it `gained`, or reached the `limit` of iterations."""
        if limit:
            last = f" The last step failed: {self._failure}" if self._failure else ""
            return Outcome(LIMIT, f"L-BFGS: max_iterations was reached.{last}")
        if self._failure:  # no later evaluation was better, although SciPy reports convergence
            return Outcome(FAILED, f"L-BFGS: no step from the last good parameters succeeded. {self._failure}")
        if self._is_flat:
            gain = f"{FLAT_ITERATIONS} iterations gained less than {FLAT_GAIN:g} nats"
            return Outcome(CONVERGED, f"L-BFGS: the objective is flat: the last {gain}.")
        # A search without a step started at an optimum up to rounding, or at the edge of the loss's domain. SciPy
        # reports convergence at an edge, too, because steps that it shortens gain almost nothing; but the loss has a
        # slope there.
        exhausted = not gained and result.nit == 0 and not self._any_failure
        at_edge = bool(self._any_failure) and self._best_slope > 1e-2  # nats; at an optimum the slopes are smaller
        if (result.success or exhausted) and not at_edge:
            return Outcome(CONVERGED, f"L-BFGS: {result.message}.")
        step = f" A step failed: {self._any_failure}" if self._any_failure else ""
        return Outcome(FAILED, f"L-BFGS: {result.message}.{step}")


def _flat(tensors: Sequence[Any]) -> AnyNDArray:
    """Concatenate tensors, [P], in NumPy: TensorFlow operations may take longer than a small model's step."""
    return np.concatenate([np.ravel(tensor.numpy()) for tensor in tensors]).astype(np.float64)
