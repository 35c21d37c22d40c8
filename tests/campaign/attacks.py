"""
Random attacks on models and streams: a part, a parameter, a setting or the data are replaced,
copied or assigned; rows come in another order, numbers in other units.

A case is one of the attacks on a random model. It must give the numbers of a model constructed anew
with the part that was replaced, or those of the model in the first units. The seed of a case
determines it. That values which a model cannot use are refused, by the name of the argument, is
tested in tests/contracts/test_refusals.py; copies and compiled functions are tested in
tests/contracts.

    python -m campaign.attacks [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import pickle
import re
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.utilities import multiple_assign, parameter_dict, positive

from campaign.cases import (
    BINARY,
    LIKELIHOODS,
    MINIBATCH,
    MODELS,
    REGRESSION,
    SITES,
    Case,
    Found,
    converged,
    drawn,
    found_by,
    kernel_of,
    make,
)
from campaign.running import Campaign, Outcome, Rng, options

_TOLERANCE = 1e-6  # relative; sites converge to 1e-9
_SPREAD = 0.3  # of parameters, so that nothing is ill-conditioned
_NUMERICAL = (
    r"not successful: (Kuu|B)\b|variance of f given u|lengthscales of their mean|"
    "sites cannot be updated"
)

Pair = tuple[Found, Found]
"""The numbers found and the expected numbers."""
Act = Callable[[Case, Any, Rng], Pair]
"""Attacks a model."""


class Attack(NamedTuple):
    """Something that a user may do to a model."""

    act: Act
    models: Sequence[str] = MODELS
    likelihoods: Sequence[str] = tuple(LIKELIHOODS)


def one_of(rng: Rng, values: Sequence[Any]) -> Any:
    """Draw one of any objects."""
    return values[int(rng.integers(len(values)))]


def _both(case: Case, model: Any, other: Any) -> Pair:
    return found_by(case, model), found_by(case, other)


# --- what replaces a part -------------------------------------------------------------------------


def _kernel(case: Case, rng: Rng) -> gpflow.kernels.Kernel:
    constructor = one_of(rng, [gpflow.kernels.Matern32, gpflow.kernels.Matern52])
    return constructor(rng.uniform(0.5, 2.0), lengthscales=rng.uniform(0.5, 2.0, case.X.shape[1]))


def _likelihood(case: Case, rng: Rng) -> gpflow.likelihoods.Likelihood:
    names: Sequence[str] = [case.likelihood]  # of another noise variance
    if case.likelihood in BINARY:
        names = BINARY
    elif case.model in ("PEP", "StreamingPEP", "APEP", "ARPEP", "RPAPEP"):
        names = ("Gaussian", "Student-t")
    return LIKELIHOODS[one_of(rng, names)](rng.uniform(0.1, 1.0))


def _mean_function(case: Case, rng: Rng) -> gpflow.functions.Function:
    linear = gpflow.functions.Linear(rng.normal(size=(case.X.shape[1], 1)), rng.normal(size=1))
    return one_of(rng, [linear, gpflow.functions.Constant(np.ones(1)), None])


def _points(case: Case, rng: Rng) -> Any:
    Z = rng.normal(size=(int(rng.integers(2, 6)), case.X.shape[1]))
    return one_of(rng, [Z, Z.tolist(), InducingPoints(Z)])


def _alpha(case: Case, rng: Rng) -> Any:
    alpha = rng.uniform(0.0, 0.6)
    return one_of(rng, [alpha, np.array(alpha), tf.constant(alpha, tf.float64)])


def _scale(case: Case, rng: Rng) -> Any:
    scale = rng.uniform(0.5, 2.0)
    parameter = gpflow.Parameter(scale, transform=positive())
    return one_of(rng, [scale, tf.constant(scale, tf.float64), parameter])


def _fewer_rows(case: Case, rng: Rng) -> Any:
    X = case.X[:-1]
    Y = case.Y[:-1]
    return one_of(rng, [(X, Y), (X.tolist(), Y.tolist()), (tf.constant(X), np.asfortranarray(Y))])


def _q_mu(case: Case, rng: Rng) -> Any:
    q_mu = rng.normal(size=case.q[0].shape)
    return one_of(rng, [q_mu, q_mu.tolist(), tf.constant(q_mu)])


def _replaced(name: str, draw: Callable[[Case, Rng], Any]) -> Act:
    """Assign an attribute; a model constructed with it is the same."""

    def act(case: Case, model: Any, rng: Rng) -> Pair:
        value = draw(case, rng)
        setattr(model, name, value)
        return _both(case, model, make(case, **{name: value}))

    return act


# --- other attacks on a model ---------------------------------------------------------------------


def _changed_kernel(change: Callable[[Any, Case, Rng], None]) -> Act:
    """Change the kernel in its place; a model constructed with it is the same."""

    def act(case: Case, model: Any, rng: Rng) -> Pair:
        change(model.kernel, case, rng)
        return _both(case, model, make(case, kernel=model.kernel))

    return act


def _lengthscale_per_column(kernel: Any, case: Case, rng: Rng) -> None:
    lengthscales = rng.uniform(0.5, 2.0, case.X.shape[1])
    kernel.lengthscales = gpflow.Parameter(lengthscales, transform=positive())


def _assigned(kernel: Any, case: Case, rng: Rng) -> None:
    kernel.lengthscales.assign(rng.uniform(0.3, 3.0))


def _tensor_for_parameter(kernel: Any, case: Case, rng: Rng) -> None:
    """A tensor is a value that is not trained."""
    kernel.variance = tf.constant(rng.uniform(0.5, 2.0), tf.float64)


def _shared_kernel(case: Case, model: Any, rng: Rng) -> Pair:
    """Another model of the same kernel object has another part afterwards."""
    second = make(case, kernel=model.kernel)
    found_by(case, second)
    second.kernel = _kernel(case, rng)
    model.kernel.variance.assign(rng.uniform(0.5, 2.0))
    return _both(case, model, make(case, kernel=model.kernel))


def _points_as_parameter(case: Case, model: Any, rng: Rng) -> Pair:
    Z = rng.normal(size=(int(rng.integers(2, 6)), case.X.shape[1]))
    model.inducing_variable.Z = gpflow.Parameter(Z)
    return _both(case, model, make(case, inducing_variable=Z))


def _pickled(case: Case, model: Any, rng: Rng) -> Pair:
    return _both(case, pickle.loads(pickle.dumps(model)), model)


def _assigned_from_another(case: Case, model: Any, rng: Rng) -> Pair:
    other = make(case._replace(variance=rng.uniform(0.5, 2.0)))
    multiple_assign(model, parameter_dict(other))
    return _both(case, model, other)


# --- the same numbers in another form -------------------------------------------------------------


def _as_in(other: Case, case: Case, model: Any) -> Pair:
    """A case that has the numbers of the model, and those."""
    return found_by(other, make(other)), found_by(case, model)


def _order_of_rows(case: Case, model: Any, rng: Rng) -> Pair:
    order = rng.permutation(len(case.X))
    return _as_in(case._replace(X=case.X[order], Y=case.Y[order]), case, model)


def _in_units(case: Case, s: float) -> Case:
    return case._replace(
        X=s * case.X, Z=s * case.Z, Xnew=s * case.Xnew, lengthscale=s * case.lengthscale
    )


def _units_of_inputs(case: Case, model: Any, rng: Rng) -> Pair:
    return _as_in(_in_units(case, 10.0 ** rng.uniform(-4.0, 4.0)), case, model)


def _origin_of_inputs(case: Case, model: Any, rng: Rng) -> Pair:
    """A grid of 2^-20 moves by a power of two without rounding."""
    near = {name: 2.0**-20 * np.round(2.0**20 * getattr(case, name)) for name in ("X", "Z", "Xnew")}
    shift = 2.0 ** rng.integers(0, 12)
    there = case._replace(**near)
    far = case._replace(**{name: values + shift for name, values in near.items()})
    return _as_in(far, there, make(there))


def _units_of_outputs(case: Case, model: Any, rng: Rng) -> Pair:
    """The jitter has a unit as well, and a noise variance a least value."""
    s = 10.0 ** rng.uniform(-2.0, 2.0)
    in_units = case._replace(Y=s * case.Y, variance=s * s * case.variance, noise=s * s * case.noise)
    with gpflow.config.as_context(gpflow.config.Config(jitter=s * s * gpflow.default_jitter())):
        found = found_by(in_units, make(in_units))
    density = found.objective + len(case.Y) * np.log(s)
    return Found(density, found.mean / s, found.variance / s**2), found_by(case, model)


# --- streams --------------------------------------------------------------------------------------


def _streamed(case: Case) -> Any:
    """Make a stream of every other row, and give it the others."""
    model = make(case, data=(case.X[::2], case.Y[::2]))
    model.update((case.X[1::2], case.Y[1::2]))
    return model


def _copied_stream(case: Case, model: Any, rng: Rng) -> Pair:
    """A copied or pickled stream continues as the stream does."""
    model = _streamed(case)
    other = one_of(rng, [deepcopy, lambda each: pickle.loads(pickle.dumps(each))])(model)
    for each in (model, other):
        each.update((case.X, case.Y))
    return _both(case, other, model)


def _kernel_between_batches(case: Case, model: Any, rng: Rng) -> Pair:
    """
    A new kernel acts as its values assigned to the old one: the old posterior, a factor on the old
    points, stays.
    """
    model = _streamed(case)
    other = _streamed(case)
    kernel = kernel_of(case._replace(variance=1.1 * case.variance))
    model.kernel = kernel
    multiple_assign(other.kernel, parameter_dict(kernel))
    return _both(case, model, other)


def _same_points(case: Case, model: Any, rng: Rng) -> Pair:
    """New points that are the old points, in any form, are an update without points."""
    model = _streamed(case)
    other = _streamed(case)
    Z = case.Z
    model.update((case.X, case.Y), one_of(rng, [Z, Z.tolist(), tf.constant(Z), InducingPoints(Z)]))
    other.update((case.X, case.Y))
    return _both(case, model, other)


def _two_batches(case: Case, model: Any, rng: Rng) -> Pair:
    """The online evidences add up to that of all rows, and q is that of all rows."""
    n = int(rng.integers(1, len(case.X)))
    stream = make(case, data=(case.X[:n], case.Y[:n]))
    begin = stream.maximum_log_likelihood_objective().numpy()
    stream.update((case.X[n:], case.Y[n:]))
    rest = found_by(case, stream)
    return rest._replace(objective=rest.objective + begin), found_by(case, model)


_ONE_BLOCK = ("PEPR", "TSGPR", "StreamingSGPR")
_MOVING = ("PEPR", "TSGPR", "PEP", "PEPClassifier")
_STREAMS = ("StreamingSGPR", "StreamingPEP")
_WITH_ALPHA = ("PEPR", "StreamingSGPR", *SITES, "PEPSVGP", "APEP", "ARPEP", "RPAPEP")
ATTACKS = {
    "kernel replaced": Attack(_replaced("kernel", _kernel)),
    "likelihood replaced": Attack(
        _replaced("likelihood", _likelihood), likelihoods=["Gaussian", *BINARY]
    ),
    "mean function replaced": Attack(
        _replaced("mean_function", _mean_function), likelihoods=["Gaussian", *BINARY]
    ),
    "inducing variable replaced": Attack(_replaced("inducing_variable", _points), _MOVING),
    "alpha assigned": Attack(_replaced("alpha", _alpha), _WITH_ALPHA),
    "scale assigned": Attack(
        _replaced("scale", _scale), ["PEPR", "PEP", "PEPClassifier", "PEPSVGP", "ARPEP"]
    ),
    "data replaced by fewer rows": Attack(_replaced("data", _fewer_rows), [*_ONE_BLOCK, *SITES]),
    "q_mu assigned": Attack(_replaced("q_mu", _q_mu), MINIBATCH),
    "lengthscale per column": Attack(_changed_kernel(_lengthscale_per_column)),
    "lengthscale assigned": Attack(_changed_kernel(_assigned)),
    "tensor where the kernel has a parameter": Attack(_changed_kernel(_tensor_for_parameter)),
    "kernel shared with another model": Attack(_shared_kernel),
    "inducing points replaced": Attack(_points_as_parameter, _MOVING),
    "pickled": Attack(_pickled),
    "values of another model assigned": Attack(_assigned_from_another),
    "rows in another order": Attack(_order_of_rows),
    "units of inputs": Attack(_units_of_inputs),
    "origin of inputs": Attack(_origin_of_inputs),
    "units of outputs": Attack(
        _units_of_outputs, [*REGRESSION, "PEP", "StreamingPEP"], ["Gaussian"]
    ),
    "two batches": Attack(_two_batches, ["StreamingSGPR"]),
    "copied between batches": Attack(_copied_stream, _STREAMS),
    "kernel replaced between batches": Attack(_kernel_between_batches, _STREAMS),
    "points that stay": Attack(_same_points, _STREAMS),
}


def name_of(seed: int) -> str:
    """Return the name of the attack of a seed: the attacks follow each other."""
    return list(ATTACKS)[seed % len(ATTACKS)]


def run(seed: int) -> Outcome:
    """Attack the model of a seed, without warnings; an error for numerical reasons is a refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _judged(seed)
        except Exception as error:
            named = isinstance(error, tf.errors.InvalidArgumentError) and re.search(
                _NUMERICAL, str(error)
            )
            message = f"{type(error).__name__}: {error}"[:300]
            return Outcome("refused" if named else "raw error", np.nan, message)


def _judged(seed: int) -> Outcome:
    attack = ATTACKS[name_of(seed)]
    rng = np.random.default_rng([seed, 11])
    case = drawn(seed, rng, attack.models, attack.likelihoods, _SPREAD)
    model = make(case)
    found_by(case, model)
    found, expected = attack.act(case, model, rng)
    if not converged(model):
        return Outcome("not converged", np.nan, case.model)
    errors = {
        name: np.abs(one - two).max() / (_TOLERANCE * (1.0 + np.abs(two).max()))
        for name, one, two in zip(Found._fields, found, expected, strict=True)
    }
    worst = max(errors, key=lambda name: errors[name] if np.isfinite(errors[name]) else np.inf)
    verdict = "right" if errors[worst] <= 1.0 else f"wrong {worst}"
    if not np.isfinite(errors[worst]):
        verdict = "not finite"
    return Outcome(verdict, float(errors[worst]), f"{case.model}, {case.likelihood}")


def main() -> None:
    """Run the case of each seed, and print how they ended."""
    arguments = options(__doc__, 1000).parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.cases)
    campaign = Campaign(run, lambda seed: (name_of(seed),), ("right", "refused", "not converged"))
    campaign.print_table(campaign.run_all(seeds, arguments))


if __name__ == "__main__":
    main()
