"""The training of a model, and its end: the result, the evidence and the posterior."""

from dataclasses import replace
from typing import NamedTuple

from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..maths.linalg import unreported
from ..models import PEP, PEPR
from ..runtime import compiled, functions_of_model, with_plain_errors
from ..training import FitResult, uninterrupted
from ..training.fitting import train
from ..training.objectives import TrainingStep, without_warnings
from ..training.options import FitOptions

PosteriorValues = tuple[AnyNDArray, ...]  # cache of a `WhitenedPosterior`


class Training(NamedTuple):
    """The end of a training."""

    result: FitResult | None
    evidence: float  # the objective without priors
    values: PosteriorValues


def joined(first: FitResult, second: FitResult) -> FitResult:
    """Return the result of two trainings, the second from the end of the first."""
    return replace(
        second,
        iterations=first.iterations + second.iterations,
        recorded=first.recorded + tuple(first.iterations + each for each in second.recorded),
        objective=first.objective + second.objective,
        seconds=first.seconds + second.seconds,
    )


def trained(model: GPModel, options: FitOptions | None) -> Training:
    """
    Train a model with these options (None: converge its sites); return result, objective and
    posterior.
    """
    result = None
    if options is not None:
        result = uninterrupted(train(model, options))
    return ended(model, result, options)


def ended(model: GPModel, result: FitResult | None, options: FitOptions | None) -> Training:
    """Return the end of a training with this result, if any: the objective and the posterior."""
    # Adam's last objective belongs to the parameters before its last step.
    has_last = options is not None and options.optimizer != "adam"
    # `_keep` warns, `result.reason` has the jitter.
    with without_warnings(model), unreported():
        values = _posterior_values(model, result)
    if isinstance(model, PEP):
        evidence = model.sites_status.log_evidence
    elif result is not None and result.objective and has_last:
        evidence = result.objective[-1] - TrainingStep(model).log_prior_density()
    else:  # no training, or the first step failed
        evidence = float(model.maximum_log_likelihood_objective())
    return Training(result, evidence, values)


def _posterior_values(model: GPModel, result: FitResult | None) -> PosteriorValues:
    """Return the cache of the posterior; compile it for a `PEPR`, which later fits may reuse."""
    if isinstance(model, PEP) and result is not None:  # training has updated the sites
        return tuple(value.numpy() for value in model._values_at_sites())
    if type(model) is not PEPR:
        return tuple(value.numpy() for value in model.posterior().cache)
    functions = functions_of_model(model, "_posterior_values")
    compute = functions.setdefault("values", compiled(model.posterior_values))
    return tuple(value.numpy() for value in with_plain_errors(compute))
