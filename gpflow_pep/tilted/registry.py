"""The registry of rules: :data:`tilted_rule` dispatches on the classes of the likelihood and of the projection."""

from typing import ClassVar

from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.utilities import Dispatcher

from .rule import EachLatent, TiltedRule

tilted_rule = Dispatcher("tilted_rule")
"""
From a likelihood and a :class:`Projection` to the :class:`TiltedRule` that computes its projected tilted distributions.

A rule of a ``ScalarLikelihood`` gets cavities [n] and observations with one column of Y; a rule of another likelihood
gets cavities [C, n]. Register rules of your own with ``@tilted_rule.register(MyLikelihood, KL)``.
"""

_PROJECTIONS: "dict[str, type[Projection]]" = {}


class Projection:
    """
    Base class of projections of a tilted distribution onto a Gaussian.

    A subclass with a `name` is known by that name wherever a projection is chosen.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        other = _PROJECTIONS.get(cls.name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"name must be new for each projection, got {cls.name!r}, which {other.__qualname__} has.")
        _PROJECTIONS[cls.name] = cls


class KL(Projection):
    """Kullback-Leibler divergence (expectation propagation): keep mean and variance of the tilted distribution."""

    name = "kl"


class Wasserstein(Projection):
    """
    L2 Wasserstein distance (quantile propagation, Zhang et al. 2020): keep the mean; the standard deviation minimizes
    the distance between quantiles.
    """

    name = "wasserstein"


def rule_for(likelihood: Likelihood, projection: str | Projection) -> TiltedRule:
    """
    Return the rule of a likelihood, for cavities [C, n] of all its latent functions.

    :param projection: the name of a registered projection, such as "kl" or "wasserstein", or a :class:`Projection`.
    :raises ValueError: for an unknown projection, or a likelihood without a rule for that projection.
    """
    if not isinstance(projection, Projection):
        if projection not in _PROJECTIONS:
            raise ValueError(f"projection must be one of {_names(_PROJECTIONS)}, got {projection!r}.")
        projection = _PROJECTIONS[projection]()
    rule: TiltedRule = tilted_rule(likelihood, projection)
    return EachLatent(rule) if isinstance(likelihood, ScalarLikelihood) else rule


@tilted_rule.register(Likelihood, Projection)
def _no_rule(likelihood: Likelihood, projection: Projection) -> TiltedRule:
    kind = type(likelihood)
    names = [name for name, other in _PROJECTIONS.items() if tilted_rule.dispatch(kind, other) is not _no_rule]
    if names:
        accepted = f'"{names[0]}"' if len(names) == 1 else f"one of {_names(names)}"
        given = getattr(projection, "name", projection)
        raise ValueError(f"projection must be {accepted} for {kind.__name__}, got {given!r}.")
    raise ValueError(
        "likelihood must be a gpflow ScalarLikelihood, MultiClassRobustMax, gpflow.likelihoods.MultiClass, "
        "gpflow.likelihoods.Softmax or registered with gpflow_pep.tilted.tilted_rule: tilted distributions of "
        f"{kind.__name__} are integrals over several latent functions at once, for which the package has no rule."
    )


def _names(names: "dict[str, type[Projection]] | list[str]") -> str:
    return ", ".join(f"{name!r}" for name in names)
