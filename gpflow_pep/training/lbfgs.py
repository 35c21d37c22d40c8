"""SciPy's L-BFGS-B, which always ends at the best parameters evaluated."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from operator import attrgetter

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.optimize import Bounds, OptimizeResult, minimize

from ..maths.linalg import epsilon
from ..runtime import reason_of
from ..runtime.threads import one_thread
from .coordinates import Coordinates
from .history import NOT_FINITE, History
from .objectives import FAILURES, Objective
from .result import CONVERGED, FAILED, LIMIT, Outcome
from .starts import starts, without_inputs

FLAT_ITERATIONS = 20  # a phase ends after this many iterations that gained less than `gain`
# The last phase also ends after this many iterations that gained less than a share of `gain`, if it
# has at most `_SECANTS` coordinates, so that secants know the curvature. In earlier phases inducing
# points have not moved yet. If sites converge in an iteration, which is expensive, the share is
# larger. With several latent functions there may be `_MOST_COORDINATES` coordinates.
_MOST_COORDINATES = 150
_STILL_ITERATIONS = 5
_STILL_SHARES = {True: 1.0 / 40.0, False: 1.0 / 4.0}  # for exact losses; for losses with sites
# Largest change of the logarithm of a positive parameter in a search: at extreme values matrices
# are singular and sites diverge.
_REACH = np.log(1e4)
_SECANTS = 50  # with SciPy's default of 10 inducing points take a third more iterations
_IGNORED = (
    "The inputs explain nothing: the objective is no better than with a constant f, or with noise "
    "alone. Try other initial lengthscales, a mean function (or Y without its mean), more inducing "
    "points, n_restarts."
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


class SearchState:
    """The best evaluation since a start, and the failures and gains of the current search."""

    def __init__(self, start: AnyNDArray):
        """:param start: all coordinates [P]."""
        self.start = self.best = start
        self.loss = np.inf  # the best
        self.gradient = np.zeros_like(start)  # of the best loss, in all coordinates [P]
        self.failure = ""  # the last failure after the best evaluation
        self.any_failure = ""  # the last failure
        # True if no step was made and none failed, although the loss has a slope.
        self.is_stuck = False
        # The best losses after the last iterations.
        self.recent: deque[float] = deque(maxlen=FLAT_ITERATIONS + 1)


class LBFGS:
    """Minimize the loss over the variables of each phase, from the best of several starts."""

    def __init__(
        self,
        objective: Objective,
        history: History,
        phases: Sequence[Collection[tf.Variable]],
        num_rows: int,
    ):
        """
        :param phases: the variables of the objective that are trained in each phase.
        :param num_rows: the tolerance is in nats per row: a phase ends after FLAT_ITERATIONS
            iterations that together gained less than tolerance times rows.
        """
        self._objective = objective
        self._history = history
        self._options = history.options
        self._num_rows = num_rows
        self._flat = (FLAT_ITERATIONS, 1.0)  # iterations, and their gain as a share of `_gain`
        self._coordinates = Coordinates(objective.model, objective.variables)
        resolutions = [epsilon(each.dtype) for each in objective.variables]
        self._probe_step = max(_PROBE_STEP, 100.0 * max(resolutions, default=0.0))
        self._phases = [self._coordinates.entries(variables) for variables in phases]
        self._active = self._phases[0]
        self._ends: list[SearchState] = []  # from earlier starts
        self._state = SearchState(self._coordinates.values())
        # 1 and the best of `_ends`, or 0.
        self._best_end = tf.Variable(np.zeros(1 + len(self._state.best)), trainable=False)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Variables besides the parameters that a resumed run needs, by name."""
        return {**self._objective.state, "best end": self._best_end}

    @property
    def _gain(self) -> float:
        """The gain of `FLAT_ITERATIONS` iterations, in nats, below which the objective is flat."""
        return self._options.tolerance * self._num_rows

    def restore(self) -> None:
        """Assign the best parameters to the variables."""
        self._coordinates.assign(self._best_state().best)

    def __call__(self) -> Outcome:
        """Minimize the loss; the variables end at the best parameters evaluated."""
        return self._recorded(self._from_starts)

    def go_on(self, num_rows: int, iterations: int) -> Outcome:
        """
        Minimize the loss of more rows, in the last phase, from the end of a search on fewer.

        :param iterations: the search ends after this many iterations whose mean gain is below the
            limit of the first search, in which `FLAT_ITERATIONS` are counted.
        """
        self._num_rows = num_rows
        self._flat = (iterations, iterations / FLAT_ITERATIONS)
        self._active = self._phases[-1]
        self._objective.restart()
        return self._recorded(self._from_present)

    def _recorded(self, search: Callable[[], Outcome]) -> Outcome:
        """Search, and record the end; the variables end at the best parameters evaluated."""
        self._ends.clear()  # of an interrupted search, perhaps on other rows
        self._state = SearchState(self._coordinates.values())
        outcome = Outcome(CONVERGED, "")
        try:
            outcome = search()
        except _Interrupted:
            self.restore()
        if self._best_state().loss == np.inf:  # training ended before the first evaluation
            self._evaluate(self._state.best[self._active])
        objective = -self._best_state().loss
        # A line search that failed may have found better parameters, too.
        has_gained = self._history.objective[-1:] < [objective]
        self._history.record_last(objective, again=has_gained)
        return self._history.stopped or outcome

    def _best_state(self) -> SearchState:
        """Return the state of least loss, of the current search and the ends of earlier ones."""
        return min([self._state, *self._ends], key=attrgetter("loss"))

    def _from_starts(self) -> Outcome:
        """Train all phases from the best start or, in a resumed run, from its best parameters."""
        history = self._history
        is_cheap = self._objective.trial_iterations > 0
        may_ignore_inputs = is_cheap
        number = 1 + (self._options.n_restarts or 0)
        if history.iterations > 0:  # resumed from a checkpoint
            outcome = self._best_of(self._known_ends())
        else:
            ranked = self._ranked_starts()
            self._state = ranked[0]  # the loss of the last start may be inaccurate
            self._stop_if_interrupted()
            ends = [each.best for each in ranked]
            outcome = self._best_of(ends[:number])
            if is_cheap and not history.is_over:
                may_ignore_inputs = self._ignores_inputs()
            if may_ignore_inputs and not history.is_over:
                # Few points in their first places may explain nothing: train them, too, from the
                # best start.
                others = [ranked[0].start]
                if len(self._phases) == 1:
                    others = ends[number : number + 1]
                self._active = self._phases[-1]
                outcome = self._best_of(others, outcome)
        for active in self._phases[1:]:
            history.begin_phase()
            if history.is_over:
                break
            self._active = active
            self._state.recent.clear()
            before = outcome
            outcome = self._search()
            # The search is stuck at a kink of the kernel: rows at inducing points.
            if before.status == CONVERGED and self._state.is_stuck:
                reason = f"{before.reason} The inducing points stay. {outcome.reason}"
                outcome = Outcome(CONVERGED, reason)
        # If the inputs explained something before, later gains do not change that.
        if may_ignore_inputs and outcome.status == CONVERGED and self._ignores_inputs():
            outcome = Outcome(CONVERGED, f"{outcome.reason} {_IGNORED}")
        return outcome

    def _known_ends(self) -> list[AnyNDArray]:
        """
        Return where a resumed run begins: its best parameters and the best end of earlier starts.

        The better one comes first, so that it is kept if the run is stopped again.
        """
        present = self._state.best
        has_end, *end = self._best_end.numpy()
        if not has_end:
            return [present]
        for known in (present, np.array(end)):
            self._go_to(known)
            self._ends.append(self._state)
        return [each.best for each in self._ranked_ends()]

    def _from_present(self) -> Outcome:
        """Train from the present parameters; evaluate the loss there if no iteration remains."""
        if self._history.is_over:
            self._evaluate(self._state.best[self._active])
        return self._search()

    def _best_of(self, begins: Sequence[AnyNDArray], outcome: Outcome | None = None) -> Outcome:
        """Search from each start; go to the best end. With `outcome`, the current one competes."""
        outcomes = []
        self._ends = []
        if outcome is not None:
            outcomes.append(outcome)
            self._ends.append(self._state)
        for begin in begins:
            if outcomes:
                self._objective.restart()
            self._state = SearchState(begin)
            self._history.begin_phase()
            outcomes.append(self._search())
            self._ends.append(self._state)
            best = min(self._ends, key=attrgetter("loss"))
            self._best_end.assign([1.0, *best.best])
        best = min(self._ends, key=attrgetter("loss"))
        outcome = outcomes[self._ends.index(best)]
        self._ends.clear()
        self._best_end.assign(np.zeros(1 + len(best.best)))
        if best is not self._state:
            self._go_to(best.best)
            self._history.record_last(-self._state.loss, again=True)
        return outcome

    def _ignores_inputs(self) -> bool:
        """Return whether the evidence is no better than if f were constant or noise."""
        before = self._state
        self._coordinates.assign(before.best)
        found = self._negative_evidence()
        losses = [np.inf]
        try:
            for values in without_inputs(self._objective.model, self._coordinates):
                with suppress(*FAILURES):
                    self._go_to(values)
                    losses.append(self._negative_evidence())
        finally:  # also after Ctrl-C
            self._state = before
            self._coordinates.assign(before.best)
        return min(losses) - found < 10.0 * self._gain

    def _negative_evidence(self) -> float:
        """Return the best loss without the prior; the variables must have the best values."""
        return self._state.loss + self._objective.training_step.log_prior_density()

    @property
    def _best_gradient(self) -> AnyNDArray:
        """Return the gradient at the best parameters, in the active coordinates."""
        return self._state.gradient[self._active]

    @property
    def _is_over(self) -> bool:
        """True if training is over, or the last iterations gained too little."""
        return self._history.is_over or bool(self._flatness())

    def _flatness(self) -> str:
        """Return the small gain of the last iterations, in words; "" if they gained enough."""
        recent = self._state.recent
        limits = [self._flat]
        is_exact = self._objective.is_exact
        most = _SECANTS
        if not is_exact and self._objective.model.num_latent_gps > 1:
            most = _MOST_COORDINATES
        if self._active is self._phases[-1] and len(self._best_gradient) <= most:
            limits.append((_STILL_ITERATIONS, _STILL_SHARES[is_exact]))
        for number, share in limits:
            least = share * self._gain
            if len(recent) <= number:
                continue
            first, middle, last = (recent[-1 - back] for back in (number, number // 2, 0))
            leaves_saddle = middle - last > max(2.0 * (first - middle), 0.25 * least)
            if first - last < least and not leaves_saddle:
                return f"the last {number} iterations gained less than {least:.2g} nats"
        return ""

    def _go_to(self, values: AnyNDArray) -> None:
        """Begin at these coordinates, far from the last ones, and evaluate the loss there."""
        self._state = SearchState(values)
        self._objective.restart()
        self._evaluate(values[self._active])

    def _ranked_starts(self) -> list[SearchState]:
        """Return the starts, each with the end of a few iterations, the best first."""
        number = self._objective.trial_iterations
        given, *others = starts(
            self._objective.model, self._coordinates, self._options.n_restarts, self._options.seed
        )
        if not (others and self._objective.waits):
            return [self._state]
        self._evaluate(given[self._active])
        for start in (given, *others):
            try:
                if start is not given:
                    self._go_to(start)
                if number:
                    self._minimize(min(number, self._options.steps))
                if start is given or self._objective.is_accurate:
                    self._ends.append(self._state)
            except FAILURES:
                self._objective.check_data()
        return self._ranked_ends()

    def _ranked_ends(self) -> list[SearchState]:
        """Return the ends, the best first, and forget the last one: the next search is another."""
        self._objective.restart()
        return sorted(self._ends, key=attrgetter("loss"))

    def _minimize(
        self, max_iterations: int, callback: Callable[[OptimizeResult], None] | None = None
    ) -> OptimizeResult:
        """Minimize over the active coordinates, from the best ones."""
        start = self._state.best[self._active]
        reach = np.where(self._coordinates.are_logs[self._active], _REACH, np.inf)
        least = start - reach
        # If all had bounds, SciPy's first step would be as long as the gradient.
        least[:1] = -np.inf
        # Idle BLAS threads spin and slow down TensorFlow.
        with one_thread():
            return minimize(
                self._evaluate,
                start,
                method="L-BFGS-B",
                jac=True,
                bounds=Bounds(least, start + reach),
                callback=callback,
                options={
                    "maxiter": max_iterations,
                    "maxfun": 4 * self._options.steps + 20,
                    "maxcor": _SECANTS,
                },
            )

    def _after_iteration(self, intermediate_result: OptimizeResult) -> None:
        """Return to the best parameters and record them; the name of the argument is SciPy's."""
        state = self._state
        self._coordinates.assign(state.best)
        self._objective.restore_best()
        objective = None
        if self._history.will_record:
            objective = -state.loss
        self._history.step(objective)
        state.recent.append(state.loss)
        if self._is_over:
            raise StopIteration

    def _search(self) -> Outcome:
        """Restart L-BFGS from its last point until a restart gains nothing."""
        # A search may end too early if it was resumed from a checkpoint, or if the loss is noisy
        # because sites converge to a tolerance. The last restart has the smallest tolerance.
        state = self._state
        state.is_stuck = False
        gained = True
        result = OptimizeResult()
        while gained and not self._is_over:
            before = state.loss
            state.failure = state.any_failure = ""
            left = self._options.steps - self._history.iterations
            result = self._minimize(left, self._after_iteration)
            self._coordinates.assign(state.best)
            least = 1e-6 * (1.0 + abs(state.loss))
            if not self._objective.is_exact:  # further searches are expensive
                least = max(least, 0.1 * self._gain)
            gained = not before - state.loss < least  # else stop searching
            if (
                self._active is self._phases[-1]
                and not self._is_over
                and self._objective.tighten(fully=not gained, gain=self._gain)
            ):
                gained = self._evaluate_again()  # a tighter tolerance may still improve
        return self._outcome(result)

    def _evaluate_again(self) -> bool:
        """Evaluate the loss at the best parameters, at a tighter tolerance; return success."""
        state = self._state
        state.recent.clear()
        before = state.loss
        state.loss = np.inf  # loose sites may underestimate it
        try:
            self._evaluate(state.best[self._active])
        except _Interrupted:
            state.loss = before
            raise
        except FAILURES as error:
            state.loss = before
            state.failure = reason_of(error)
            self._objective.restore_best()
            return False
        return True

    def _evaluate(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Return loss and gradient; after a failure a larger loss, to make the search backtrack."""
        state = self._state
        values = self._values_at(x)
        # SciPy evaluates the start of a search again.
        if state.loss < np.inf and np.array_equal(values, state.best):
            return state.loss, self._best_gradient
        try:
            loss, gradient = self._loss_and_gradient(values)
        except FAILURES as error:
            if state.loss == np.inf:
                raise
            state.failure = state.any_failure = reason_of(error)
            self._objective.restore_best()
            return state.loss + 1.0 + abs(state.loss), np.zeros_like(x)
        if loss < state.loss:
            state.best = values
            state.loss = loss
            state.gradient = gradient
            state.failure = ""
            self._objective.mark_best()
        return loss, gradient[self._active]

    def _values_at(self, x: AnyNDArray) -> AnyNDArray:
        """Return all coordinates: x for the active ones, the best for the others."""
        values = self._state.best.copy()
        values[self._active] = x
        return values

    def _loss_and_gradient(self, values: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Assign all coordinates; return loss and gradient in them, or raise one of `FAILURES`."""
        self._stop_if_interrupted()
        self._coordinates.assign(values)
        try:
            loss, derivatives = self._objective.evaluate(self._history.iterations)
            arrays = [each.numpy() for each in derivatives]
            gradient = self._coordinates.gradient(values, arrays)
            if not (np.isfinite(loss) and np.isfinite(gradient[self._active]).all()):
                raise FloatingPointError(NOT_FINITE)
        except FAILURES:
            self._objective.check_data()
            raise
        return loss, gradient

    def _stop_if_interrupted(self) -> None:
        """Raise `_Interrupted` after Ctrl-C, if any parameters have been evaluated."""
        if self._history.interrupted() and self._best_state().loss < np.inf:
            raise _Interrupted

    def _probe(self, steps: Sequence[AnyNDArray]) -> list[tuple[float, AnyNDArray]]:
        """
        Return loss and active gradient after each of these steps from the best parameters, and go
        back to these: a better loss is not recorded. Raise one of `FAILURES` if a step fails.
        """
        best = self._state.best
        found = []
        try:
            for step in steps:
                loss, gradient = self._loss_and_gradient(self._values_at(best[self._active] + step))
                found.append((loss, gradient[self._active]))
        finally:
            self._coordinates.assign(best)
            self._objective.restore_best()
        return found

    def _rounding(self) -> tuple[float, AnyNDArray]:
        """
        Estimate the standard deviations of rounding errors of the loss and the active gradient from
        third differences along the gradient, since smooth functions have almost none: the variance
        is 3!²/6! of their mean square (Moré and Wild 2011, eq. 2.5).
        """
        step = self._probe_step * self._best_gradient / np.linalg.norm(self._best_gradient)
        places = np.arange(_PROBES) - _PROBES // 2
        losses, gradients = zip(*self._probe([place * step for place in places]), strict=True)
        of_loss, of_gradient = (
            np.sqrt(np.mean(np.diff(values, 3, axis=0) ** 2, axis=0) / 20.0)
            for values in (losses, gradients)
        )
        return float(of_loss), of_gradient

    def _promised_gain(self, rounding: float, of_gradient: AnyNDArray) -> float:
        """Return the decrease in nats that a parabola along the gradient promises at distance 1."""
        gradient = self._best_gradient
        # Derivatives may be rounding errors, too. Their deviations are estimated from six
        # overlapping differences: rounding exceeds 5 of them in one case of 500, 3 in one of 46.
        if 10.0 * rounding > self._gain:
            gradient = np.where(np.abs(gradient) > 5.0 * of_gradient, gradient, 0.0)
        slope = float(np.linalg.norm(gradient))
        if slope == 0.0:
            return 0.0
        # A smooth loss would gain slope²/(2 curvature) > 10 rounding, and L-BFGS would see it: this
        # loss has a kink.
        if slope**2 > 20.0 * rounding * _MAX_CURVATURE * self._num_rows:
            return 0.5 * slope**2
        descent = -gradient / slope
        [(_, there)] = self._probe([_CURVATURE_STEP * descent])
        curvature = float(descent @ (there - gradient)) / _CURVATURE_STEP
        return slope * slope / max(2.0 * curvature, slope)

    def _outcome(self, result: OptimizeResult) -> Outcome:
        """Return the outcome of the last search."""
        state = self._state
        if self._history.is_over:
            reason = "L-BFGS: max_iterations was reached."
            if state.failure:
                reason += f" The last step failed: {state.failure}"
            return Outcome(LIMIT, reason)
        if state.failure:  # no later evaluation was better, although SciPy reports convergence
            failed = f"no step from the last good parameters succeeded: {state.failure.rstrip('.')}"
            return Outcome(FAILED, f"L-BFGS: {failed}. {_ADVICE}")
        if flatness := self._flatness():
            return Outcome(CONVERGED, f"L-BFGS: the objective is flat: {flatness}.")
        message = f"L-BFGS: {result.message}"
        slope = float(np.abs(self._best_gradient).max())
        if slope <= max(1e-2, self._gain) or (result.success and not state.any_failure):
            if "ABNORMAL" in result.message:
                message = f"L-BFGS: {_NO_STEP}"
            return Outcome(CONVERGED, f"{message}.")
        # The line search failed, or steps left the domain of the loss: SciPy shortens these and
        # reports convergence. The parameters are an optimum, up to rounding and tolerance, if the
        # slope promises no larger gain.
        failed = "L-BFGS: a step failed: "
        try:
            rounding, of_gradient = self._rounding()
            promised = self._promised_gain(rounding, of_gradient)
        except FAILURES as error:  # at an edge of the domain, where neither is known
            return Outcome(FAILED, f"{failed}{state.any_failure or reason_of(error)} {_ADVICE}")
        hidden = f"{_NO_STEP}, about {rounding:.2g} nats"
        if rounding > _MAX_ROUNDING * self._num_rows:
            hidden += f", more than {_MAX_ROUNDING:g} per row"
            return Outcome(FAILED, f"L-BFGS: {hidden}. {_ADVICE}")
        if promised <= max(self._gain, 10.0 * rounding):
            return Outcome(CONVERGED, f"L-BFGS: {hidden}.")
        if state.any_failure:
            return Outcome(FAILED, f"{failed}{state.any_failure} {_ADVICE}")
        state.is_stuck = result.nit == 0
        found = f"{_NO_STEP}, although its slope is {slope:.2g} and promises {promised:.2g} nats"
        return Outcome(FAILED, f"L-BFGS: {found}. {_ADVICE}")
