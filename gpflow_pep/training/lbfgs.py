"""SciPy's L-BFGS-B, whose search ends at the best parameters whatever happens on the way."""

from dataclasses import dataclass, field

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.optimize import OptimizeResult, minimize

from .course import Course
from .failures import check_finite, reason_of, restoring
from .problems import FAILURES, Problem
from .result import CONVERGED, FAILED, LIMIT, Ending

_GAIN = 1e-6  # of the training loss, relative, for which it starts again


@dataclass
class _Best:
    """The best evaluation of a search, and the last failure after it."""

    values: list[tf.Tensor]
    loss: float = np.inf
    failure: str = field(default="")


def lbfgs(problem: Problem, course: Course, max_iterations: int) -> Ending:
    """Minimise; the variables end where the loss was least."""
    variables = problem.variables
    if not variables:
        return Ending(CONVERGED, "Nothing is trainable.")
    pack, unpack = gpflow.optimizers.Scipy.pack_tensors, gpflow.optimizers.Scipy.unpack_tensors
    best = _Best([tf.identity(variable) for variable in variables])

    def restore() -> None:
        for variable, value in zip(variables, best.values, strict=True):
            variable.assign(value)

    def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        for variable, value in zip(variables, unpack(variables, tf.constant(x, variables[0].dtype)), strict=True):
            variable.assign(value)
        try:
            value, slopes = problem.evaluate(course.iterations)
            assert value is not None  # all rows
            check_finite(tf.constant(value), *slopes)
        except FAILURES as error:
            if best.loss == np.inf:
                raise
            best.failure = reason_of(error)  # a step too far: the line search takes a shorter one
            problem.go_back()
            return best.loss + 1.0 + abs(best.loss), np.zeros_like(x)
        if value < best.loss:
            best.loss, best.failure, best.values = value, "", [tf.identity(variable) for variable in variables]
            problem.keep()
        return value, pack(slopes).numpy().astype(np.float64)

    def callback(intermediate_result: OptimizeResult) -> None:  # SciPy goes by the argument's name
        restore()
        problem.go_back()
        course.step(-best.loss if course.will_record else None)
        if course.is_over:
            raise StopIteration

    with restoring(problem, course, restore) as failure:
        # A search may end too early: where the loss has some noise, which sites leave that are converged to a
        # tolerance, or after one that was taken up from a checkpoint. It starts again from where it was until that
        # gains nothing.
        gained = True
        while gained and not course.is_over:
            previous, best.failure = best.loss, ""
            start = pack(variables).numpy().astype(np.float64)
            options = {"maxiter": max_iterations - course.iterations, "maxfun": 4 * max_iterations + 20}
            result = minimize(loss, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
            restore()
            gained = not previous - best.loss < _GAIN * (1.0 + abs(best.loss))
        course.close(-best.loss)
        if course.is_over_early:
            return course.ending
        limit = course.is_over
        if best.failure and not limit:  # and none after it was better; SciPy thinks that it has converged
            return Ending(FAILED, f"L-BFGS: no step from the last good parameters succeeded. {best.failure}")
        reason = f"L-BFGS: {'the limit of iterations was reached' if limit else result.message}."
        if best.failure:
            reason += f" The last step failed: {best.failure}"
        # A second search that found nothing better either began where rounding ends.
        exhausted = not gained and result.nit == 0
        converged = not limit and (bool(result.success) or exhausted) and not best.failure
        return Ending(CONVERGED if converged else LIMIT if limit else FAILED, reason)
    return Ending(FAILED, failure[0])
