"""SciPy's L-BFGS-B, which always ends at the best parameters evaluated."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.optimize import Bounds, OptimizeResult, minimize
from threadpoolctl import threadpool_limits

from ..runtime.checks import reason_of
from .coordinates import Coordinates
from .history import NOT_FINITE, History
from .objectives import FAILURES, Objective
from .result import CONVERGED, FAILED, LIMIT, Outcome
from .starts import starts, without_inputs

FLAT_ITERATIONS = 20  # a phase ends after this many iterations that gained less than `gain`
# The last phase also ends after this many iterations that gained less than this share of `gain`, if
# it has at most `_SECANTS` coordinates, so that secants know the curvature. In earlier phases
# inducing points have not moved yet.
_STILL = (5, 1.0 / 40.0)
# Largest change of the logarithm of a positive parameter in a search: at extreme values matrices
# are singular and sites diverge.
_REACH = np.log(1e4)
_SECANTS = 50  # with SciPy's default of 10 inducing points take a third more iterations
_IGNORED = (
    "The inputs explain nothing: the objective is no better than with a constant f, or with noise alone. Try other "
    "initial lengthscales, a mean function (or Y without its mean), more inducing points, n_restarts."
)
_MAX_ROUNDING = 1.0  # nats per row: larger rounding errors would hide differences of parameters
_MAX_CURVATURE = 100.0  # nats per row: the largest curvature of a smooth loss
_PROBES = 9  # evaluations from which rounding is estimated
# Distance between probes, over which derivatives change little, in double precision.
_PROBE_STEP = 1e-6
_CURVATURE_STEP = 0.1  # distance of the gradients whose difference gives the curvature
_NO_STEP = "no step raises the objective beyond rounding"
_ADVICE = (
    "Try standardized X and Y, a mean function, other initial parameters, or a larger tolerance."
)


class _Interrupted(Exception):
    """Raised between evaluations within a search, after Ctrl-C."""


class LBFGS:
    """Minimize the loss over the variables of each phase in turn, from the best of several starts."""

    def __init__(
        self,
        objective: Objective,
        phases: Sequence[Collection[tf.Variable]],
        tolerance: float,
        num_rows: int,
        n_restarts: int,
        seed: int,
    ):
        """
        :param phases: the variables trained in each phase, of those of the objective.
        :param tolerance: a phase ends after FLAT_ITERATIONS iterations that gained less than this, in nats per row.
        :param n_restarts: the number of starts, after the best, from which the first phase is trained, too.
        """
        self._objective = objective
        self._n_restarts = n_restarts
        self._seed = seed
        self._tolerance = tolerance
        self._num_rows = num_rows
        self._flat = (FLAT_ITERATIONS, 1.0)  # iterations, and their gain as a share of `_gain`
        self._coordinates = Coordinates(objective.model, objective.variables)
        resolution = max(
            (np.finfo(each.dtype.as_numpy_dtype).eps for each in objective.variables), default=0.0
        )
        self._probe_step = max(_PROBE_STEP, 100.0 * resolution)
        self._phases = [self._coordinates.entries(variables) for variables in phases]
        self._active = self._phases[0]
        # Loss and coordinates at the ends from earlier starts.
        self._ends: list[tuple[float, AnyNDArray]] = []
        self._begin(self._coordinates.values())
        # 1 and the best of `_ends`, or 0.
        self._best_end = tf.Variable(np.zeros(1 + len(self._best)), trainable=False)
        self.state: Mapping[str, tf.Variable] = {"best end": self._best_end}  # for a resumed run

    @property
    def _gain(self) -> float:
        """The gain of `FLAT_ITERATIONS` iterations, in nats, below which the objective is flat."""
        return self._tolerance * self._num_rows

    def restore(self) -> None:
        """Assign the best parameters to the variables."""
        self._coordinates.assign(
            min([(self._best_loss, self._best), *self._ends], key=itemgetter(0))[1]
        )

    def __call__(self, history: History) -> Outcome:
        """Minimize the loss; the variables end at the best parameters evaluated."""
        return self._recorded(self._from_starts, history)

    def go_on(self, history: History, num_rows: int, iterations: int) -> Outcome:
        """
        Minimize the loss of more rows, in the last phase, from the end of a search on fewer.

        :param iterations: the search ends after this many iterations whose mean gain is below the
            limit of the first search, in which `FLAT_ITERATIONS` are counted.
        """
        self._num_rows = num_rows
        self._flat = (iterations, iterations / FLAT_ITERATIONS)
        self._active = self._phases[-1]
        self._objective.restart()
        return self._recorded(self._from_present, history)

    def _recorded(self, search: Callable[[History], Outcome], history: History) -> Outcome:
        """Search, and record the end; the variables end at the best parameters evaluated."""
        self._ends.clear()  # of an interrupted search, perhaps on other rows
        self._begin(self._coordinates.values())
        outcome = Outcome(CONVERGED, "")
        try:
            outcome = search(history)
        except _Interrupted:
            self.restore()
        objective = -min([self._best_loss, *(loss for loss, _ in self._ends)])
        # A line search that failed may have found better parameters, too.
        history.record_last(objective, again=history.objective[-1:] < [objective])
        return history.stopped or outcome

    def _from_starts(self, history: History) -> Outcome:
        """Train all phases from the best of the starts or, if the run was resumed, from its best parameters."""
        is_cheap = self._objective.trial_iterations > 0
        may_ignore_inputs = is_cheap
        if history.iterations > 0:  # resumed from a checkpoint
            has_end, *end = self._best_end.numpy()
            outcome = self._best_of([self._best, np.array(end)][: 1 + int(has_end)], history)
        else:
            ranked = self._ranked_starts(history)
            ends = [end for _, end in ranked]
            outcome = self._best_of(ends[: 1 + self._n_restarts], history)
            if is_cheap and not history.is_over:
                may_ignore_inputs = self._ignores_inputs(history)
            if may_ignore_inputs and not history.is_over:
                # Few points in their first places may explain nothing: train them, too, from the best start.
                others = (
                    ends[1 + self._n_restarts :][:1] if len(self._phases) == 1 else [ranked[0][0]]
                )
                self._active = self._phases[-1]
                outcome = self._best_of(others, history, outcome)
        for active in self._phases[1:]:
            history.begin_phase()
            if history.is_over:
                break
            self._active = active
            self._recent.clear()
            before, outcome = outcome, self._search(history)
            # The search is stuck at a kink of the kernel: rows at inducing points.
            if before.status == CONVERGED and self._is_stuck:
                outcome = Outcome(
                    CONVERGED, f"{before.reason} The inducing points stay. {outcome.reason}"
                )
        # If the inputs explained something before, later gains do not change that.
        if may_ignore_inputs and outcome.status == CONVERGED and self._ignores_inputs(history):
            outcome = Outcome(CONVERGED, f"{outcome.reason} {_IGNORED}")
        return outcome

    def _from_present(self, history: History) -> Outcome:
        """Train from the present parameters; evaluate the loss there if no iteration remains."""
        if history.is_over:
            self._evaluate(self._best[self._active], history)
        return self._search(history)

    def _best_of(
        self, begins: Sequence[AnyNDArray], history: History, outcome: Outcome | None = None
    ) -> Outcome:
        """Search from each of these coordinates; go to the best end, or the present one, if it has an `outcome`."""
        outcomes = [] if outcome is None else [outcome]
        self._ends = [(self._best_loss, self._best) for _ in outcomes]
        for begin in begins:
            if outcomes:
                self._objective.restart()
            self._begin(begin)
            history.begin_phase()
            outcomes.append(self._search(history))
            self._ends.append((self._best_loss, self._best))
            self._best_end.assign([1.0, *min(self._ends, key=itemgetter(0))[1]])
        (_, best), outcome = min(
            zip(self._ends, outcomes, strict=True), key=lambda pair: pair[0][0]
        )
        self._ends.clear()
        self._best_end.assign(np.zeros(1 + len(best)))
        if best is not self._best:
            self._go_to(best, history)
            history.record_last(-self._best_loss, again=True)
        return outcome

    def _ignores_inputs(self, history: History) -> bool:
        """Return whether the evidence is no better than if f were constant or noise."""
        self._coordinates.assign(self._best)
        found = self._negative_evidence()
        losses = [np.inf]
        before = (dict(vars(self)), dict(vars(self._objective)))
        try:
            for values in without_inputs(self._objective.model, self._coordinates):
                with suppress(*FAILURES):
                    self._go_to(values, history)
                    losses.append(self._negative_evidence())
        finally:  # also after Ctrl-C
            vars(self).update(before[0])
            vars(self._objective).update(before[1])
            self._coordinates.assign(self._best)
            self._objective.restore_best()
        return min(losses) - found < 10.0 * self._gain

    def _negative_evidence(self) -> float:
        """Return the best loss without the log prior density; the variables must have the best values."""
        return self._best_loss + float(self._objective.model.log_prior_density())

    @property
    def _best_gradient(self) -> AnyNDArray:
        """Return the gradient at the best parameters, in the active coordinates."""
        return self._full_gradient[self._active]

    @property
    def _is_flat(self) -> bool:
        """True if the last iterations gained too little."""
        return bool(self._flatness)

    @property
    def _flatness(self) -> str:
        """The small gain of the last iterations, in words; "" if they gained enough."""
        limits = [self._flat]
        is_last = self._active is self._phases[-1]
        if is_last and self._objective.is_exact and np.size(self._best[self._active]) <= _SECANTS:
            limits.append(_STILL)
        for number, share in limits:
            least = share * self._gain
            if len(self._recent) <= number:
                continue
            first, middle, last = (self._recent[-1 - back] for back in (number, number // 2, 0))
            leaves_saddle = middle - last > max(2.0 * (first - middle), 0.25 * least)
            if first - last < least and not leaves_saddle:
                return f"the last {number} iterations gained less than {least:.2g} nats"
        return ""

    def _begin(self, values: AnyNDArray) -> None:
        self._best, self._best_loss = values, np.inf  # of all evaluations from this start
        self._full_gradient = np.zeros_like(values)  # the gradient there, in all coordinates
        self._is_at_best = True  # the variables have these values
        self._failure = ""  # the last failure after the best evaluation, in the current search
        self._any_failure = ""  # the last failure of the current search
        # True if the last search made no step and none failed, although the loss has a slope.
        self._is_stuck = False
        # The best losses after the last iterations.
        self._recent: deque[float] = deque(maxlen=FLAT_ITERATIONS + 1)

    def _go_to(self, values: AnyNDArray, history: History) -> None:
        """Begin at these coordinates, far from the last ones, and evaluate the loss there."""
        self._begin(values)
        self._objective.restart()
        self._evaluate(values[self._active], history)

    def _ranked_starts(self, history: History) -> list[tuple[AnyNDArray, AnyNDArray]]:
        """Return the starts, each with the end of a few iterations, the best first."""
        given, *others = starts(
            self._objective.model, self._coordinates, self._n_restarts, self._seed
        )
        if not (others and self._objective.waits):
            return [(given, given)]
        self._evaluate(given[self._active], history)
        found = []
        for start in (given, *others):
            try:
                if start is not given:
                    self._go_to(start, history)
                if self._objective.trial_iterations:
                    self._minimize(
                        history,
                        lambda _: None,
                        min(self._objective.trial_iterations, history.steps),
                    )
                if start is given or self._objective.is_accurate:
                    found.append(start)
                    self._ends.append((self._best_loss, self._best))
            except FAILURES:
                self._objective.check_data()
        ranked = sorted(zip(self._ends, found, strict=True), key=lambda pair: pair[0][0])
        self._objective.restart()
        return [(start, end) for (_, end), start in ranked]

    def _minimize(
        self, history: History, callback: Callable[[OptimizeResult], None], max_iterations: int
    ) -> OptimizeResult:
        """Minimize over the active coordinates, from the best ones."""
        options = {"maxiter": max_iterations, "maxfun": 4 * history.steps + 20, "maxcor": _SECANTS}
        start, reach = (
            self._best[self._active],
            np.where(self._coordinates.are_logs[self._active], _REACH, np.inf),
        )
        least = start - reach
        # If all had bounds, SciPy's first step would be as long as the gradient.
        least[:1] = -np.inf
        arguments: dict[str, Any] = {
            "args": (history,),
            "method": "L-BFGS-B",
            "jac": True,
            "options": options,
        }
        # Idle BLAS threads spin and slow down TensorFlow.
        with threadpool_limits(1, user_api="blas"):
            bounds = Bounds(least, start + reach)
            return minimize(self._evaluate, start, bounds=bounds, callback=callback, **arguments)

    def _search(self, history: History) -> Outcome:
        """Minimize over the active coordinates, by searches each from the end of the one before."""

        def callback(
            intermediate_result: OptimizeResult,
        ) -> None:  # SciPy requires this argument name
            if not self._is_at_best:
                self._coordinates.assign(self._best)
                self._objective.restore_best()
            history.step(-self._best_loss if history.will_record else None)
            self._recent.append(self._best_loss)
            if history.is_over or self._is_flat:
                raise StopIteration

        # A search may end too early if it was resumed from a checkpoint, or if the loss is noisy because sites converge
        # to a tolerance. Start another search from its end until a search at the smallest tolerance gains nothing.
        self._is_stuck = False
        gained, result = True, OptimizeResult()
        while gained and not (history.is_over or self._is_flat):
            before, self._failure, self._any_failure = self._best_loss, "", ""
            result = self._minimize(history, callback, history.steps - history.iterations)
            self._coordinates.assign(self._best)
            least = 1e-6 * (1.0 + abs(self._best_loss))
            if not self._objective.is_exact:  # further searches are expensive
                least = max(least, 0.1 * self._gain)
            gained = not before - self._best_loss < least  # else stop searching
            is_last = self._active is self._phases[-1]
            if (
                is_last
                and not (history.is_over or self._is_flat)
                and self._objective.tighten(fully=not gained, gain=self._gain)
            ):
                gained = True  # a tighter tolerance may still improve
                # Loose sites may underestimate the loss.
                self._best_loss, before = (
                    np.inf,
                    self._best_loss,
                )
                try:
                    self._evaluate(self._best[self._active], history)
                except FAILURES as error:
                    self._best_loss, self._failure, gained = before, reason_of(error), False
                    self._objective.restore_best()
                self._recent.clear()
        return self._outcome(result, history)

    def _evaluate(self, x: AnyNDArray, history: History) -> tuple[float, AnyNDArray]:
        """Return loss and gradient; after a failure, a larger loss, so that the line search backtracks."""
        values = self._values_at(x)
        # SciPy evaluates the start of a search again.
        if self._best_loss < np.inf and np.array_equal(values, self._best):
            return self._best_loss, self._best_gradient
        try:
            loss, full_gradient = self._loss_and_gradient(values, history)
        except FAILURES as error:
            if self._best_loss == np.inf:
                raise
            self._failure = self._any_failure = reason_of(error)
            self._objective.restore_best()
            return self._best_loss + 1.0 + abs(self._best_loss), np.zeros_like(x)
        if loss < self._best_loss:
            self._best = values
            self._best_loss = loss
            self._full_gradient = full_gradient
            self._failure = ""
            self._is_at_best = True
            self._objective.mark_best()
        return loss, full_gradient[self._active]

    def _values_at(self, x: AnyNDArray) -> AnyNDArray:
        """Return all coordinates: x for the active ones, the best for the others."""
        values = self._best.copy()
        values[self._active] = x
        return values

    def _loss_and_gradient(self, values: AnyNDArray, history: History) -> tuple[float, AnyNDArray]:
        """Assign all coordinates; return the loss and its gradient in them, or raise one of `FAILURES`."""
        if self._best_loss < np.inf and history.interrupted():
            raise _Interrupted
        self._coordinates.assign(values)
        self._is_at_best = False
        try:
            loss, derivatives = self._objective.evaluate(history.iterations)
            arrays = [each.numpy() for each in derivatives]
            gradient = self._coordinates.gradient(values, arrays)
            if not (np.isfinite(loss) and np.isfinite(gradient[self._active]).all()):
                raise FloatingPointError(NOT_FINITE)
        except FAILURES:
            self._objective.check_data()
            raise
        return loss, gradient

    def _probe(
        self, steps: Sequence[AnyNDArray], history: History
    ) -> list[tuple[float, AnyNDArray]]:
        """
        Return loss and active gradient after each of these steps from the best parameters, and go back to these: a
        better loss is not recorded. Raise one of `FAILURES` if a step fails.
        """
        found = []
        try:
            for step in steps:
                values = self._values_at(self._best[self._active] + step)
                loss, gradient = self._loss_and_gradient(values, history)
                found.append((loss, gradient[self._active]))
        finally:
            self._coordinates.assign(self._best)
            self._objective.restore_best()
            self._is_at_best = True
        return found

    def _rounding(self, history: History) -> float:
        """
        Estimate the standard deviation of the loss's rounding errors from third differences along the gradient, since
        a smooth loss has almost none: the variance is 3!²/6! of their mean square (Moré and Wild 2011, eq. 2.5).
        """
        step = self._probe_step * self._best_gradient / np.linalg.norm(self._best_gradient)
        places = np.arange(_PROBES) - _PROBES // 2
        losses = [loss for loss, _ in self._probe([place * step for place in places], history)]
        return float(np.sqrt(np.mean(np.diff(losses, 3) ** 2) / 20.0))

    def _promised_gain(self, rounding: float, history: History) -> float:
        """Return the decrease of the loss, in nats, that a parabola along the gradient promises within distance 1."""
        gradient = self._best_gradient
        slope = float(np.linalg.norm(gradient))
        # A smooth loss would gain slope²/(2 curvature) > 10 rounding, and L-BFGS would see it: this loss has a kink.
        if slope**2 > 20.0 * rounding * _MAX_CURVATURE * self._num_rows:
            return 0.5 * slope**2
        descent = -gradient / slope
        [(_, there)] = self._probe([_CURVATURE_STEP * descent], history)
        curvature = float(descent @ (there - gradient)) / _CURVATURE_STEP
        return slope * slope / max(2.0 * curvature, slope)

    def _outcome(self, result: OptimizeResult, history: History) -> Outcome:
        """Return the outcome of the last search."""
        if history.is_over:
            last = f" The last step failed: {self._failure}" if self._failure else ""
            return Outcome(LIMIT, f"L-BFGS: max_iterations was reached.{last}")
        if self._failure:  # no later evaluation was better, although SciPy reports convergence
            failed = f"no step from the last good parameters succeeded: {self._failure.rstrip('.')}"
            return Outcome(FAILED, f"L-BFGS: {failed}. {_ADVICE}")
        if self._is_flat:
            return Outcome(CONVERGED, f"L-BFGS: the objective is flat: {self._flatness}.")
        message = f"L-BFGS: {result.message}"
        slope = float(np.abs(self._best_gradient).max())
        if slope <= max(1e-2, self._gain) or (result.success and not self._any_failure):
            if "ABNORMAL" in result.message:
                message = f"L-BFGS: {_NO_STEP}"
            return Outcome(CONVERGED, f"{message}.")
        # The line search failed, or steps left the domain of the loss: SciPy shortens these and reports convergence.
        # The parameters are an optimum, up to rounding and tolerance, if the slope promises no larger gain.
        failed = "L-BFGS: a step failed: "
        try:
            rounding = self._rounding(history)
            promised = self._promised_gain(rounding, history)
        except FAILURES as error:  # at an edge of the domain, where neither is known
            return Outcome(FAILED, f"{failed}{self._any_failure or reason_of(error)} {_ADVICE}")
        hidden = f"{_NO_STEP}, about {rounding:.2g} nats"
        if rounding > _MAX_ROUNDING * self._num_rows:
            hidden += f", more than {_MAX_ROUNDING:g} per row"
            return Outcome(FAILED, f"L-BFGS: {hidden}. {_ADVICE}")
        if promised <= max(self._gain, 10.0 * rounding):
            return Outcome(CONVERGED, f"L-BFGS: {hidden}.")
        if self._any_failure:
            return Outcome(FAILED, f"{failed}{self._any_failure} {_ADVICE}")
        self._is_stuck = result.nit == 0
        found = f"{_NO_STEP}, although its slope is {slope:.2g} and promises {promised:.2g} nats"
        return Outcome(FAILED, f"L-BFGS: {found}. {_ADVICE}")
