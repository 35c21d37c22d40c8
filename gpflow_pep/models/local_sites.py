"""A model with a site for every observation: the compiled steps that its updates are made of, and its data."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..derivatives import derivatives
from ..observations import check_observations
from ..sites import (
    LatentRows,
    Look,
    Posterior,
    Sites,
    SiteSums,
    Sweep,
    TiltedRule,
    joint_rule,
    leave_one_out,
    minibatch_objective,
    no_sums,
    old_objective,
    sweep,
    update_rows,
)
from ..statistics import Chunks, OldSite, SomeRows
from ..statistics import SiteSums as Sums
from .freshness import differs, parameter_values, print_when
from .latent_functions import independent_prior
from .power import SinglePower
from .stream import StreamOfBatches

_STALE = (
    "hyperparameters, data or alpha have changed since the sites were last updated: call update_sites(), or construct "
    'the model with when_stale="refresh"'
)


class LocalSites(SinglePower, StreamOfBatches):
    """Sites of a likelihood's observations, how they are swept, and whether they still go with the model."""

    _COMPILED = StreamOfBatches._COMPILED | {"_site_sums", "_look", "_sweep", "_minibatch", "_leave_one_out"}

    _sites: Sites
    _fingerprint: tf.Variable
    _warned = False
    projection: str
    when_stale: str

    @override
    def _sums(self) -> Sums:
        state = self._site_tensors()
        L, (A, c) = state.L, state.total()
        return Sums(L, A, c[..., None]) if self.num_latent_gps > 1 else Sums(L, A[0], c[0][:, None])

    def _site_tensors(self) -> SiteSums:
        L = self._factorise(self._inducing_covariance())
        return SiteSums(L, *self._sites.sums(self._rows(self._chunks), L), self._old_site(L, self._checked_alpha()))

    @override
    def _carried_sums(self) -> Sums:
        state = self._site_tensors()
        A, c = state.total()
        return Sums(state.L, A, c[..., None])

    def _updates(self, structure: int) -> tuple[Callable[[], SiteSums], Look]:
        """The sums of the sites, and a look at all rows under given sums, compiled."""
        rule = self._rule
        is_rough = rule.rough() is not rule
        look = Look(
            rough=lambda state: self._look(structure, is_rough, state),
            exact=lambda state: self._look(structure, False, state),
        )
        return lambda: self._site_sums(structure, self._is_fresh()), look

    def _sweep_in_batches(
        self, structure: int, rng: np.random.Generator, size: int, first: bool, state: SiteSums, damping: float
    ) -> SiteSums:
        """
        The sums after an update of all sites, batch by batch.

        :param first: the sites say nothing yet: a rough rule will do, and rows that have no site yet are taken to be
            like those that have one (Li et al. 2015, Stochastic EP), so that q is soon near where it will be.
        """
        order = tf.constant(rng.permutation(int(self.num_data)), tf.int32)
        swept: SiteSums = self._sweep(
            structure, first, state, order, tf.constant(size), tf.constant(damping, default_float())
        )
        return swept

    def _is_fresh(self) -> bool:
        """Whether the sites say nothing yet."""
        return not any(bool(tf.reduce_any(value != 0.0)) for value in (self._sites.precision, self._sites.linear))

    # Compiled once each: `structure` is a number that changes with the parts that the model is made of.

    @tf.function(autograph=False)
    def _site_sums(self, structure: int, is_fresh: bool) -> SiteSums:
        if not is_fresh:
            return self._site_tensors()
        L = self._factorise(self._inducing_covariance())
        return SiteSums(L, *no_sums(L, self.num_latent_gps), self._old_site(L, self._checked_alpha()))

    @tf.function(autograph=False)
    def _look(self, structure: int, rough: bool, state: SiteSums) -> Sweep:
        rule = self._rule.rough() if rough else self._rule
        return sweep(self._rows(self._chunks), rule, self._sites, state.posterior(), self._checked_alpha())

    @tf.function(autograph=False, reduce_retracing=True)
    def _sweep(
        self,
        structure: int,
        first: bool,
        state: SiteSums,
        order: tf.Tensor,
        size: tf.Tensor,
        damping: tf.Tensor,
    ) -> SiteSums:
        rule = self._rule.rough() if first else self._rule
        num_data = tf.cast(tf.size(order), state.A.dtype)

        def step(start: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
            now = state._replace(A=A, c=c)
            seen = tf.cast(tf.maximum(start, 1), A.dtype)
            under = now.extrapolated(num_data / seen) if first else now
            now = self._updated(now, under, order[start : start + size], rule, damping)
            return start + size, now.A, now.c

        _, A, c = tf.while_loop(
            lambda start, *_: start < tf.size(order), step, (tf.constant(0), state.A, state.c), parallel_iterations=1
        )
        return state._replace(A=A, c=c)

    @tf.function(autograph=False, reduce_retracing=True)
    def _minibatch(
        self, structure: int, A: tf.Tensor, c: tf.Tensor, indices: tf.Tensor, damping: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        variables = self.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            L = self._factorise(self._inducing_covariance())
            old = self._old_site(L, self._checked_alpha())
            with tape.stop_recording():
                state = SiteSums(tf.stop_gradient(L), A, c, OldSite(*map(tf.stop_gradient, old)))
                state = self._updated(state, state, indices, self._rule, damping)
            with tf.control_dependencies([state.A]):  # the sites of the minibatch have been updated
                q = Posterior.of(L, *state.total())
                batch = self._rows(SomeRows(indices, tf.size(indices)))
                objective = minibatch_objective(batch, self._rule, self._sites, q, self._checked_alpha(), self.num_data)
            loss = -objective - old_objective(old, q) - self.log_prior_density()
        return state.A, state.c, list(derivatives(tape, loss, variables))

    def _updated(
        self, state: SiteSums, under: SiteSums, indices: tf.Tensor, rule: TiltedRule, damping: tf.Tensor
    ) -> SiteSums:
        """After an update of the sites of some rows."""
        rows = self._rows(SomeRows(indices, self._chunk_size))
        return update_rows(rows, indices, rule, self._sites, state, under, self._checked_alpha(), damping)

    @tf.function(autograph=False)
    def _leave_one_out(self, structure: int) -> tf.Tensor:
        return leave_one_out(self._rows(self._chunks), self._rule, self._sites, self._site_tensors())

    def _rows(self, chunks: Chunks) -> LatentRows:
        return LatentRows(
            self._data, chunks, self.kernel, self.inducing_variable, self.mean_function, self.num_latent_gps
        )

    @property
    def _rule(self) -> TiltedRule:
        return joint_rule(self.projection, self.likelihood)

    # --- data and staleness ------------------------------------------------------------------------------------------

    @override
    def _checked_prior(
        self, kernel: Kernel, inducing_variable: InducingPointsLike, num_inputs: int, num_latent_gps: int
    ) -> InducingVariables:
        return independent_prior(kernel, inducing_variable, num_inputs, num_latent_gps)

    @override
    def _validated(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        return observed(data, self.likelihood)

    @override
    def _new_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        self._sites.reset(len(X))
        self._fingerprint.assign([np.nan])

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._resizable_variables(), *self._sites.variables, self._fingerprint

    @override
    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.projection

    def _parameter_values(self) -> tf.Tensor:
        return parameter_values(self._alpha, *self._parts(), settings=self._settings())

    def _ensure_fresh(self) -> None:
        if not tf.executing_eagerly():
            print_when(differs(self._parameter_values(), self._fingerprint), _STALE)
        elif self.is_stale and self.when_stale == "refresh":
            self.update_sites()
        elif self.is_stale and not self._warned:
            self._warned = True
            warnings.warn(_STALE, stacklevel=3)


def observed(data: Any, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
    """The pair (X, Y) as arrays that the likelihood accepts, or an error that says what it does not."""
    X, Y = validation.regression_data(data)
    check_observations(likelihood, Y)
    return X, Y
