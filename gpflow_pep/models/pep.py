"""PEP: power expectation propagation and quantile propagation for any likelihood."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from tensorflow.python.eager import record
from typing_extensions import override

from .. import validation
from ..derivatives import derivatives, once_differentiable
from ..engine import SingleRows, SiteSums, SomeRows, floating_variables
from ..engine.chunks import ROWS_PER_CHUNK
from ..ep import (
    CONVERGED,
    IMPROPER,
    EnergyInputs,
    LatentRows,
    Options,
    ProjectedRows,
    Sites,
    SitesProblem,
    SitesStatus,
    converge,
    energy_derivatives,
    leave_one_out,
    minibatch_objective,
    old_objective,
    project,
    scale_terms,
    sum_sites,
    update_rows,
)
from ..ep.cavity import Site
from ..graphs import compiled, no_autograph
from ..linalg import finite
from ..observations import check_observations
from ..tilted import KL, Projection, TiltedRule, Wasserstein, rule_for
from ..validation import asserted
from .latent_functions import independent_prior, latent_functions
from .lock import lock_of
from .sparse import SparseGP

_KEPT = 2**23  # entries of V = L^-1 Kuf that are kept between sweeps (64 MB); a larger V is recomputed
_ADVICE = "checking parameters, mean function and data for NaN, infinite or overflowing values"
_IMPROPER = (
    "The sites cannot be updated: tilted distributions are not finite, or B not positive definite, even under the "
    "prior. Check data, likelihood and kernel for values that are NaN, infinite or overflowing. At alpha = 0, "
    "E[log p(y|f)] may overflow: try a larger alpha."
)
_NOT_CONVERGED = (
    "the sites have not converged. The objective and the predictions use the sites of the smallest change. Raise "
    "max_sweeps or tol, or lower damping or alpha; see sites_status. (This warning appears once for each model.)"
)


_CHANGED = (
    "Data, alpha, hyperparameters or the old posterior have changed between the objective and its gradient. Take the "
    "gradient first."
)
_ANOTHER_EPOCH = "data must not change within an epoch: call minibatches() again."


class _Posterior(NamedTuple):
    """Converged sites, and quantities computed from them."""

    sites: tf.Tensor
    """[N, 2, C]"""
    slopes: tf.Tensor
    """d1 and d2 of the tilted distributions, [N, 2, C]."""
    L: tf.Tensor
    A: tf.Tensor
    """Of the sites, [C, M, M]."""
    c: tf.Tensor
    """Of the sites, [C, M, 1]."""
    log_evidence: tf.Tensor
    total: SiteSums
    """Of the sites, and of an old posterior if there is one."""


class Surrogate(NamedTuple):
    """A regression problem with its own noise variance in every row."""

    targets: tf.Tensor
    """y, [N, C]."""
    noise_variance: tf.Tensor
    """v, [N, C]."""


class PEP(SparseGP):
    r"""
    Sparse power EP for any likelihood (Bui, Yan and Turner 2017, sec. 3.8), with a Gaussian site for every observation.

        q(u) ∝ p(u) ∏_n t_n(u),   t_n(u) = exp(h_n w_n - τ_n w_n²/2),   w_n = K_nu Kuu⁻¹ u

    The cavity is q without the fraction α of a site. Times p(y_n|f_n)^α it is the tilted distribution. Sites make q
    match the moments of its tilted distributions ("kl"), or those of the Gaussians nearest to them in L2 Wasserstein
    distance ("wasserstein", quantile propagation).

    =====================================  ==========================================================
    alpha = 0                              variational: the optimum of `gpflow.models.SVGP`
    alpha = 1                              EP; with inducing_variable = X, standard EP for a full GP
    a Gaussian likelihood                  :class:`PEPR`, for every alpha and scale
    =====================================  ==========================================================

    Objective, predictions and posterior first update the sites until these have converged, starting from their current
    values. If the fixed point is unique, as it usually is for log-concave likelihoods, the results depend only on
    hyperparameters, data and alpha, and every optimizer and sampler of GPflow and TensorFlow Probability can be used.
    If there are several fixed points, the results depend on the initial sites.

    The gradient is that of the converged energy, exactly for "kl"; for "wasserstein" see
    :meth:`maximum_log_likelihood_objective`. Predictions are differentiable in the inputs, not in the hyperparameters:
    q is held fixed there. :class:`StreamingPEP` is this model for data that arrive in batches.
    """

    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_alpha", "_sites", "_status", "_options", "_warned", *SparseGP._TF_MODULE_IGNORED_PROPERTIES}
    )

    has_sites = True
    """Declared for training: see :class:`gpflow_pep.training.declared.ModelWithSites`."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: Any = 0.5,
        scale: float | Parameter = 1.0,
        projection: str | Projection = "kl",
        tol: float = 1e-6,
        max_sweeps: int = 1000,
        damping: float = 1.0,
        mean_function: MeanFunction | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        :param data: inputs X [N, D] and observations Y [N, P]. Each column has a latent function of its own, with the
            same likelihood; the labels of C classes are one column, with C latent functions.
        :param kernel: any single-output kernel, which the latent functions share, or `SharedIndependent` or
            `SeparateIndependent`.
        :param likelihood: any `ScalarLikelihood` that is twice differentiable in f; robust-max or softmax over several
            classes (:class:`gpflow_pep.likelihoods.MultiClassRobustMax`, GPflow's `MultiClass` and `Softmax`); or one
            of your own (:data:`gpflow_pep.tilted.tilted_rule`).
        :param inducing_variable: Z [M, D], or any inducing variable with ``Kuu`` and ``Kuf`` for the kernel, shared or
            `SeparateIndependentInducingVariables`; X itself for a full GP.
        :param alpha: the power in [0, 1]: a number, or one for each row [N].
        :param scale: m of T-PEP, where f given u has the covariance m D in place of D (Bui and Titsias 2025): a
            positive number, or a `gpflow.Parameter` to learn it. 1 is PEP.
        :param projection: "kl", "wasserstein", or a projection of your own.
        :param tol: convergence tolerance: the largest change of a marginal by an update of its own site, as a fraction
            of the marginal's standard deviation (for the mean) or variance.
        :param max_sweeps: the largest number of sweeps over all rows in one update. A small number, 1 say, trains
            without waiting for convergence (Bui, Yan and Turner 2017, sec. 3.9).
        :param damping: the largest fraction of an update to take, in (0, 1]; the fraction is reduced adaptively.
        :param mean_function: m(x), zero by default.
        :param chunk_size: rows worked on at a time; does not change results beyond rounding.
        :param max_jitter: if Kuu cannot be factorized, raise its jitter tenfold, up to this value, and report it.
        :raises ValueError: naming the argument that cannot be used.
        """
        if not isinstance(likelihood, Likelihood):
            raise ValueError(f"likelihood must be a gpflow Likelihood, got {type(likelihood).__name__}.")
        rule_for(likelihood, projection)  # raises an error for an unsupported pair
        X, Y = self._observed(data, likelihood)
        C = latent_functions(likelihood, Y)
        powers = validation.power(alpha, len(X), "row")
        super().__init__(
            (X, Y),
            kernel,
            likelihood,
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=C,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        self.projection = projection
        self.scale = validation.scale(scale)
        self._alpha = tf.Variable(powers, trainable=False, shape=[None] * powers.ndim, dtype=default_float())
        self._sites = Sites(len(X), C, default_float())
        self._num_rows, self._num_points = len(X), int(self.inducing_variable.num_inducing)
        self._chunks = SingleRows(self._chunk_size)
        self._options = Options(
            tf.Variable(validation.positive_number(tol, "tol"), trainable=False, dtype=default_float()),
            tf.Variable(validation.positive_integer(max_sweeps, "max_sweeps"), trainable=False),
            tf.Variable(validation.fraction(damping, "damping"), trainable=False, dtype=default_float()),
        )
        self._status = tf.Variable([0.0, 0.0, np.inf, np.nan, damping], trainable=False, dtype=default_float())
        self._warned = tf.Variable(False, trainable=False)

    # --- what may be changed -----------------------------------------------------------------------------------------

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
            raise ValueError(f"alpha must stay {kept}, got an array of shape {list(powers.shape)}.")
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

    # --- sites -------------------------------------------------------------------------------------------------------

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
        """Whether the objective is a lower bound of the log evidence: where alpha is 0."""
        return bool(self._is_bound())

    def reset_sites(self) -> None:
        """Make q the prior; the next update starts from there."""
        self._sites.reset(self._num_rows)

    def update_sites(
        self, *, batch_size: int | None = None, report: Callable[[SitesStatus], None] | None = None
    ) -> SitesStatus:
        """
        Update the sites until they have converged, starting from their current values, with hyperparameters fixed.

        Objective and predictions do this themselves. The fraction of an update to take is adaptive. An update that
        makes a cavity improper, or B not positive definite, is rejected. Cost of a sweep: O(N M²).

        :param batch_size: None: parallel sweeps. Otherwise this many sites are updated at a time, in random order, and
            q after each batch, at an extra cost of O(M³) per batch.
        :param report: called with the final status and, with `batch_size`, with the status between sweeps.
        :return: the status: whether the sites have converged, and the log evidence.
        :raises tf.errors.InvalidArgumentError: if tilted distributions are not finite even under the prior.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("update_sites returns a Python object: call it outside of a tf.function.")
        if batch_size is not None:
            size = min(validation.positive_integer(batch_size, "batch_size"), self._num_rows)
            self._update_in_batches(size, report)
        self._converged()
        if report is not None:
            report(self.sites_status)
        return self.sites_status

    def _update_in_batches(self, size: int, report: Callable[[SitesStatus], None] | None) -> None:
        structure, rng, limit = self._current_structure(), np.random.default_rng(0), self.max_sweeps
        try:
            for _ in range(limit):
                self._options.max_sweeps.assign(0)  # only the status
                self._converge(structure)
                if report is not None:
                    report(self.sites_status)
                if self.sites_status.converged:
                    break
                order = tf.constant(rng.permutation(self._num_rows), tf.int32)
                self._sweep_in_batches(structure, order, tf.constant(size))
        finally:
            self._options.max_sweeps.assign(limit)

    def minibatches(self, batch_size: int, *, damping: float = 1.0, seed: int = 0) -> Iterator[list[tf.Tensor]]:
        """
        Estimate the derivatives of the training loss in the trainable variables from each minibatch of an epoch.

        The minibatch's sites and q are updated first. Hyperparameters may change between minibatches; the contribution
        of the other rows to q follows them at the next call, for the next epoch.

        :param batch_size: rows of a minibatch.
        :param damping: the fraction of an update to take; it is reduced if B would not be positive definite.
        :param seed: seed for the partition.
        :raises ValueError: naming the argument that cannot be used.
        """
        batch_size = validation.positive_integer(batch_size, "batch_size")
        damping = validation.fraction(damping, "damping")
        return self._epoch(batch_size, damping, validation.seed(seed))

    def _epoch(self, batch_size: int, damping: float, seed: int) -> Iterator[list[tf.Tensor]]:
        structure, fraction = self._current_structure(), tf.constant(damping, default_float())
        order = np.random.default_rng(seed).permutation(self._num_rows).astype(np.int32)
        data, sites = [tf.convert_to_tensor(each) for each in self._data], None
        for start in range(0, len(order), batch_size):
            if bool(_differ(data, self._data)):
                raise RuntimeError(_ANOTHER_EPOCH)
            if sites is None or bool(_differ(sites, self._sites.values())):  # predictions may have updated the sites
                A, c = self._sums_of_sites(structure)
            A, c, gradients = self._minibatch(structure, A, c, tf.constant(order[start : start + batch_size]), fraction)
            sites = self._sites.values()
            yield gradients

    @no_autograph
    def surrogate(self) -> Surrogate:
        """
        Return the regression problem whose exact sparse posterior is q(u) (Bui, Yan and Turner 2017, app. H).

        Its likelihood is N(y_n; m(x_n) + K_nu Kuu⁻¹ u, v_n), with targets y_n and noise v_n from the sites, 1/τ_n. A
        site of negative precision has a negative noise variance, one of precision 0 an infinite one and no target.
        """
        precision, linear = tf.unstack(self._converged().sites, axis=1)
        mean = self.mean_function(self._data[0])
        return Surrogate(mean + tf.math.divide_no_nan(linear, precision), 1.0 / precision)

    # --- objective and posterior -------------------------------------------------------------------------------------

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        Return the PEP energy at converged sites, an approximation to log p(y), [].

        Under the KL projection it is stationary in the sites, so that derivatives at fixed sites are total derivatives.
        Under the Wasserstein projection it is not: the gradient is that of the published code (Rasmussen and Williams
        2006, sec. 5.5.2), which treats the sites' moments as matched. It is close to the derivative of the converged
        energy.

        :raises tf.errors.InvalidArgumentError: where a matrix cannot be factorized, or the sites cannot be updated.
        """
        variables = self._floating_variables()
        dependencies = (*variables, *self._other_variables())
        # TensorFlow hands the trainable variables to `gradient`; the others must be arguments.
        fixed = [variable for variable in variables if not variable.trainable]
        structure = self._current_structure()

        @tf.custom_gradient
        def energy(*_: tf.Tensor) -> Any:
            # Gradient tapes record these reads; they do not record the next line.
            before = [tf.convert_to_tensor(variable) for variable in dependencies]
            found = self._converged()

            def gradient(bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
                now = [tf.convert_to_tensor(variable) for variable in dependencies]
                sites = asserted(found.sites, ~_differ(before, now), _CHANGED)
                slopes = self._energy_derivatives(structure, sites, found.slopes, found.A, found.c)
                by_variable = {
                    variable.ref(): slope
                    for variable, slope in zip(self._floating_variables(), once_differentiable(*slopes), strict=True)
                }
                scaled = [
                    bar * by_variable[variable.ref()] if variable.ref() in by_variable else tf.zeros_like(variable)
                    for variable in (*fixed, *variables)
                ]
                return scaled[: len(fixed)], scaled[len(fixed) :]

            return tf.identity(found.log_evidence), gradient

        return finite(energy(*map(tf.convert_to_tensor, fixed)), name="the energy", advice=_ADVICE)

    @check_shapes("return: [N]")
    @no_autograph
    def loo_log_predictive_density(self) -> tf.Tensor:
        """
        Leave-one-out log predictive density of every observation, summed over its outputs, in nats.

        Row n is predicted from q without its site. This approximates the posterior given the other rows, and equals
        it if the likelihood is Gaussian.

        :raises tf.errors.InvalidArgumentError: where q without a site is not proper.
        """
        found = self._converged()
        densities = self._leave_one_out(self._current_structure(), found.sites, found.total)
        return finite(densities, name="the leave-one-out densities", advice=_ADVICE)

    @override
    def _sums(self) -> SiteSums:
        L, A, c = self._converged().total
        return SiteSums(L, A, c) if self.num_latent_gps > 1 else SiteSums(L, A[0], c[0])

    def _converged(self) -> _Posterior:
        """Update the sites, in one thread at a time; warn once if they have not converged."""
        if tf.executing_eagerly():
            with lock_of(self):
                return self._converged_now()
        return self._converged_now()

    def _converged_now(self) -> _Posterior:
        # Traced before recording stops, or the tapes that differentiate a likelihood's density would record nothing.
        structure = self._current_structure()
        converge = self._converge.get_concrete_function(structure)
        with record.stop_recording():  # derivatives are written out
            found: _Posterior = converge(structure)
        if tf.executing_eagerly():
            if not self.sites_status.converged and not self._warned:
                self._warned.assign(True)
                warnings.warn(_NOT_CONVERGED[0].upper() + _NOT_CONVERGED[1:], stacklevel=4)
            return found
        tf.cond((self._status[0] > 0.0) | self._warned, lambda: tf.constant(False), self._print_warning)
        return found

    def _print_warning(self) -> tf.Tensor:
        said = tf.print("gpflow_pep:", _NOT_CONVERGED, output_stream=sys.stderr)
        with tf.control_dependencies([said, self._warned.assign(True)]):
            return tf.constant(True)

    @contextmanager
    def without_warnings(self) -> Iterator[None]:
        """Do not warn of sites that have not converged."""
        before = bool(self._warned)
        self._warned.assign(True)
        try:
            yield
        finally:
            self._warned.assign(before)

    # --- compiled once each: `structure` is a number that changes with the parts that the model is made of -----------

    @compiled
    def _converge(self, structure: int) -> _Posterior:
        prior = self._prior()
        problem = SitesProblem(prior.rows, self._projected(prior), self._rule, prior.L, prior.old, self._is_bound())
        options = Options(*map(tf.convert_to_tensor, self._options))
        fraction = tf.where(self._status[0] > 0.0, options.damping, self._status[4])
        point, sweeps, fraction, ending = converge(
            problem, self._sites.stacked(), options, num_data=self._num_rows, fraction=fraction
        )
        proper = tf.debugging.Assert(ending != IMPROPER, [_IMPROPER])
        log_evidence = point.log_evidence + prior.terms
        is_converged = tf.cast(tf.equal(ending, CONVERGED), point.change.dtype)
        status = [is_converged, tf.cast(sweeps, point.change.dtype), point.change, log_evidence, fraction]
        with tf.control_dependencies([proper]):
            precision, linear = tf.unstack(point.sites, axis=1)
            assigned = [
                self._sites.precision.assign(precision),
                self._sites.linear.assign(linear),
                self._status.assign(tf.stack(status)),
            ]
        with tf.control_dependencies(assigned):
            A, c = tf.identity(point.A), tf.identity(point.c)
        total = SiteSums(prior.L, A, c).with_old(prior.old)
        return _Posterior(point.sites, point.slopes, prior.L, A, c, log_evidence, total)

    @compiled(reduce_retracing=True)
    def _energy_derivatives(
        self, structure: int, sites: tf.Tensor, slopes: tf.Tensor, A: tf.Tensor, c: tf.Tensor
    ) -> list[tf.Tensor]:
        variables, of_likelihood = self._floating_variables(), floating_variables(self.likelihood)
        return energy_derivatives(self._prior, self._rule, sites, slopes, (A, c), variables, of_likelihood)

    @compiled(reduce_retracing=True)
    def _leave_one_out(self, structure: int, sites: tf.Tensor, sums: SiteSums) -> tf.Tensor:
        prior = self._prior()
        return leave_one_out(prior.rows, self._projected(prior), self._rule, sites, sums.posterior())

    @compiled
    def _sums_of_sites(self, structure: int) -> tuple[tf.Tensor, tf.Tensor]:
        prior = self._prior()
        return sum_sites(prior.rows, self._projected(prior), self._sites.stacked(), prior.L)

    @compiled(reduce_retracing=True)
    def _sweep_in_batches(self, structure: int, order: tf.Tensor, size: tf.Tensor) -> None:
        prior, damping = self._prior(), tf.convert_to_tensor(self._options.damping)
        start = sum_sites(prior.rows, self._projected(prior), self._sites.stacked(), prior.L)

        def step(first: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
            sums = self._updated(prior, SiteSums(prior.L, A, c), order[first : first + size], damping)
            return first + size, sums.A, sums.c

        tf.while_loop(lambda first, *_: first < tf.size(order), step, (tf.constant(0), *start), parallel_iterations=1)

    @compiled(reduce_retracing=True)
    def _minibatch(
        self, structure: int, A: tf.Tensor, c: tf.Tensor, indices: tf.Tensor, damping: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        variables = self.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            prior = self._prior()
            with tape.stop_recording():
                sums = self._updated(prior, SiteSums(prior.L, A, c), indices, damping)
                q = sums.with_old(prior.old).posterior()
            with tf.control_dependencies([sums.A]):  # the sites of the minibatch have been updated
                site = Site(*(tf.transpose(tf.gather(v, indices)) for v in (self._sites.precision, self._sites.linear)))
                batch = self._rows(indices)
                projected = project(prior.L, batch(tf.constant(0), *batch.inputs), prior.scale)
                objective = minibatch_objective(batch, projected, self._rule, site, q, self.num_data)
            loss = -objective - prior.terms - self.log_prior_density()
            if prior.old is not None:
                loss -= old_objective(prior.old, q)
        return sums.A, sums.c, list(derivatives(tape, loss, variables))

    def _updated(self, prior: EnergyInputs, sums: SiteSums, indices: tf.Tensor, damping: tf.Tensor) -> SiteSums:
        """Update the sites of some rows."""
        rows = self._rows(indices)
        return update_rows(rows, indices, self._rule, self._sites, sums, prior.old, prior.scale, damping)

    def _prior(self) -> EnergyInputs:
        Kuu = self._inducing_covariance()
        L = self._factorize(Kuu)
        alpha, scale = self._checked_alpha(), tf.convert_to_tensor(self.scale)
        terms = scale_terms(alpha, scale, self.num_data, self.num_latent_gps)
        return EnergyInputs(self._rows(), Kuu, L, scale, self._old_site(L, alpha), terms)

    def _rows(self, indices: tf.Tensor | None = None) -> LatentRows:
        """All rows, or some in one chunk."""
        one_chunk = self._is_one_chunk() if indices is None else True
        chunks, alpha = self._chunks, self._checked_alpha()
        data: Any = self._checked_data()
        if indices is not None:
            chunks = SomeRows(indices)
            data = tuple(tf.gather(values, indices) for values in data)
            alpha = alpha if alpha.shape.rank == 0 else tf.gather(alpha, indices)
        return LatentRows(
            data,
            chunks,
            alpha,
            self.kernel,
            self.inducing_variable,
            self.mean_function,
            self.num_latent_gps,
            is_one_chunk=one_chunk,
        )

    def _checked_data(self) -> RegressionData:
        """Return the data; raise an error if X, Y and the sites differ in their number of rows."""
        X, Y = (tf.convert_to_tensor(values) for values in self._data)
        rows = tf.shape(X)[0]
        same = tf.equal(rows, tf.shape(Y)[0]) & tf.equal(rows, tf.shape(self._sites.precision)[0])
        message = "X, Y and sites have different numbers of rows: set model.data = (X, Y) instead"
        return validation.asserted(X, same, message), Y

    def _projected(self, prior: EnergyInputs) -> ProjectedRows:
        return ProjectedRows(prior.rows, prior.L, prior.scale, keep=self._keeps_projections())

    def _is_one_chunk(self) -> bool:
        return self._num_rows <= (self._chunk_size or ROWS_PER_CHUNK)

    def _keeps_projections(self) -> bool:
        return self._num_rows * self._num_points * self.num_latent_gps <= _KEPT

    @property
    def _rule(self) -> TiltedRule:
        return rule_for(self.likelihood, self.projection)

    def _checked_alpha(self) -> tf.Tensor:
        return validation.checked_power(self._alpha)

    def _is_bound(self) -> tf.Tensor:
        projection = self.projection
        zero = projection in ("kl", "wasserstein") or isinstance(projection, KL | Wasserstein)
        return tf.reduce_all(tf.equal(self._alpha, 0.0)) & zero

    def _floating_variables(self) -> tuple[tf.Variable, ...]:
        """Return the variables that the energy is differentiated with respect to."""
        scale = [self.scale] if isinstance(self.scale, Parameter) else []  # a tensor in a frozen model
        return floating_variables(self.kernel, self.inducing_variable, self.mean_function, self.likelihood, *scale)

    def _other_variables(self) -> tuple[tf.Variable, ...]:
        """Return the other variables that the energy depends on."""
        return *self._data, self._alpha, *self._old_variables()

    # --- data --------------------------------------------------------------------------------------------------------

    @override
    def _parts(self) -> tuple[tf.Module, ...]:
        return *super()._parts(), self.scale

    @override
    def _settings(self) -> tuple[Any, ...]:
        projection = self.projection if isinstance(self.projection, str) else id(self.projection)
        return *super()._settings(), projection, self._is_one_chunk(), self._keeps_projections()

    @staticmethod
    def _observed(data: Any, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        """Check that the likelihood accepts the pair (X, Y), and return it as arrays."""
        X, Y = validation.regression_data(data)
        check_observations(likelihood, Y)
        return X, Y

    @override
    def _checked_prior(
        self, kernel: Kernel, inducing_variable: InducingPointsLike, num_inputs: int, num_latent_gps: int
    ) -> InducingVariables:
        return independent_prior(kernel, inducing_variable, num_inputs, num_latent_gps)

    @override
    def _validated(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        return self._observed(data, self.likelihood)

    @override
    def _replacement(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        X, Y = super()._replacement(data)
        if self._alpha.shape.rank == 1 and len(X) != self._num_rows:
            raise ValueError(
                f"data must keep {self._num_rows} rows, since each has an alpha of its own, got {len(X)} rows."
            )
        return X, Y

    @override
    def _new_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        self._num_rows, self._num_points = len(X), int(self.inducing_variable.num_inducing)
        self._sites.reset(len(X))

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._resizable_variables(), *self._sites.variables, self._alpha

    @override
    def _batch_variables(self) -> dict[str, tf.Variable]:
        sites = {"sites.precision": self._sites.precision, "sites.linear": self._sites.linear}
        return {**super()._batch_variables(), "alpha": self._alpha, **sites}

    @override
    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Leave out compiled steps: an exported model has those that its own functions call."""
        children = super()._trackable_children(save_type, **kwargs)
        step, own = type(PEP._converge), type(self)
        return {name: child for name, child in children.items() if not isinstance(getattr(own, name, None), step)}


def _differ(some: Iterable[Any], others: Iterable[Any]) -> tf.Tensor:
    """Whether any of these tensors differs from its counterpart in shape or value, []."""
    pairs = zip(some, others, strict=True)
    unequal = [tf.raw_ops.NotEqual(x=x, y=y, incompatible_shape_error=False) for x, y in pairs]
    return tf.reduce_any([tf.reduce_any(each) for each in unequal])
