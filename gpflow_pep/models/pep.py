"""PEP: power expectation propagation and quantile propagation for any likelihood."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from tensorflow.python.eager import record
from typing_extensions import override

from .. import validation
from ..engine import AllRows, Chunks, DatasetRows, Prior, SingleRows, SiteSums, floating_variables, scale_terms
from ..ep import ConvergenceOptions, EnergyInputs, LatentRows, ProjectedRows, Sites, leave_one_out
from ..likelihoods.observations import check_assigned, check_observations, check_observations_of
from ..maths.linalg import finite
from ..runtime.checks import asserted
from ..runtime.custom_gradients import once_differentiable
from ..runtime.distribution import check_disjoint, local_variable
from ..runtime.tracing import compiled, no_autograph
from ..tilted import Observations, Projection, TiltedRule, rule_for
from . import batch_updates, site_updates
from .kernels_and_inducing_variables import latent_functions
from .site_properties import SiteProperties, status_before_updates
from .sparse import SparseGP, check_chunk_size_for_dataset, checked_power, columns

_KEPT = 2**23  # entries of V = L^-1 Kuf that are kept between sweeps (64 MB); a larger V is recomputed
_ROWS_PER_SWEEP, _ENTRIES_PER_SWEEP = 5120, 2**22  # of a chunk: rows, and entries of V, at most
_ADVICE = "checking parameters, mean function and data for NaN, infinite or overflowing values"


class Surrogate(NamedTuple):
    """A regression problem with its own noise variance in every row."""

    targets: tf.Tensor
    """y, [N, C]."""
    noise_variance: tf.Tensor
    """v, [N, C]."""


class PEP(SiteProperties, SparseGP):
    r"""
    Sparse power EP for any likelihood (Bui, Yan and Turner 2017, sec. 3.8), with a Gaussian site for every observation.

    .. math::

        q(u) \propto p(u) \prod_n t_n(u), \qquad t_n(u) = \exp(h_n w_n - \tau_n w_n^2/2),
        \qquad w_n = K_{nu} K_{uu}^{-1} u

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
    :meth:`maximum_log_likelihood_objective`. Predictions can be differentiated: exactly in the inputs; derivatives in
    hyperparameters are partial, with q held fixed. :class:`StreamingPEP` is this model for data that arrive in batches.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y = np.floor(3.0 + 2.0 * np.sin(X))
    >>> model = PEP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson(), X[::10], alpha=0.5)
    >>> mean, variance = model.predict_y(np.array([[1.0], [2.0]]))
    >>> bool(model.sites_status.converged)
    True
    """

    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_alpha", "_sites", "_status", "_options", "_warned", *SparseGP._TF_MODULE_IGNORED_PROPERTIES}
    )

    update_sites = site_updates.update_sites
    minibatches = batch_updates.minibatches
    _converged = site_updates.converged
    _converged_in_graph = site_updates.converged_in_graph
    _converge_step = site_updates.converge_step
    _differentiate_step = site_updates.differentiate_step
    _sum_sites_step = batch_updates.sum_sites_step
    _sweep_in_batches_step = batch_updates.sweep_in_batches_step
    _minibatch_step = batch_updates.minibatch_step

    _eager_sweeps = 40
    """Sweeps at one chunk that may still run without a graph: together they take about as long as tracing one."""

    has_sites = True
    """Declared for training: see `gpflow_pep.training.objectives.ModelWithSites`."""

    def __init__(
        self,
        data: RegressionData | tf.data.Dataset | DatasetRows,
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
            same likelihood; the labels of C classes are one column, with C latent functions. Or a `tf.data.Dataset` of
            batches (X [n, D], Y [n, P]), finite and in the same order in every pass, which each sweep reads twice.
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
        :param chunk_size: rows worked on at a time; does not change results beyond rounding. None: up to 5120, more on
            a GPU. Must be None for a dataset, whose batches are the chunks.
        :param max_jitter: if Kuu cannot be factorized, raise its jitter tenfold, up to this value, and report it.
        :raises ValueError: naming the argument that cannot be used.
        """
        if not isinstance(likelihood, Likelihood):
            raise ValueError(f"likelihood must be a gpflow Likelihood, got {type(likelihood).__name__}.")
        rule = rule_for(likelihood, projection)  # raises an error for an unsupported pair
        held: RegressionData | DatasetRows
        if isinstance(data, tf.data.Dataset | DatasetRows):
            check_chunk_size_for_dataset(chunk_size)
            held = data if isinstance(data, DatasetRows) else DatasetRows(data)
            check_observations_of(likelihood, held.dataset)
            num_data = int(held.num_data)
            first = next(iter(held.dataset))
        else:
            held = self._checked_observations(data, likelihood)
            num_data, first = len(held[0]), tuple(map(tf.constant, held))
        C = latent_functions(likelihood, columns(held)[1])
        rule.check(Observations(*first), C)
        powers = validation.power(alpha, num_data, "row")
        super().__init__(
            held,
            kernel,
            likelihood,
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=C,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        if self._workers is not None:
            check_disjoint(self._workers, held.dataset if isinstance(held, DatasetRows) else [held])
        self.projection = projection
        self.scale = validation.scale(scale)
        self._alpha = local_variable(powers, trainable=False, shape=[None] * powers.ndim, dtype=default_float())
        self._sites = Sites(num_data, C, default_float())
        self._set_sizes(num_data)
        self._chunks = held if isinstance(held, DatasetRows) else SingleRows(self._chunk_size, self._devices)
        self._options = ConvergenceOptions(
            local_variable(validation.positive_number(tol, "tol"), trainable=False, dtype=default_float()),
            local_variable(validation.positive_integer(max_sweeps, "max_sweeps"), trainable=False),
            local_variable(validation.fraction(damping, "damping"), trainable=False, dtype=default_float()),
        )
        self._status = local_variable(status_before_updates(self.damping), trainable=False, dtype=default_float())
        self._warned = local_variable(False, trainable=False)

    @no_autograph
    def surrogate(self) -> Surrogate:
        """
        Return the regression problem whose exact sparse posterior is q(u) (Bui, Yan and Turner 2017, app. H).

        Its likelihood is N(y_n; m(x_n) + K_nu Kuu⁻¹ u, v_n), with targets y_n and noise v_n = 1/τ_n from the sites,
        [N, C] each. A site of negative precision has a negative noise variance; one of precision 0 has an infinite one,
        and the mean function in the place of a target.
        """
        precision, linear = tf.unstack(self._converged().iterate.sites, axis=1)
        mean = self._rows().means()
        return Surrogate(mean + tf.math.divide_no_nan(linear, precision), 1.0 / precision)

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        Return the PEP energy at converged sites, an approximation to log p(y), [].

        Under the KL projection it is stationary in the sites, so that derivatives at fixed sites are total derivatives.
        Under the Wasserstein projection it is not: the gradient is that of the published code (Rasmussen and Williams
        2006, sec. 5.5.2), which treats the sites' moments as matched. It is close to the derivative of the converged
        energy.

        :raises tf.errors.InvalidArgumentError: if a matrix cannot be factorized, or the sites cannot be updated.
        """
        # Without a tape there is nothing to differentiate; in a graph there may be, later.
        if tf.executing_eagerly() and not record.could_possibly_record():
            return finite(self._converged().log_evidence, name="the energy", advice=_ADVICE)
        floating = self._floating_variables()

        @tf.custom_gradient
        def energy(*_: tf.Tensor) -> Any:
            value, derivatives = site_updates.differentiated_energy(self)

            def gradient(bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
                now = [tf.convert_to_tensor(variable) for variable in floating]
                scaled = [bar * derivative for derivative in once_differentiable(*derivatives, of=now)]
                # TensorFlow may have seen that `value` depends on variables: these are the arguments.
                return (scaled, [None] * len(variables)) if variables else scaled

            return tf.identity(value), gradient

        # Arguments, whether or not they are trainable: that may be another when they are differentiated.
        return finite(energy(*map(tf.convert_to_tensor, floating)), name="the energy", advice=_ADVICE)

    @check_shapes("return: [N]")
    @no_autograph
    def loo_log_predictive_density(self) -> tf.Tensor:
        """
        Leave-one-out log predictive density of every observation, summed over its outputs, in nats.

        Row n is predicted from q without its site. This approximates the posterior given the other rows, and equals
        it if the likelihood is Gaussian.

        :raises tf.errors.InvalidArgumentError: if q without a site is not proper.
        """
        posterior = self._converged()
        densities = self._leave_one_out(posterior.iterate.sites, posterior.total)
        return finite(densities, name="the leave-one-out densities", advice=_ADVICE)

    @override
    def _sums(self) -> SiteSums:
        L, A, c = self._converged().total
        return SiteSums(L, A, c) if self.num_latent_gps > 1 else SiteSums(L, A[0], c[0])

    @compiled(reduce_retracing=True)
    def _leave_one_out(self, sites: tf.Tensor, sums: SiteSums) -> tf.Tensor:
        inputs = self._energy_inputs()
        return leave_one_out(inputs.rows, self._projected(inputs), self._rule, sites, sums.posterior())

    def _energy_inputs(self) -> EnergyInputs:
        prior = Prior(self.inducing_variable, self.kernel)
        Kuu = self._inducing_covariance(prior)
        L = self._factorize(Kuu)
        rows, scale = self._rows(prior), tf.convert_to_tensor(self.scale)
        alpha = rows.alpha_of_all
        count = tf.cast(self.num_data, scale.dtype) if alpha.shape.rank == 0 else 1.0
        terms = self.num_latent_gps * scale_terms(alpha, scale, count, rows.all_workers.sum)
        return EnergyInputs(rows, Kuu, L, scale, self._old_site(L, alpha), terms)

    def _rows(self, prior: Prior | None = None, indices: tf.Tensor | None = None) -> LatentRows:
        """
        All rows, or some in one chunk.

        :param prior: that of kernel and inducing variable, where it is at hand.
        """
        data, alpha = self._checked_data(), self._checked_alpha()
        chunks: Chunks = AllRows() if indices is not None or self._single_chunk() else self._chunks
        if indices is not None:
            data = tuple(tf.gather(values, indices) for values in data)
            alpha = alpha if alpha.shape.rank == 0 else tf.gather(alpha, indices)
        prior = Prior(self.inducing_variable, self.kernel) if prior is None else prior
        workers = self._workers if indices is None else None
        return LatentRows(data, chunks, alpha, prior, self.mean_function, self.num_latent_gps, workers)

    def _checked_data(self) -> tuple[tf.Tensor, ...]:
        """Return the data; raise an error if the likelihood does not accept Y, or numbers of rows differ."""
        if isinstance(self._data, DatasetRows):
            return ()
        X, Y = (tf.convert_to_tensor(values) for values in self._data)
        rows = tf.shape(X)[0]
        same = tf.equal(rows, tf.shape(Y)[0]) & tf.equal(rows, tf.shape(self._sites.precision)[0])
        message = "X, Y and sites have different numbers of rows: set model.data = (X, Y) instead"
        return check_assigned(self.likelihood, asserted(X, same, message), Y)

    def _projected(self, inputs: EnergyInputs, variables: Sequence[tf.Variable] | None = None) -> ProjectedRows:
        keep = self._keeps_projections()
        return ProjectedRows(inputs.rows, inputs.L, inputs.scale, keep=keep, variables=variables)

    @override
    def _default_chunk_size(self, **options: int) -> int:
        entries = int(self.inducing_variable.num_inducing) * self.num_latent_gps  # of V, for each row
        return super()._default_chunk_size(on_cpu=min(_ROWS_PER_SWEEP, _ENTRIES_PER_SWEEP // entries), **options)

    def _single_chunk(self) -> bool:
        return self._keeps_projections() and self._num_rows_of_all_workers <= self._chunk_size

    def _keeps_projections(self) -> bool:
        in_memory = isinstance(self._chunks, SingleRows)
        return in_memory and self._num_rows_of_all_workers * self._num_points * self.num_latent_gps <= _KEPT

    @property
    def _rule(self) -> TiltedRule:
        return rule_for(self.likelihood, self.projection)

    def _checked_alpha(self) -> tf.Tensor:
        return checked_power(self._alpha)

    def _floating_variables(self) -> tuple[tf.Variable, ...]:
        """Return the variables that the energy is differentiated with respect to."""
        scale = [self.scale] if isinstance(self.scale, Parameter) else []  # a tensor in a frozen model
        return floating_variables(self.kernel, self.inducing_variable, self.mean_function, self.likelihood, *scale)

    @override
    def _parts(self) -> tuple[tf.Module, ...]:
        return *super()._parts(), self.scale

    @override
    def _settings(self) -> tuple[Any, ...]:
        projection = self.projection if isinstance(self.projection, str) else id(self.projection)
        return *super()._settings(), projection, self._single_chunk(), self._keeps_projections()

    @staticmethod
    def _checked_observations(data: Any, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        """Check that the likelihood accepts the pair (X, Y), and return it as arrays."""
        X, Y = validation.regression_data(data)
        check_observations(likelihood, Y)
        return X, Y

    @override
    def _validated(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        return self._checked_observations(data, self.likelihood)

    @override
    def _checked_new_data(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        X, Y = super()._checked_new_data(data)
        if self._alpha.shape.rank == 1 and len(X) != self._num_rows:
            raise ValueError(
                f"data must keep {self._num_rows} rows, since each has an alpha of its own, got {len(X)} rows."
            )
        return X, Y

    def _set_sizes(self, num_rows: int) -> None:
        self._num_rows, self._num_points = num_rows, int(self.inducing_variable.num_inducing)
        self._num_rows_of_all_workers = int(self._sum_over_workers(tf.constant(num_rows)))

    @override
    def _resize_for(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        self._set_sizes(len(X))
        self._sites.reset(len(X))

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._resizable_variables(), *self._sites.variables, self._alpha

    @override
    def _batch_variables(self) -> dict[str, tf.Variable]:
        sites = {"sites.precision": self._sites.precision, "sites.linear": self._sites.linear}
        return {**super()._batch_variables(), "alpha": self._alpha, **sites}
