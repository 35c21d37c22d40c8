"""PEP: power expectation propagation and quantile propagation for any likelihood."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood, ScalarLikelihood, SwitchedLikelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..engine import (
    Chunks,
    DatasetChunks,
    InducingPosterior,
    OneChunk,
    Prior,
    RowChunks,
    SiteSums,
    floating_variables,
    scale_terms,
)
from ..ep import (
    RUNNING,
    Inference,
    Iterate,
    LatentRows,
    Problem,
    Sites,
    SitesStatus,
    SolverOptions,
    UpdatedPosterior,
    energy_derivatives,
    implicit_bars,
    leave_one_out,
    leave_one_out_moments,
    status_before_updates,
)
from ..likelihoods.observations import check_assigned, check_observations
from ..maths.adaptive_quadrature import attainable
from ..maths.linalg import finite
from ..runtime import (
    ONE_PROCESS,
    Tensors,
    WithGradient,
    asserted,
    compiled,
    derivatives,
    in_replica,
    local_variable,
    may_be_recorded,
    no_autograph,
    once_differentiable,
    recording_is_stopped,
    refuse_xla,
    unrecorded,
    warn,
    watching,
    with_plain_errors,
)
from ..tilted import KL, Observations, Projection, Wasserstein, rule_for
from ..tilted.rule import projection_of
from .parts import ParameterPart, Power, checked_scale
from .sparse import SparseGP, checked_data, checked_power, columns

# Entries of V = L^-1 Kuf that are stored between sweeps (64 MB); a larger V is recomputed.
_MAX_STORED = 2**23
# Default rows of a chunk, if its V has at most half as many entries: in two thirds of the time of
# 1024 (M = 100).
_ROWS_PER_SWEEP = 5120
# Sweeps per chunk that run eagerly before a graph is traced, because they take less time than
# tracing.
_EAGER_SWEEPS = 40
_TOL = 1e-6  # default tolerance of the sites
_ADVICE = "checking parameters, mean function and data for NaN, infinite or overflowing values"
_UNDETERMINED = (
    "The sites must determine every direction of u for a surrogate of M observations: use "
    "surrogate(), or fewer inducing variables. The ratio of the smallest and the largest precision "
    "must be above 1e-8, got"
)
_NOT_CONVERGED = (
    "the sites have not converged. Objective and predictions use the sites with the smallest "
    "change. Lower alpha, or raise max_sweeps or tol; see sites_status. (This warning appears once "
    "for each model.)"
)
_FOR_XLA = "expectation propagation, whose adaptive integrals have shapes that depend on values"
_LOCKS = WeakKeyDictionary[tf.Module, Any]()
_MAKING_LOCKS = threading.Lock()


class Surrogate(NamedTuple):
    """A regression problem with its own noise variance in every row."""

    targets: tf.Tensor  #: y, [N, C].
    noise_variance: tf.Tensor  #: v, [N, C].


class InducingSurrogate(NamedTuple):
    """Observations of all inducing variables with correlated noise."""

    targets: tf.Tensor  #: y, [M, C].
    noise_covariance: tf.Tensor  #: Σ, [C, M, M].


def _option(name: str, checked: Callable[[Any, str], Any], meaning: str) -> property:
    """Return the property of a solver option, which is stored in a variable."""

    def assign(model: "PEP", value: object) -> None:
        getattr(model._options, name).assign(checked(value, name))

    doc = f"{meaning} Compiled functions use a new value without retracing."
    return property(lambda model: getattr(model._options, name).numpy().item(), assign, doc=doc)


class PEP(SparseGP):
    r"""
    Sparse power EP for any likelihood, with a Gaussian site for every observation.

    Source: Bui, Yan and Turner (2017), sec. 3.8.

    .. math::

        q(u) \propto p(u) \prod_n t_n(u), \qquad t_n(u) = \exp(h_n w_n - \tau_n w_n^2/2),
        \qquad w_n = K_{nu} K_{uu}^{-1} u

    The cavity is q divided by the site to the power α. The tilted distribution is the cavity times
    p(y_n|f_n)^α. Sites make q match the moments of its tilted distributions ("kl"), or the moments
    of the Gaussians nearest to them in L2 Wasserstein distance ("wasserstein", quantile
    propagation).

    =====================================  ==========================================================
    alpha = 0                              variational: the optimum of `gpflow.models.SVGP`
    alpha = 1                              EP; with inducing_variable = X, standard EP for a full GP
    a Gaussian likelihood                  :class:`PEPR`, for every alpha and scale
    =====================================  ==========================================================

    Objective, predictions and posterior first update the sites, from their current values, until
    these have converged. If the fixed point is unique, as it usually is for log-concave
    likelihoods, the results depend only on hyperparameters, data and alpha, for every optimizer and
    sampler; otherwise they also depend on the initial sites.

    The gradient is the derivative of the converged energy; see
    :meth:`maximum_log_likelihood_objective` for "wasserstein" with a dataset or several workers.
    Predictions can be differentiated: exactly in the inputs; derivatives in hyperparameters are
    partial, with q held fixed. :class:`StreamingPEP` takes data in batches.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y = np.floor(3.0 + 2.0 * np.sin(X))
    >>> model = PEP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson(), X[::10], alpha=0.5)
    >>> mean, variance = model.predict_y(np.array([[1.0], [2.0]]))
    >>> bool(model.sites_status.converged)
    True
    """

    _problem_type: type[Problem] = Problem  # of the sites

    def __init__(
        self,
        data: RegressionData | tf.data.Dataset | DatasetChunks,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: object = 0.5,
        scale: TensorData | Parameter = 1.0,
        projection: str | Projection = "kl",
        tol: float | None = None,
        max_sweeps: int = 1000,
        damping: float = 1.0,
        mean_function: MeanFunction | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        :param data: inputs X [N, D] and observations Y [N, P]. Each column has its own latent
            function, with the same likelihood; labels of C classes are one column, with C latent
            functions. Or a finite `tf.data.Dataset` of batches (X [n, D], Y [n, P]), in the same
            order in every pass; each sweep reads it twice.
        :param kernel: a single-output kernel for all latent functions, `SharedIndependent` or
            `SeparateIndependent`.
        :param likelihood: any `ScalarLikelihood` that is twice differentiable in f; robust-max or
            softmax over several classes (:class:`gpflow_pep.likelihoods.MultiClassRobustMax`,
            GPflow's `MultiClass` and `Softmax`); or a custom likelihood
            (:data:`gpflow_pep.tilted.tilted_rule`).
        :param inducing_variable: Z [M, D], or any inducing variable with ``Kuu`` and ``Kuf`` for
            the kernel, shared or `SeparateIndependentInducingVariables`; X itself for a full GP.
        :param alpha: the power in [0, 1]: a number, or one for each row [N].
        :param scale: m of T-PEP, which gives f given u the covariance m D in place of D (Bui and
            Titsias 2025): a positive number, or a `gpflow.Parameter` to learn it. 1 is PEP.
        :param projection: "kl", "wasserstein", or a custom projection.
        :param tol: convergence tolerance: the largest change of a marginal by the update of its
            site, as a fraction of the marginal's standard deviation (for the mean) or variance.
            None: 1e-6, or in float32 1.2e-4, because rounding alone changes marginals by 2e-5
            or so.
        :param max_sweeps: maximum number of sweeps over all rows in one update. A small number (for
            example 1) trains without waiting for convergence (Bui, Yan and Turner 2017, sec. 3.9).
        :param damping: maximum fraction of an update to take, in (0, 1]; reduced adaptively.
        :param mean_function: m(x), zero by default.
        :param chunk_size: rows processed at a time, as in :class:`TSGPR`; by default up to 5120.
        :param max_jitter: as in :class:`TSGPR`.
        """
        held = checked_data(data, chunk_size)
        self.projection = projection
        self.likelihood = likelihood
        C = self._num_latent_functions(columns(held)[1])
        super().__init__(
            held, kernel, likelihood, inducing_variable, mean_function, C, chunk_size, max_jitter
        )
        self.scale = scale
        self._set_sizes(int(self._local_num_data()))
        if tol is None:
            tol = attainable(_TOL, tf.as_dtype(default_float()))
        powers = self._checked_alpha(alpha)
        self._alpha = local_variable(powers, default_float(), shape=[None] * powers.ndim)
        self._sites = self._new_sites()
        self._options = SolverOptions(
            local_variable(validation.positive_number(tol, "tol"), default_float()),
            local_variable(validation.positive_integer(max_sweeps, "max_sweeps"), tf.int32),
            local_variable(validation.fraction(damping, "damping"), default_float()),
        )
        status = status_before_updates(self.damping, self.tol)
        self._status = local_variable(status, default_float())
        self._warned = local_variable(False, tf.bool)
        self._eager_sweeps = _EAGER_SWEEPS

    @override
    def _check(self) -> None:
        """
        Check also that the likelihood has a rule, accepts the data and keeps the number of latent
        functions.
        """
        rule = rule_for(self.likelihood, self.projection)
        first = 0
        for X, Y in self._batches():
            check_observations(self.likelihood, Y, first_row=first)
            if first == 0:
                C = self._num_latent_functions(Y.shape[1])
                if self.num_latent_gps != C:
                    raise ValueError(
                        f"likelihood must keep {self.num_latent_gps} latent functions, got {C}."
                    )
                rule.check(Observations(X, Y), C)
            first += len(Y)
        super()._check()

    def _num_latent_functions(self, num_outputs: int) -> int:
        """Return C: one for each column of Y, or the likelihood's `latent_dim`."""
        if isinstance(self.likelihood, ScalarLikelihood):
            return num_outputs - isinstance(self.likelihood, SwitchedLikelihood)
        return validation.positive_integer(self.likelihood.latent_dim, "likelihood.latent_dim")

    @override
    def _checked_alpha(self, alpha: object) -> AnyNDArray:
        return validation.power(alpha, self._num_rows, "row")

    alpha = Power()
    scale = ParameterPart(checked_scale)
    tol = _option(
        "tol",
        validation.positive_number,
        "Convergence tolerance of the sites; see the constructor.",
    )
    max_sweeps = _option(
        "max_sweeps", validation.positive_integer, "The largest number of sweeps in one update."
    )
    damping = _option(
        "damping", validation.fraction, "The largest fraction of an update that is taken."
    )

    def _new_sites(self) -> Sites:
        shape = [self._num_rows, self.num_latent_gps]
        return Sites(shape, shape, default_float())

    @property
    def _num_sites(self) -> int:
        return self._num_rows

    @property
    def _num_padded_rows(self) -> int:
        """Number of rows of all workers for which sites are stored."""
        return self._num_rows_of_all_workers

    def _rows_per_site(self) -> tf.Tensor | float:
        """Return the number of rows of each site, [] or [B]."""
        return 1.0

    @property
    def sites(self) -> Sites:
        """Natural parameters of the sites: ``precision`` τ and ``linear`` h, variables [N, C]."""
        return self._sites

    @property
    def sites_status(self) -> SitesStatus:
        """Status of the last update of the sites, in a compiled function too."""
        converged, sweeps, *numbers = self._status.numpy().tolist()
        return SitesStatus(bool(converged), int(sweeps), *numbers)

    @property
    def sites_variables(self) -> dict[str, tf.Variable]:
        """The sites and their status, which includes the damping at which the next sweeps start."""
        return {
            "precision": self._sites.precision,
            "linear": self._sites.linear,
            "status": self._status,
        }

    @property
    def is_lower_bound(self) -> bool:
        """True if the objective is a lower bound on the log evidence (alpha = 0)."""
        return bool(self._is_bound())

    def reset_sites(self) -> None:
        """Set all sites to zero, so that q is the prior, and the status to "not converged"."""
        self._sites.reset(self._num_sites)
        self._status.assign(status_before_updates(self.damping, self.tol))

    @contextmanager
    def without_warnings(self) -> Iterator[None]:
        """Suppress the warning about unconverged sites."""
        before = bool(self._warned)
        self._warned.assign(True)
        try:
            yield
        finally:
            self._warned.assign(before)

    def update_sites(
        self,
        *,
        batch_size: int | None = None,
        callback: Callable[[SitesStatus], None] | None = None,
    ) -> SitesStatus:
        """
        Update the sites until they have converged, starting from their current values, with
        hyperparameters fixed.

        Objective and predictions do this automatically. Updates are damped adaptively; updates that
        make a cavity or q improper are rejected. A sweep costs O(N M²).

        :param batch_size: None: parallel sweeps. Otherwise this many sites are updated at a time,
            in random order, and q after each batch, at an extra cost of O(M³). Parallel sweeps
            follow `max_sweeps` such sweeps, if needed.
        :param callback: called with the final status and, with `batch_size`, with the status
            between sweeps.
        :return: the status: whether the sites have converged, and the log evidence.
        :raises ValueError: if batch_size is not a positive integer, or is given for a dataset or
            several workers.
        :raises RuntimeError: in a compiled function.
        :raises tf.errors.InvalidArgumentError: if tilted distributions are not finite even under
            the prior.
        """
        if not tf.executing_eagerly():
            raise RuntimeError(
                "update_sites returns a Python object: call it outside of a tf.function."
            )
        callback = callback or (lambda _: None)
        if batch_size is not None:
            self._check_in_memory()
            size = min(validation.positive_integer(batch_size, "batch_size"), self._num_rows)
            self._update_in_batches(tf.constant(size), callback)
        self._converge()
        callback(self.sites_status)
        return self.sites_status

    def _update_in_batches(self, size: tf.Tensor, callback: Callable[[SitesStatus], None]) -> None:
        """
        Sweep over batches in random order until the sites have converged, or max_sweeps is reached.
        """
        rng, limit = np.random.default_rng(0), self.max_sweeps
        try:
            self._eager_sweeps = 0  # the next line traces a graph: use it from now on
            self._options.max_sweeps.assign(0)  # the compiled step then only evaluates the status
            for _ in range(limit):
                with_plain_errors(unrecorded, self._converge_step, place=self._chunks.place)
                if self.sites_status.converged:
                    break
                callback(self.sites_status)
                order = tf.constant(rng.permutation(self._num_rows), tf.int32)
                with_plain_errors(unrecorded, self._sweep_in_batches_step, order, size)
        finally:
            self._options.max_sweeps.assign(limit)

    def minibatches(
        self, batch_size: int, *, damping: float | None = None, seed: int = 0
    ) -> Iterator[list[tf.Tensor]]:
        """
        Estimate the gradient of the training loss in the trainable variables from each minibatch of
        an epoch.

        The minibatch's sites and q are updated first. Hyperparameters may change between
        minibatches; the contribution of the other rows to q is updated at the next call, for the
        next epoch.

        :param batch_size: rows per minibatch.
        :param damping: fraction of an update to take (default: the model's), reduced to keep B
            positive definite. At 1 the sites are replaced. `damping=alpha` is the update of the
            paper, t_old^(1 - α) times q_new over the cavity (Bui, Yan and Turner 2017, app. F.4).
        :param seed: seed of the partition.
        :return: for each minibatch the gradients, in the order of `trainable_variables`.
        :raises RuntimeError: while iterating, if the data have changed since the epoch began.
        """
        refuse_xla(_FOR_XLA)
        self._check_in_memory()
        batch_size = validation.positive_integer(batch_size, "batch_size")
        damping = self.damping if damping is None else validation.fraction(damping, "damping")
        return self._epoch(batch_size, tf.constant(damping, default_float()), validation.seed(seed))

    def _epoch(self, batch_size: int, damping: tf.Tensor, seed: int) -> Iterator[list[tf.Tensor]]:
        order = np.random.default_rng(seed).permutation(self._num_rows).astype(np.int32)
        data, sites = [tf.convert_to_tensor(values) for values in self._data], None
        for start in range(0, len(order), batch_size):
            if _differ(data, self._data):
                raise RuntimeError(
                    "data must not change within an epoch: call minibatches() again."
                )
            # Predictions may have updated the sites.
            if sites is None or _differ([sites], [self._sites.stacked()]):
                A, c = with_plain_errors(self._sum_sites_step)
            indices = tf.constant(order[start : start + batch_size])
            A, c, gradients = with_plain_errors(self._minibatch_step, A, c, indices, damping)
            sites = self._sites.stacked()
            yield gradients

    def _check_in_memory(self) -> None:
        """Raise a ValueError if data is a dataset, or there are several workers."""
        if self._workers.count > 1 or not self._data:
            got = f"{self._workers.count} workers" if self._data else "a tf.data.Dataset"
            raise ValueError(
                f"data must be arrays in one process if sites are updated in batches, got {got}."
            )

    @no_autograph
    def surrogate(self) -> Surrogate:
        """
        Return the regression problem whose exact sparse posterior is q(u) (Bui, Yan and Turner
        2017, app. H); in a stream the old posterior is its prior.

        Its likelihood is N(y_n; m(x_n) + K_nu Kuu⁻¹ u, v_n), with targets y_n and noise v_n = 1/τ_n
        from the sites, [N, C] each. A site of negative precision has a negative noise variance; a
        site of precision 0 has an infinite noise variance, and the mean function as its target.
        """
        precision, linear = tf.unstack(self._converge().sites, axis=1)
        rows = self._rows(self._prior())
        (mean,) = rows.chunked.concatenate(
            lambda chunk: (rows.mean(chunk),), linear.dtype, [[None, self.num_latent_gps]]
        )
        return Surrogate(mean + tf.math.divide_no_nan(linear, precision), 1.0 / precision)

    @no_autograph
    def inducing_surrogate(self) -> InducingSurrogate:
        """
        Return M observations of u, with correlated noise, whose exact posterior is q(u) (Bui, Yan
        and Turner 2017, app. H).

        Their likelihood is N(y; u, Σ), where u excludes the mean function and Σ⁻¹ is the precision
        of q(u) minus the precision of the prior. In a stream it includes the old posterior.

        :raises tf.errors.InvalidArgumentError: if the sites leave a direction of u undetermined, as
            with fewer rows than inducing variables: Σ would lose more than half of its digits.
        """
        L, A, c = self._converge().total
        eigenvalues, U = tf.linalg.eigh(A)
        smallest = eigenvalues[..., 0] / eigenvalues[..., -1]
        # An inverse with half of the digits.
        U = asserted(U, smallest > 1e-8, _UNDETERMINED, smallest)
        U /= tf.sqrt(eigenvalues[..., None, :])
        root = tf.matmul(L, U)  # Σ = L A⁻¹ L' = root root', y = L A⁻¹ c
        targets = tf.matmul(root, tf.matmul(U, c, transpose_a=True))[..., 0]  # [C, M]
        return InducingSurrogate(tf.transpose(targets), tf.matmul(root, root, transpose_b=True))

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        Return the PEP energy at converged sites, an approximation to log p(y), [].

        Under the KL projection the energy is stationary in the sites, so that the gradient at fixed
        sites is exact. Under the Wasserstein projection it is not stationary, and the gradient is
        found by implicit differentiation; with a dataset or several workers it follows the
        published code (Rasmussen and Williams 2006, sec. 5.5.2), which treats the moments as
        matched and is close to the gradient.

        :raises tf.errors.InvalidArgumentError: if a matrix cannot be factorized, or the sites
            cannot be updated.
        """
        # Eager without a tape: compute the value only. A graph may be differentiated later.
        if tf.executing_eagerly() and not may_be_recorded():
            return finite(self._converge().log_evidence, name="the energy", advice=_ADVICE)
        floating = self._floating_variables()

        @tf.custom_gradient
        def energy(*_: tf.Tensor) -> WithGradient:
            with self._updating():
                value, derivatives = with_plain_errors(
                    unrecorded, self._energy_and_gradient_step, place=self._chunks.place
                )

            def gradient(bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
                now = [tf.convert_to_tensor(variable) for variable in floating]
                scaled = [
                    bar * derivative for derivative in once_differentiable(*derivatives, of=now)
                ]
                # TensorFlow also reports captured variables; their gradients are the arguments'
                # gradients.
                return (scaled, [None] * len(variables)) if variables else scaled

            return tf.identity(value), gradient

        # Pass all variables: `trainable` may change before the gradient is taken.
        return finite(
            energy(*map(tf.convert_to_tensor, floating)), name="the energy", advice=_ADVICE
        )

    @check_shapes("return: [N]")
    @no_autograph
    def loo_log_predictive_density(self) -> tf.Tensor:
        """
        Compute the leave-one-out log predictive density of every row, summed over its outputs, in
        nats.

        Row n is predicted from q without its site: approximately given the other rows, exactly with
        Gaussian noise.

        :raises tf.errors.InvalidArgumentError: if q without a site is not proper.
        """
        posterior = self._converge()
        densities = self._leave_one_out_step(posterior.sites, posterior.total)
        return finite(densities, name="the leave-one-out densities", advice=_ADVICE)

    def _leave_one_out_moments(self, cache: Iterable[AnyNDArray]) -> Tensors:
        """
        Return mean and variance [N, C] of f without the site of its row, from the cache of the
        posterior of the current sites.
        """
        q = InducingPosterior(*map(tf.constant, cache))
        if self.num_latent_gps == 1:
            q = q._replace(LB=q.LB[None], b=q.b[None])
        return leave_one_out_moments(self._inference().problem, self.sites.stacked(), q)

    @override
    def site_sums(self) -> SiteSums:
        return self._of_outputs(self._converge().total)

    def _values_at_sites(self) -> Tensors:
        """Return :meth:`posterior_values` at the present sites, without updating them."""
        problem = self._inference().problem
        total = problem.total(*problem.sum_sites(self.sites.stacked()))
        return self._of_outputs(total).posterior()

    def _of_outputs(self, total: SiteSums) -> SiteSums:
        """Drop the dimension of a single latent function."""
        return total if self.num_latent_gps > 1 else SiteSums(total.L, total.A[0], total.c[0])

    def _converge(self) -> UpdatedPosterior:
        """
        Converge the sites. The first sweeps run eagerly, because tracing takes longer. Under a tape
        use :meth:`_energy_and_gradient_step`.
        """
        with self._updating():
            chunks = -(-self._num_rows // self._chunk_size)
            most = self._eager_sweeps // chunks if self._may_run_eagerly() else 0
            if most:
                inference = self._inference()
                last = inference.solve(interrupt_after=most)
                self._eager_sweeps -= chunks * (int(last.sweeps) + 1)
                if last.status != RUNNING:
                    return inference.accept(last)
            if tf.executing_eagerly():
                self._eager_sweeps = 0  # the graph is faster from now on
            return with_plain_errors(unrecorded, self._converge_step, place=self._chunks.place)

    def _may_run_eagerly(self) -> bool:
        """
        Return whether sweeps may run without a graph; in a model's first calls this is faster than
        tracing one.
        """
        in_one_place = (
            isinstance(self._chunks, RowChunks)
            and self._workers.count == 1
            and self._devices is None
        )
        if not tf.executing_eagerly() or not in_one_place or tf.distribute.has_strategy():
            return False
        # While recording is stopped, tapes inside densities do not record, either.
        return not (may_be_recorded() or recording_is_stopped())

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Update the sites in one thread at a time; warn if they have not converged."""
        refuse_xla(_FOR_XLA)
        with lock_of(self) if tf.executing_eagerly() else nullcontext():
            yield
            if not tf.executing_eagerly():
                tf.cond(
                    (self._status[0] > 0.0) | self._warned,
                    lambda: tf.constant(False),
                    self._print_warning,
                )
            elif not self.sites_status.converged and not self._warned:
                self._warned.assign(True)
                warn(_NOT_CONVERGED[0].upper() + _NOT_CONVERGED[1:])

    def _print_warning(self) -> tf.Tensor:
        said = tf.print("gpflow_pep:", _NOT_CONVERGED, output_stream=sys.stderr)
        with tf.control_dependencies([said, self._warned.assign(True)]):
            return tf.constant(True)

    @compiled
    def _converge_step(self) -> UpdatedPosterior:
        inference = self._inference()
        return inference.accept(inference.solve())

    @compiled
    def _energy_and_gradient_step(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """
        Converge the sites; return the energy and its derivatives in the model's floating variables.
        """
        variables = self._floating_variables()
        with watching(variables) as tape:
            inference = self._inference(variables)
        problem = replace(inference.problem, L=tf.stop_gradient(inference.problem.L))
        inference = replace(inference, problem=problem)
        last = inference.solve()
        energy = inference.accept(last).log_evidence
        return energy, self._energy_derivatives(problem, tape, last.iterate)

    def _energy_derivatives(
        self, problem: Problem, tape: tf.GradientTape, iterate: Iterate
    ) -> list[tf.Tensor]:
        """
        Differentiate the energy at converged sites in the variables of a problem, which `tape`
        recorded.
        """
        if not self._has_implicit_gradient():
            return energy_derivatives(problem, tape, iterate)
        in_one_chunk = problem
        if not self._single_chunk():
            # The graph stays when the number of rows changes.
            everything = tf.range(self._local_num_data())
            in_one_chunk = self._inference(problem.variables, everything).problem
        bars = implicit_bars(
            in_one_chunk, self.likelihood, iterate, stores_squares=self._stores_squares()
        )
        return energy_derivatives(problem, tape, iterate, bars)

    def _has_implicit_gradient(self) -> bool:
        """
        Return whether the projection is Wasserstein's and all rows are in the memory of this
        process.
        """
        is_wasserstein = isinstance(projection_of(self.projection), Wasserstein)
        return bool(is_wasserstein and self._data and self._workers.count == 1)

    def _has_exact_gradient(self) -> bool:
        """
        Return whether the gradient is the derivative of the energy, or treats the moments of sites
        as matched.
        """
        return isinstance(projection_of(self.projection), KL) or self._has_implicit_gradient()

    @compiled(reduce_retracing=True)
    def _leave_one_out_step(self, sites: tf.Tensor, sums: SiteSums) -> tf.Tensor:
        return leave_one_out(self._inference().problem, sites, sums.posterior())

    @compiled
    def _sum_sites_step(self) -> Tensors:
        return self._inference().proper_sums()

    @compiled(reduce_retracing=True)
    def _sweep_in_batches_step(self, order: tf.Tensor, size: tf.Tensor) -> None:
        inference = self._inference()
        inference.sweep_in_batches(partial(self._rows, inference.problem.rows.prior), order, size)

    @compiled(reduce_retracing=True)
    def _minibatch_step(self, *args: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """
        Update the sites of some rows; return A, c and the estimated gradient of the training loss.
        """

        def update(A: tf.Tensor, c: tf.Tensor, indices: tf.Tensor, damping: tf.Tensor) -> Any:
            variables = self.trainable_variables
            with watching(variables) as tape:
                inference = self._inference()
                batch = self._rows(inference.problem.rows.prior, indices)
                A, c, objective = inference.minibatch(tape, batch, (A, c), indices, damping)
                loss = -objective - self.log_prior_density()
            return A, c, list(derivatives(tape, loss, variables))

        return in_replica(update, *args)

    def _inference(
        self, variables: Sequence[tf.Variable] = (), indices: tf.Tensor | None = None
    ) -> Inference:
        prior = self._prior()
        Kuu = self._inducing_covariance(prior)
        L = self._factorize(Kuu)
        rows = self._rows(prior, indices)
        alpha = rows.powers
        scale = tf.convert_to_tensor(self.scale)
        terms = scale_terms(alpha, scale, self.num_data, self._rows_per_site(), rows.all_workers)
        problem = self._problem_type(
            rows=rows,
            rule=rule_for(self.likelihood, self.projection),
            Kuu=Kuu,
            L=L,
            scale=scale,
            old=self._old_site(L, alpha),
            terms=self.num_latent_gps * terms,
            is_bound=self._is_bound(),
            keep=self._keeps_projections(),
            variables=variables,
            likelihood_variables=floating_variables(self.likelihood),
        )
        return Inference(problem, self._sites, self._status, self._options, self._num_padded_rows)

    def _rows(self, prior: Prior, indices: tf.Tensor | None = None) -> LatentRows:
        """Return the source of all rows, or of the given rows in one chunk."""
        data = self._equally_many("sites", tf.shape(self._sites.precision)[0])
        alpha = checked_power(self._alpha)
        if data:
            data = check_assigned(self.likelihood, *data)
        chunks: Chunks = OneChunk() if self._single_chunk() else self._chunks
        workers = self._workers
        if indices is not None:
            chunks = OneChunk()
            workers = ONE_PROCESS
            data = tuple(tf.gather(values, indices) for values in data)
            alpha = alpha if alpha.shape.rank == 0 else tf.gather(alpha, indices)
        return LatentRows(
            chunks.split(data), alpha, prior, self.mean_function, self.num_latent_gps, workers
        )

    @override
    def _rows_on_cpu(self) -> int:
        # Entries of V for each row.
        entries = int(self.inducing_variable.num_inducing) * self.num_latent_gps
        return min(_ROWS_PER_SWEEP, _MAX_STORED // 2 // entries)

    def _single_chunk(self) -> bool:
        return self._keeps_projections() and self._num_rows_of_all_workers <= self._chunk_size

    def _keeps_projections(self) -> bool:
        entries = self._num_rows_of_all_workers * self._num_points * self.num_latent_gps
        return isinstance(self._chunks, RowChunks) and entries <= _MAX_STORED

    def _stores_squares(self) -> bool:
        return (
            self._has_implicit_gradient() and self._num_rows**2 * self.num_latent_gps <= _MAX_STORED
        )

    def _is_bound(self) -> tf.Tensor:
        bound_at_zero = isinstance(projection_of(self.projection), KL | Wasserstein)
        is_positive = tf.reduce_any(tf.not_equal(self._alpha, 0.0))
        if self._alpha.shape.rank == 1:
            is_positive = self._workers.any(is_positive)
        return ~is_positive & bound_at_zero

    def _floating_variables(self) -> tuple[tf.Variable, ...]:
        """Return the variables with respect to which the energy is differentiated."""
        # In a frozen model the scale is a tensor.
        scale = [self.scale] if isinstance(self.scale, Parameter) else []
        return floating_variables(
            self.kernel, self.inducing_variable, self.mean_function, self.likelihood, *scale
        )

    @override
    def _structure(self) -> list[object]:
        return [
            *super()._structure(),
            self.projection,
            self._single_chunk(),
            self._keeps_projections(),
            self._stores_squares(),
        ]

    @override
    def checked_new_data(self, data: object) -> tuple[AnyNDArray, AnyNDArray]:
        X, Y = super().checked_new_data(data)
        check_observations(self.likelihood, Y)
        if self._alpha.shape.rank == 1 and len(X) != self._num_rows:
            raise ValueError(
                f"data must keep {self._num_rows} rows, because alpha was given for them, got "
                f"{len(X)}."
            )
        return X, Y

    def _set_sizes(self, num_rows: int) -> None:
        self._num_rows, self._num_points = num_rows, int(self.inducing_variable.num_inducing)
        self._num_rows_of_all_workers = int(self._workers.sum(tf.constant(num_rows)))

    @override
    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        self._set_sizes(len(X))
        self._sites.reset(self._num_sites)
        super().assign_data(X, Y)

    @override
    def batch_variables(self) -> dict[str, tf.Variable]:
        sites = {"sites.precision": self._sites.precision, "sites.linear": self._sites.linear}
        return super().batch_variables() | sites


def _differ(a: Iterable[tf.Tensor], b: Iterable[Any]) -> bool:
    """Return whether a tensor differs from its counterpart in shape or value; NaN equals NaN."""
    return not all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))


def lock_of(model: tf.Module) -> Any:
    """
    Return the model's reentrant lock: predictions may update its sites. Copies have separate locks.
    """
    with _MAKING_LOCKS:
        return _LOCKS.setdefault(model, threading.RLock())
