"""PEPClassifier: power EP and quantile propagation for any likelihood of scalar latent functions."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from gpflow.posteriors import PrecomputeCacheType
from typing_extensions import override

from .. import validation
from ..graphs import unconverted
from ..linalg import finite
from ..posteriors import SitesPosterior
from ..sites import (
    Report,
    Sites,
    SitesStatus,
    converge,
    converge_in_batches,
    energy,
    joint_rule,
    proper_start,
    update_once,
)
from ..statistics import Carried, SingleRows, floating_variables
from .freshness import differs
from .latent_functions import latent_functions
from .local_sites import LocalSites, observed

_ADVICE = (
    "update_sites(), since the sites may not go with the hyperparameters; checking parameters, mean function and data "
    "for NaN, infinite or overflowing values"
)


class PEPClassifier(LocalSites):
    r"""
    Sparse power EP (Bui, Yan and Turner 2017, sec. 3.8) with a Gaussian site for every observation.

        q(u) ∝ p(u) ∏_n t_n(u),   t_n(u) = exp(h_n w_n - τ_n w_n²/2),   w_n = K_nu Kuu⁻¹ u

    Each site is what makes q, without the fraction α of it but with p(y_n|f_n)^α, keep its moments ("kl"), or have the
    moments of the nearest Gaussian in L2 Wasserstein distance ("wasserstein", quantile propagation). Despite its name
    the model takes any GPflow `ScalarLikelihood`, and robust-max or softmax over several classes.

    =====================================  ==========================================================
    alpha = 0                              variational: the optimum of `gpflow.models.SVGP`
    alpha = 1                              EP; with inducing_variable = X the usual one for a full GP
    a Gaussian likelihood                  :class:`PEPR`, for every alpha
    =====================================  ==========================================================

    The sites belong to the hyperparameters they were updated for: call :meth:`update_sites` before predicting, or
    train with :func:`gpflow_pep.training.fit`, which does. :meth:`update` absorbs them and goes on with a new batch.
    """

    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"_sites", "_fingerprint", *LocalSites._TF_MODULE_IGNORED_PROPERTIES})

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: float = 0.5,
        projection: str = "kl",
        when_stale: str = "warn",
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        :param data: inputs X [N, D] and observations Y [N, P]. Each column has a latent function of its own, with the
            same likelihood; the labels of C classes are one column, with C latent functions.
        :param kernel: any single-output kernel, which the latent functions share, or `SharedIndependent` or
            `SeparateIndependent`.
        :param likelihood: any `ScalarLikelihood` that is twice differentiable in f. For two classes
            :class:`gpflow_pep.likelihoods.Probit` or Logit, with labels 0, 1 or -1, +1; `Bernoulli` takes 0, 1. For
            more :class:`gpflow_pep.likelihoods.MultiClassRobustMax`, or GPflow's `MultiClass` or `Softmax`.
        :param inducing_variable: Z [M, D], or any inducing variable with ``Kuu`` and ``Kuf`` for the kernel, shared or
            `SeparateIndependentInducingVariables`; X itself for a full GP.
        :param alpha: the power, in [0, 1].
        :param projection: "kl" or "wasserstein".
        :param when_stale: what predictions do when hyperparameters, data or alpha changed since the sites were last
            updated: "warn" once, or "refresh" them first (not inside a compiled function).
        :param mean_function: m(x), zero by default.
        :param num_latent_gps: C, taken from Y and the likelihood.
        :param chunk_size: rows worked on at a time; does not change results beyond rounding.
        :param max_jitter: where Kuu cannot be factorised, raise its jitter tenfold up to this, and say so.
        :raises ValueError: naming the argument that cannot be used.
        """
        joint_rule(projection, likelihood)  # refuses what it cannot do
        if when_stale not in ("warn", "refresh"):
            raise ValueError(f'when_stale must be "warn" or "refresh", got {when_stale!r}.')
        X, Y = observed(data, likelihood)
        C = latent_functions(likelihood, Y)
        if num_latent_gps not in (None, C):
            raise ValueError(f"num_latent_gps must be {C} for these data and likelihood, got {num_latent_gps}.")
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
        self.projection, self.when_stale = projection, when_stale
        self._alpha = self._power_variable(alpha)
        self._chunks = SingleRows(self._chunk_size)
        self._sites = Sites(len(X), C, default_float())
        self._fingerprint = tf.Variable([np.nan], trainable=False, shape=[None], dtype=default_float())
        self._begin_stream([C], 1, only_points=False)

    @property
    def sites(self) -> Sites:
        """Natural parameters of the sites: ``precision`` τ and ``linear`` h, variables [N, P]."""
        return self._sites

    @property
    def is_stale(self) -> bool:
        """Whether hyperparameters, data or alpha changed since the sites were last updated."""
        return bool(differs(self._parameter_values(), self._fingerprint))

    @property
    def is_lower_bound(self) -> bool:
        """Whether the objective is a lower bound of the log evidence, whatever the sites: at alpha = 0, with "kl"."""
        return self.projection == "kl" and bool(self.alpha == 0.0)

    def reset_sites(self) -> None:
        """Sites that say nothing: q is the prior."""
        self._sites.reset(int(self.num_data))
        self._fingerprint.assign([np.nan])

    def update_sites(
        self,
        *,
        max_sweeps: int = 1000,
        tol: float = 1e-6,
        damping: float = 1.0,
        batch_size: int | None = None,
        report: Report | None = None,
    ) -> SitesStatus:
        """
        Update the sites, starting from what they are, until they have converged; hyperparameters stay.

        Updates are damped as far as it takes; one that would make a cavity or B improper is rejected, and where
        hyperparameters have changed so that the sites are improper from the start, they are scaled down first. Cost of
        a sweep: O(N M²). Stopped by an error or by hand the model keeps its last proper sites.

        :param max_sweeps: sweeps over all rows, at most.
        :param tol: converged is where no update would change a site's own marginal by more than this fraction of its
            standard deviation (mean) or variance.
        :param damping: the largest fraction of an update that is taken, in (0, 1].
        :param batch_size: None: parallel sweeps. Otherwise sites are updated this many at a time, in random order, and
            q after each batch, which converges in fewer sweeps and costs O(M³) more a batch.
        :param report: called after every sweep with the status so far.
        :return: whether they have converged, and the log evidence.
        :raises FloatingPointError: where no update is proper.
        """
        max_sweeps = validation.positive_integer(max_sweeps, "max_sweeps")
        tol, damping = validation.positive_number(tol, "tol"), validation.fraction(damping, "damping")
        if batch_size is not None:
            batch_size = validation.positive_integer(batch_size, "batch_size")
        if not tf.executing_eagerly():
            raise RuntimeError("update_sites compiles its own steps: call it outside of a tf.function.")
        structure = self._current_structure()
        self._fingerprint.assign([np.nan])
        options: dict[str, Any] = {"max_sweeps": max_sweeps, "tol": tol, "damping": damping, "report": report}
        sweep_in_batches = partial(self._sweep_in_batches, structure, np.random.default_rng(0))
        if batch_size is None:
            # From nothing, a first sweep in batches saves several parallel ones.
            warm_up = partial(sweep_in_batches, _warm_up_size(int(self.num_data)), True) if self._is_fresh() else None
            updates = self._updates(structure)
            status = converge(self._sites, *updates, warm_up=warm_up, is_bound=self.is_lower_bound, **options)
        else:
            update = partial(sweep_in_batches, batch_size, False)
            status = converge_in_batches(self._sites, *self._updates(structure), update, **options)
        self._fingerprint.assign(self._parameter_values())
        if not status.converged:
            warnings.warn(
                f"The sites have not converged after {status.sweeps} sweeps: the change is {status.change:.1e}, above "
                f"{tol:.0e}. Call update_sites again to go on, with a smaller damping if it does not shrink.",
                stacklevel=2,
            )
        return status

    def update_sites_once(self, damping: float = 0.5) -> None:
        """
        One parallel update of all sites, for training that does not wait until they have converged.

        :param damping: the fraction of the update that is taken, less where B would not be proper.
        """
        damping = validation.fraction(damping, "damping")
        self._fingerprint.assign([np.nan])
        update_once(self._sites, *self._updates(self._current_structure()), damping)

    def minibatches(self, batch_size: int, *, damping: float = 1.0, seed: int = 0) -> Iterator[list[tf.Tensor]]:
        """
        Derivatives of the training loss in the trainable variables, estimated from each minibatch of an epoch.

        Before that the minibatch's sites are updated, and q with them. Hyperparameters may change between minibatches;
        what the other rows add to q follows them when this is called anew, for the next epoch.

        :param batch_size: rows of a minibatch.
        :param damping: the fraction of an update that is taken, less where B would not be proper.
        :param seed: of the partition.
        :raises ValueError: naming the argument that cannot be used.
        """
        batch_size = validation.positive_integer(batch_size, "batch_size")
        damping = validation.fraction(damping, "damping")
        return self._epoch(batch_size, damping, seed)

    def _epoch(self, batch_size: int, damping: float, seed: int) -> Iterator[list[tf.Tensor]]:
        structure = self._current_structure()
        sums, look = self._updates(structure)
        self._fingerprint.assign([np.nan])
        state, _ = proper_start(self._sites, sums(), look.exact)
        order = np.random.default_rng(seed).permutation(int(self.num_data)).astype(np.int32)
        A, c, fraction = state.A, state.c, tf.constant(damping, default_float())
        for start in range(0, len(order), batch_size):
            A, c, gradients = self._minibatch(structure, A, c, tf.constant(order[start : start + batch_size]), fraction)
            yield gradients

    @check_shapes("return: [N]")
    @unconverted
    def loo_log_predictive_density(self) -> tf.Tensor:
        """
        Leave-one-out log predictive density of every observation, summed over its outputs, in nats.

        Row n is predicted from q without its site, which stands in for a fit to the other rows; exactly so where the
        likelihood is Gaussian.

        :raises tf.errors.InvalidArgumentError: where q without a site is not proper.
        """
        self._ensure_fresh()
        return finite(
            self._leave_one_out(self._current_structure()), name="the leave-one-out densities", advice=_ADVICE
        )

    @inherit_check_shapes
    @unconverted
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        The PEP energy at the present sites, whatever they are; its derivatives are those while they stay.

        Where the sites have converged under the KL projection these are the derivatives of the converged energy, since
        it is stationary in the sites. Under the Wasserstein projection it is not: the derivatives are those of the
        published code (Rasmussen and Williams 2006, sec. 5.5.2), which treat the sites' moments as matched. They are
        neither quite the derivatives of the converged energy nor those at fixed sites, but near both.
        """
        variables = floating_variables(self.likelihood)
        value = energy(
            self._rows(self._chunks),
            self._rule,
            self._sites,
            self._checked_alpha(),
            likelihood_variables=variables,
            Kuu=self._inducing_covariance(),
            factorise=self._factorise,
            old_site=lambda L: self._old_site(L, self._checked_alpha()),
        )
        return finite(value, name="the energy", advice=_ADVICE)

    @override
    @check_shapes(
        "return[0]: [M, P]",
        "return[1]: [covariances..., M, M]",
    )
    @unconverted
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and covariance of q(u), without the mean function: of one latent function [M, 1] and [M, M], of several
        [M, P] and [P, M, M].
        """
        self._ensure_fresh()
        return super().compute_qu()

    @override
    def _absorbed(self) -> Carried:
        if self.is_stale:
            self.update_sites()
        return super()._absorbed()

    @override
    def _stream_variables(self) -> dict[str, tf.Variable]:
        sites = {"sites.precision": self._sites.precision, "sites.linear": self._sites.linear}
        return {**super()._stream_variables(), **sites, "sites.updated_for": self._fingerprint}

    @override
    @unconverted
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SitesPosterior:
        self._ensure_fresh()
        return super().posterior(precompute_cache)


def _warm_up_size(num_data: int) -> int:
    """Rows of a batch: at least eight batches, of 64 to 512 rows."""
    return min(max(num_data // 8, 64), 512)
