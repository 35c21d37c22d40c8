"""
Rules that compute tilted distributions N(f; m, v) p(y|f)^α, and their registry :data:`tilted_rule`.
"""

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any, ClassVar, NamedTuple, TypeAlias

import tensorflow as tf
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.utilities import Dispatcher
from typing_extensions import override

from ..runtime import (
    Sources,
    Tensors,
    WithGradient,
    derivatives,
    no_autograph,
    once_differentiable,
    watching,
)

Scalar: TypeAlias = float | tf.Tensor  # []
# Tilted distributions are integrated to a relative tolerance of 1e-8; smaller values to 1e-8 times
# this.
NEGLIGIBLE = 1e-4


class Observations(NamedTuple):
    """Inputs and observations of n rows."""

    X: tf.Tensor  # Inputs [n, D]
    Y: tf.Tensor  # Observations [n, P]


class Cavity(NamedTuple):
    """
    The Gaussian that a likelihood tilts, [n] for one latent function, [C, n] for C independent
    latent functions.
    """

    mean: tf.Tensor
    variance: tf.Tensor


class Tilted(NamedTuple):
    """
    Moments of the tilted distribution, in the shape of the cavity.

    With Z = ∫ N(f; m, v) p(y|f)^α df, log_partition is log Z / α (E[log p] for α = 0), and d1 and
    d2 are its first two derivatives in m. Its derivative in v is (d2 + α d1²)/2. The tilted mean is
    m + α v d1.
    """

    log_partition: tf.Tensor  # [1, n] if the likelihood depends on all latent functions jointly
    d1: tf.Tensor
    d2: tf.Tensor
    variance_ratio: tf.Tensor  # Tilted variance over v: 1 + α v d2 without cancellation


class TiltedRule(ABC):
    """
    Base class: compute the tilted distributions of one likelihood and project them onto Gaussians.
    """

    is_shift_invariant = (
        False  #: True if adding a constant to all latent functions does not change p(y|f).
    )
    #: `negligible` of sweeps whose tolerance is 1e-3 or more, as in training.
    negligible_if_loose = NEGLIGIBLE

    @abstractmethod
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        """
        Compute the projected tilted distribution of each row. Gradients do not flow through the
        result.

        :param alpha: power, [] or one per row [n].
        :param negligible: values of log Z / α, d1 √v and d2 v below this number, [], need only be
            accurate to 1e-8 times it. Infinity selects the cheap method for all rows (early sweeps).
        """

    def check(self, observations: Observations, num_latent_gps: int) -> None:  # noqa: B027 (optional hook)
        """
        Raise a ValueError if the rule does not support these observations of C = `num_latent_gps`
        functions.
        """

    def class_probabilities(self, cavity: Cavity, X: tf.Tensor) -> tf.Tensor:
        """
        Compute the probabilities of the labels 0, 1, ..., C - 1, [C, n], for cavities [C, n]; by
        default from :meth:`moments`. Differentiable once in the cavity.
        """
        C = cavity.mean.shape[0]
        n = tf.shape(cavity.mean)[1]
        labels = tf.repeat(tf.range(C, dtype=cavity.mean.dtype), n)[:, None]
        tiled = Cavity(*(tf.tile(value, [1, C]) for value in cavity))
        observations = Observations(tf.tile(X, [C, 1]), labels)
        log_p = log_partition(self, tiled, observations, tf.ones([], labels.dtype))
        return tf.reshape(tf.exp(log_p), [C, n])

    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        bar: tf.Tensor,
        sources: Sources,
    ) -> Tensors:
        """
        Compute the gradient of sum(bar * log_partition) in `sources`, variables of the likelihood or
        X and Y, at fixed cavities: by default by a tape over :meth:`moments`; rules without automatic
        gradients override it.
        """
        with watching(sources) as tape:
            total = tf.reduce_sum(bar * self.moments(cavity, observations, alpha).log_partition)
        return derivatives(tape, total, sources)


def log_partition(
    rule: TiltedRule,
    cavity: Cavity,
    observations: Observations,
    alpha: tf.Tensor,
    *,
    in_observations: bool = False,
) -> tf.Tensor:
    """
    Compute log Z / α, differentiable once in the moments of the cavity, the variables of the
    likelihood and, if asked for, X and Y.
    """
    if isinstance(rule, EachLatent):
        flat = flat_latents(cavity, observations, alpha)
        of_rows = log_partition(rule.of_one, *flat, in_observations=in_observations)
        return tf.reshape(of_rows, tf.shape(cavity.mean))

    @tf.custom_gradient
    def value(mean: tf.Tensor, variance: tf.Tensor, *inputs: tf.Tensor) -> WithGradient:
        fixed = Cavity(mean, variance)
        seen = Observations(*inputs) if inputs else observations
        tilted = rule.moments(fixed, seen, alpha)

        def gradient(bar: tf.Tensor, variables: Any = ()) -> Any:
            in_variance = 0.5 * (tilted.d2 + alpha * tf.square(tilted.d1))
            sources = [*inputs, *variables]
            vjp: Tensors = ()
            if sources:
                vjp = rule.log_partition_vjp(fixed, seen, alpha, bar, sources)
            number = len(inputs)
            bars = once_differentiable(bar * tilted.d1, bar * in_variance, *vjp[:number])
            return bars, list(vjp[number:])

        return tilted.log_partition, gradient

    return value(*cavity, *(observations if in_observations else ()))


class Registry(Dispatcher):
    """
    Functions of a likelihood, found by its class. A subclass that overrides ``_scalar_log_prob``
    does not inherit the function of its base: it has that of `ScalarLikelihood`.
    """

    @override
    def __call__(self, likelihood: Likelihood, *others: object) -> Any:
        kind: type = type(likelihood)
        if overrides_density(likelihood, {first for first, *_ in self.funcs}):
            kind = ScalarLikelihood
        return self.dispatch_or_raise(kind, *map(type, others))(likelihood, *others)


def overrides_density(likelihood: Likelihood, registered: Container[type]) -> bool:
    """
    Return whether the class of a likelihood, or a base before the first registered one, has its own
    `_scalar_log_prob`: what is registered for other bases does not apply to it.
    """
    for kind in type(likelihood).__mro__:
        if kind in registered:
            return False
        if "_scalar_log_prob" in vars(kind):
            return True
    return False


tilted_rule = Registry("tilted_rule")
"""
Registry: returns the :class:`TiltedRule` of a likelihood and a :class:`Projection`.

The rule of a ``ScalarLikelihood`` receives cavities [n] and observations with one column of Y;
rules of all other likelihoods receive cavities [C, n]. Register a rule with
``@tilted_rule.register(MyLikelihood, KL)``. A subclass that overrides ``_scalar_log_prob`` does not
inherit the rule of its base.
"""

_PROJECTIONS: "dict[str, type[Projection]]" = {}


class Projection:
    """
    Base class of projections of a tilted distribution onto a Gaussian; a subclass can be selected
    by its `name`.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        other = _PROJECTIONS.setdefault(cls.name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"name must be unique, got {cls.name!r}, the name of {other.__qualname__}."
            )
        _PROJECTIONS[cls.name] = cls


class KL(Projection):
    """
    Kullback-Leibler divergence (expectation propagation): match mean and variance of the tilted
    distribution.
    """

    name = "kl"


class Wasserstein(Projection):
    """
    L2 Wasserstein distance (quantile propagation, Zhang et al. 2020): match the mean, and quantiles
    best.
    """

    name = "wasserstein"


def rule_for(likelihood: Likelihood, projection: str | Projection) -> TiltedRule:
    """
    Return the rule of a likelihood for cavities [C, n].

    :param projection: the name of a registered projection, such as "kl" or "wasserstein", or a
        :class:`Projection`.
    :raises ValueError: for an unknown projection, or a likelihood without a rule for that
        projection.
    """
    rule = tilted_rule(likelihood, projection_of(projection))
    if isinstance(likelihood, ScalarLikelihood):
        return EachLatent(rule)
    return rule


def projection_of(projection: str | Projection) -> Projection:
    """Return the registered projection of a name, or the projection that is given."""
    if isinstance(projection, Projection):
        return projection
    if projection not in _PROJECTIONS:
        raise ValueError(
            f"projection must be one of {', '.join(map(repr, _PROJECTIONS))}, got {projection!r}."
        )
    return _PROJECTIONS[projection]()


def has_rule(likelihood: Likelihood) -> bool:
    """Return whether a rule for the KL divergence is registered."""
    return tilted_rule.dispatch(type(likelihood), KL) is not _no_rule


@tilted_rule.register(Likelihood, Projection)
def _no_rule(likelihood: Likelihood, projection: Projection) -> TiltedRule:
    kind = type(likelihood)
    names = [
        name
        for name, other in _PROJECTIONS.items()
        if tilted_rule.dispatch(kind, other) is not _no_rule
    ]
    if names:
        accepted = f'"{names[0]}"' if len(names) == 1 else f"one of {', '.join(map(repr, names))}"
        given = getattr(projection, "name", projection)
        raise ValueError(f"projection must be {accepted} for {kind.__name__}, got {given!r}.")
    raise ValueError(
        "likelihood must be a gpflow ScalarLikelihood, MultiClassRobustMax, "
        "gpflow.likelihoods.MultiClass, gpflow.likelihoods.Softmax or registered with "
        "gpflow_pep.tilted.tilted_rule: there is no rule for the joint integral over the latent "
        f"functions of {kind.__name__}."
    )


class EachLatent(TiltedRule):
    """
    Apply the rule of a scalar likelihood to cavities [C, n]: latent function c is observed in
    column c of Y.
    """

    def __init__(self, rule: TiltedRule):
        self.of_one = rule  # for cavities [n]

    @override
    @no_autograph
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        tilted = self.of_one.moments(*flat_latents(cavity, observations, alpha), negligible)
        return Tilted(*(tf.reshape(value, tf.shape(cavity.mean)) for value in tilted))

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        self.of_one.check(_one_column(observations, num_latent_gps), 1)

    @override
    @no_autograph
    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        bar: tf.Tensor,
        sources: Sources,
    ) -> Tensors:
        bar = tf.reshape(tf.broadcast_to(bar, tf.shape(cavity.mean)), [-1])
        return self.of_one.log_partition_vjp(
            *flat_latents(cavity, observations, alpha), bar, sources
        )


def flat_latents(
    cavity: Cavity, observations: Observations, alpha: tf.Tensor
) -> tuple[Cavity, Observations, tf.Tensor]:
    """Flatten cavities [C, n] to [C n]; also return their observations and powers, [C n] or []."""
    C = cavity.mean.shape[0]
    alpha = alpha if alpha.shape.rank == 0 or C == 1 else tf.tile(alpha, [C])
    return (
        Cavity(*(tf.reshape(value, [-1]) for value in cavity)),
        _one_column(observations, C),
        alpha,
    )


def _one_column(observations: Observations, C: int) -> Observations:
    if C == 1:
        return observations
    X, Y = observations
    own = tf.reshape(tf.transpose(Y[:, :C]), [-1, 1])
    shared = tf.tile(Y[:, C:], [C, 1])  # the index of a `SwitchedLikelihood`
    return Observations(tf.tile(X, [C, 1]), tf.concat([own, shared], axis=1))


class AtPower(TiltedRule):
    """
    Use one rule, usually a closed form, for rows with a given power, which may change, and another
    for the rest.
    """

    def __init__(self, power: float, rule: TiltedRule, otherwise: TiltedRule):
        """Use `rule`, which is evaluated for all rows, at this power in [0, 1], but not 0.5."""
        self._power = power
        self._rule = rule
        self._otherwise = otherwise

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        has_power, power, other = self._split(alpha)

        def here() -> Tensors:
            return tuple(self._rule.moments(cavity, observations, power, negligible))

        def otherwise() -> Tensors:
            return tuple(self._otherwise.moments(cavity, observations, other, negligible))

        if alpha.shape.rank == 0:
            return Tilted(*tf.cond(has_power, here, otherwise))
        tilted = here()
        fallback = tf.cond(tf.reduce_all(has_power), lambda: tilted, otherwise)
        return Tilted(
            *(tf.where(has_power, one, two) for one, two in zip(tilted, fallback, strict=True))
        )

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        for rule in (self._rule, self._otherwise):
            rule.check(observations, num_latent_gps)

    @override
    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        bar: tf.Tensor,
        sources: Sources,
    ) -> Tensors:
        has_power, power, other = self._split(alpha)
        bar = tf.broadcast_to(bar, tf.shape(cavity.mean))
        # Rows with another power get a finite cavity: 0 times infinity would be NaN.
        finite = Cavity(
            tf.where(has_power, cavity.mean, 0.0), tf.where(has_power, cavity.variance, 1.0)
        )
        first = self._rule.log_partition_vjp(
            finite, observations, power, tf.where(has_power, bar, 0.0), sources
        )

        def otherwise() -> Tensors:
            rest = tf.where(~has_power, bar, 0.0)
            return self._otherwise.log_partition_vjp(cavity, observations, other, rest, sources)

        second = tf.cond(
            tf.reduce_all(has_power), lambda: tuple(map(tf.zeros_like, first)), otherwise
        )
        return tuple(map(tf.add, first, second))

    def _split(self, alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Return a mask of rows with the power, this power, and powers for the other rule, in the
        shape of `alpha`.
        """
        has_power = tf.equal(alpha, self._power)
        power = tf.fill(tf.shape(alpha), tf.cast(self._power, alpha.dtype))
        # 0.5 where the result is not used.
        return (
            has_power,
            power,
            tf.where(~has_power, alpha, 0.5),
        )
