"""Training of models with sites: updates of the sites alternate with steps of the hyperparameters."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from scipy.optimize import OptimizeResult, minimize
from tqdm import tqdm

from . import validation
from .models.classifier import PEPClassifier
from .sites import SitesStatus
from .sites.gaussian import Site
from .statistics import derivatives

OPTIMISERS = ("lbfgs", "adam")
_GAIN = 1e-6  # of the training loss, relative, for which L-BFGS starts again
# Change of the sites above which an energy means nothing (it may be huge), or one that is a bound is rounding.
_UNSETTLED, _WILD = 0.1, 100.0
_PATIENCE = 10  # times as many sweeps at the first evaluation, which has nothing to go back to
_FAILURES = (tf.errors.InvalidArgumentError, FloatingPointError)

Report = Callable[[int, float], None]
"""Called after an iteration with its number, from 1, and the last log evidence; in minibatch training once an epoch."""


@dataclass(frozen=True)
class FitResult:
    """How a training ended."""

    converged: bool
    """Whether the optimiser says that it has converged (Adam never does) and the sites have."""

    message: str
    """Why it stopped."""

    iterations: int
    """Iterations of L-BFGS, or steps of Adam."""

    log_evidence: tuple[float, ...]
    """After every iteration, or every epoch in minibatch training; the last one at the converged sites. Nats."""

    sites: SitesStatus
    """How the last update of the sites ended."""

    seconds: float
    """Wall time."""


def fit(
    model: PEPClassifier,
    *,
    optimiser: str = "lbfgs",
    max_iterations: int = 500,
    learning_rate: float = 0.01,
    batch_size: int | None = None,
    max_sweeps: int = 50,
    tol: float = 1e-5,
    report: Report | None = None,
    progress: bool = False,
) -> FitResult:
    """
    Learn the hyperparameters of a model and converge its sites.

    "lbfgs" converges the sites, from where they were, whenever it evaluates the energy; a step to hyperparameters where
    they stay far from converged is not taken, unless the energy is a bound in any case (alpha = 0). "adam" updates them
    once a step and goes on without waiting; with `batch_size` both the sites and the derivatives are those of a
    minibatch, so that a step costs O(n M² + M³) (Bui, Yan and Turner 2017, sec. 3.9), and the sums over all rows are
    taken once an epoch.
    In the end the sites are converged. Where a matrix cannot be factorised, or anything is not finite, training stops,
    the last good hyperparameters come back, and the message says why.

    :param model: its trainable variables are trained.
    :param optimiser: "lbfgs" (SciPy) or "adam".
    :param max_iterations: iterations, at most; steps of Adam, exactly.
    :param learning_rate: Adam's.
    :param batch_size: rows of a minibatch (Adam); None: all rows.
    :param max_sweeps: updates of the sites in a row, at most: at each evaluation; ten times as many at the first one of
        L-BFGS, and four times in the end.
    :param tol: when the sites have converged; see :meth:`PEPClassifier.update_sites`.
    :param report: called after iterations.
    :param progress: show a progress bar.
    :raises ValueError: naming the argument that cannot be used.
    """
    if not isinstance(model, PEPClassifier):
        raise ValueError(f"model must be a PEPClassifier, got {type(model).__name__}; train others with gpflow.")
    if optimiser not in OPTIMISERS:
        raise ValueError(f"optimiser must be one of {', '.join(map(repr, OPTIMISERS))}, got {optimiser!r}.")
    if batch_size is not None and optimiser != "adam":
        raise ValueError(f'batch_size must be None with optimiser="{optimiser}", got {batch_size!r}.')
    max_iterations = validation.positive_integer(max_iterations, "max_iterations")
    learning_rate = validation.positive_number(learning_rate, "learning_rate")
    began = time.perf_counter()
    with tqdm(total=max_iterations, unit="it", disable=not progress, mininterval=0.5) as bar:
        training = _Training(model, max_sweeps, tol, _Trace(report, bar))
        if optimiser == "lbfgs":
            converged, message = training.lbfgs(max_iterations)
        elif batch_size is None:
            converged, message = training.adam(max_iterations, learning_rate)
        else:
            batch_size = validation.positive_integer(batch_size, "batch_size")
            converged, message = training.minibatch_adam(max_iterations, learning_rate, batch_size)
        try:
            status = training.converge_sites(4 * max_sweeps)
        except _FAILURES:  # the sites of other hyperparameters may be of no use
            model.reset_sites()
            status = training.converge_sites(4 * max_sweeps)
        training.trace.values.append(status.log_evidence)
    if not status.converged:
        message += f" The sites have not converged: the change is {status.change:.1e} after {status.sweeps} sweeps."
    return FitResult(
        converged and status.converged,
        message,
        training.trace.iterations,
        tuple(training.trace.values),
        status,
        time.perf_counter() - began,
    )


class _Trace:
    """Keeps what happened, and tells."""

    def __init__(self, report: Report | None, bar: Any):
        self.iterations = 0
        self.values: list[float] = []
        self._report, self._bar = report, bar

    def step(self) -> None:
        """An iteration is done."""
        self.iterations += 1
        self._bar.update()

    def evidence(self, value: float) -> None:
        """The log evidence after it."""
        self.values.append(value)
        self._bar.set_postfix_str(f"log evidence {value:.6g}", refresh=False)
        if self._report is not None:
            self._report(self.iterations, value)


class _Training:
    """The three ways to train."""

    def __init__(self, model: PEPClassifier, max_sweeps: int, tol: float, trace: _Trace):
        self.model, self.trace = model, trace
        self._max_sweeps = validation.positive_integer(max_sweeps, "max_sweeps")
        self._tol = validation.positive_number(tol, "tol")
        self._variables = model.trainable_variables
        self._good = self._values()

    def converge_sites(self, max_sweeps: int) -> SitesStatus:
        """Update the sites; that they have not converged is in the result."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The sites have not converged")
            return self.model.update_sites(max_sweeps=max_sweeps, tol=self._tol)

    def lbfgs(self, max_iterations: int) -> tuple[bool, str]:
        """SciPy's L-BFGS-B on the energy at converged sites."""
        if not self._variables:
            return True, "Nothing is trainable."
        pack, unpack = gpflow.optimizers.Scipy.pack_tensors, gpflow.optimizers.Scipy.unpack_tensors
        evaluate = tf.function(self._loss_and_gradients, autograph=False)
        best = _Best()

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            self._assign(unpack(self._variables, tf.constant(x, self._variables[0].dtype)))
            try:
                status = self.converge_sites(self._max_sweeps * (_PATIENCE if best.sites is None else 1))
                if status.change > (_WILD if self.model.is_lower_bound else _UNSETTLED):
                    raise FloatingPointError(f"the sites are far from converged: the change is {status.change:.1e}.")
                value, gradients = evaluate()
                _check_finite(value, *gradients)
            except _FAILURES as error:
                if best.sites is None:
                    raise
                best.failure = _reason(error)  # a step too far: the line search takes a shorter one
                self.model.sites.assign(best.sites)
                return best.loss + 1.0 + abs(best.loss), np.zeros_like(x)
            if float(value) < best.loss:
                best.loss, best.failure, self._good = float(value), "", self._values()
                best.sites = self.model.sites.values()
            return float(value), pack(gradients).numpy().astype(np.float64)

        def callback(intermediate_result: OptimizeResult) -> None:  # SciPy goes by the argument's name
            self.trace.step()
            self.trace.evidence(-best.loss)
            if self.trace.iterations >= max_iterations:
                raise StopIteration

        with self._restoring() as failure:
            # The sites are converged to a tolerance, and what they leave of noise may end a search too early: it starts
            # again from where it was until that gains nothing.
            gained = True
            while gained and self.trace.iterations < max_iterations:
                previous, best.failure = best.loss, ""
                start = pack(self._variables).numpy().astype(np.float64)
                options = {"maxiter": max_iterations - self.trace.iterations, "maxfun": 4 * max_iterations + 20}
                result = minimize(loss, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
                self._assign(self._good)
                gained = not previous - best.loss < _GAIN * (1.0 + abs(best.loss))
            limit = self.trace.iterations >= max_iterations
            if best.failure and not limit:  # and none after it was better; SciPy thinks that it has converged
                return False, f"L-BFGS: no step from the last good hyperparameters succeeded. {best.failure}"
            message = f"L-BFGS: {'the limit of iterations was reached' if limit else result.message}."
            if best.failure:
                message += f" The last step failed: {best.failure}"
            return not limit and bool(result.success) and not best.failure, message
        return False, failure[0]

    def adam(self, steps: int, learning_rate: float) -> tuple[bool, str]:
        """All rows: one update of the sites, one step of the hyperparameters."""
        optimiser = tf_keras.optimizers.Adam(learning_rate)
        optimiser.build(self._variables)
        evaluate = tf.function(self._loss_and_gradients, autograph=False)
        with self._restoring() as failure:
            for _ in range(steps):
                self.model.update_sites_once()
                value, gradients = evaluate()
                _check_finite(value, *gradients)
                self._good = self._values()
                optimiser.apply_gradients(zip(gradients, self._variables, strict=True))
                self.trace.step()
                self.trace.evidence(-float(value))
            return False, f"Adam: {steps} steps, as asked."
        return False, failure[0]

    def minibatch_adam(self, steps: int, learning_rate: float, batch_size: int) -> tuple[bool, str]:
        """Some rows: their sites are updated, q with them, and the hyperparameters from them."""
        optimiser = tf_keras.optimizers.Adam(learning_rate)
        optimiser.build(self._variables)
        epoch = 0
        with self._restoring() as failure:
            while self.trace.iterations < steps:
                batches = self.model.minibatches(batch_size, seed=epoch)
                epoch += 1
                for gradients in batches:
                    _check_finite(*gradients)
                    self._good = self._values()
                    optimiser.apply_gradients(zip(gradients, self._variables, strict=True))
                    self.trace.step()
                    if self.trace.iterations == steps:
                        break
                self.trace.evidence(-float(self.model.training_loss()))
            return False, f"Adam: {steps} steps, as asked."
        return False, failure[0]

    def _loss_and_gradients(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables)
            loss = self.model.training_loss()
        return loss, list(derivatives(tape, loss, self._variables))

    def _values(self) -> list[tf.Tensor]:
        return [tf.identity(variable) for variable in self._variables]

    def _assign(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)

    @contextmanager
    def _restoring(self) -> Iterator[list[str]]:
        """Where anything fails inside, the last good hyperparameters come back and the reason is in the list."""
        reason: list[str] = []
        try:
            yield reason
        except _FAILURES as error:
            self._assign(self._good)
            self.model.reset_sites()  # they are those of what failed
            reason.append(f"Stopped, and the last good hyperparameters restored: {_reason(error)}")
        except BaseException:
            self._assign(self._good)
            raise


@dataclass
class _Best:
    """The best evaluation of a search, and the last failure after it."""

    loss: float = np.inf
    sites: Site | None = None
    failure: str = ""


def _reason(error: BaseException) -> str:
    """What an error says, without TensorFlow's account of where."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    found = re.search(r"assertion failed: \[(.*?)\]\s*(\n|$)", text, re.DOTALL)
    return found.group(1) if found else text


def _check_finite(*values: tf.Tensor) -> None:
    if not all(bool(tf.reduce_all(tf.math.is_finite(value))) for value in values):
        raise FloatingPointError("the training loss or its derivatives are not finite.")
