"""
Random models of every kind against themselves and each other: relations that hold whatever the
numbers are.

A case makes a model from random data and parameters over many orders of magnitude, and a second one
to which it is related: with the rows in another order, other units or another origin of the inputs,
other units of the outputs, other chunks, exchanged labels; a copy, a compiled function; or another
class that is the same thing here. Objective and predictions must agree. What rounding explains is
measured: the change by a lengthscale longer by 1e-12. All follows from the seed of the case.

    python -m campaign.relations [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Gaussian, Poisson, StudentT

from campaign.running import Campaign, Outcome, Rng, guarded, judged
from gpflow_pep import (
    APEP,
    ARPEP,
    BTSGPR,
    BTSVGP,
    PEP,
    PEPR,
    PEPSVGP,
    RPAPEP,
    TSGPR,
    TSVGP,
    MultiClassRobustMax,
    PEPClassifier,
    StreamingPEP,
    StreamingSGPR,
    StreamingSVGP,
)
from gpflow_pep.likelihoods import Logit, Probit

_RELATIVE = 1e-6  # what is tolerated where nothing is ill-conditioned
# A relative change of a lengthscale, and how many times its effect is tolerated.
_LONGER = 1e-12
_AMPLIFIED = 300.0


class Case(NamedTuple):
    """The parts of a model."""

    seed: int
    model: str
    likelihood: str
    relation: str
    X: AnyNDArray
    Y: AnyNDArray
    Z: AnyNDArray
    Xnew: AnyNDArray
    alpha: float
    variance: float
    lengthscale: float
    noise: float
    q: tuple[AnyNDArray, AnyNDArray]
    """q_mu and q_sqrt of models that have them."""


class Found(NamedTuple):
    """The compared results."""

    objective: AnyNDArray
    mean: AnyNDArray
    variance: AnyNDArray


LIKELIHOODS: dict[str, Callable[[float], gpflow.likelihoods.Likelihood]] = {
    "Gaussian": Gaussian,
    "Probit": lambda noise: Probit(),
    "Logit": lambda noise: Logit(),
    "robust-max": lambda noise: MultiClassRobustMax(3),
    "Poisson": lambda noise: Poisson(),
    "Student-t": lambda noise: StudentT(scale=np.sqrt(noise)),
}
BINARY = ("Probit", "Logit")
# Regression models, and names of arguments besides the noise variance.
REGRESSION: dict[str, tuple[Any, tuple[str, ...]]] = {
    "PEPR": (PEPR, ("alpha",)),
    "PEPR blocks": (PEPR, ("alpha", "blocks")),
    "TSGPR": (TSGPR, ()),
    "BTSGPR": (BTSGPR, ("blocks",)),
    "StreamingSGPR": (StreamingSGPR, ("alpha",)),
}
SITES = {"PEP": PEP, "StreamingPEP": StreamingPEP, "PEPClassifier": PEPClassifier}
_TIED = {"APEP": APEP, "ARPEP": ARPEP, "RPAPEP": RPAPEP}
_WITHOUT_ALPHA = {"TSVGP": TSVGP, "BTSVGP": BTSVGP, "StreamingSVGP": StreamingSVGP}
MINIBATCH = {"PEPSVGP": PEPSVGP, **_TIED, **_WITHOUT_ALPHA}
MODELS = (*REGRESSION, *SITES, *MINIBATCH)
GAUSSIAN = (*REGRESSION, "BTSVGP", "PEPSVGP")
"""Models whose observations have Gaussian noise."""


def _blocks(case: Case) -> AnyNDArray:
    """
    Labels of blocks that go with the rows: by their first input, whatever its unit and origin.
    """
    order = np.argsort(np.argsort(case.X[:, 0], kind="stable"))
    return order // 3


def kernel_of(case: Case) -> gpflow.kernels.Kernel:
    """Make the kernel of a case."""
    constructor = (gpflow.kernels.SquaredExponential, gpflow.kernels.Matern52)[case.seed % 2]
    return constructor(case.variance, case.lengthscale)


def make(case: Case, **options: Any) -> Any:
    """Make the model of a case, with other arguments in place of those of the case."""
    parts = {"kernel": kernel_of(case), "inducing_variable": case.Z}
    if "likelihood" not in options and case.model not in REGRESSION:
        parts["likelihood"] = LIKELIHOODS[case.likelihood](case.noise)
    if case.model in MINIBATCH:
        q_mu, q_sqrt = case.q
        parts |= {"num_data": len(case.X), "num_latent_gps": q_mu.shape[1]}
        parts |= {"q_mu": q_mu, "q_sqrt": q_sqrt}
        if case.model not in _WITHOUT_ALPHA:
            parts["alpha"] = case.alpha
        return MINIBATCH[case.model](**parts | options)
    parts["data"] = (case.X, case.Y)
    if case.model in SITES:
        return SITES[case.model](**parts | {"alpha": case.alpha, "tol": 1e-9} | options)
    if "likelihood" not in options:
        parts["noise_variance"] = case.noise
    constructor, names = REGRESSION[case.model]
    given = {"alpha": case.alpha, "blocks": _blocks(case)}
    return constructor(**parts | {name: given[name] for name in names} | options)


def batch_of(case: Case, model: Any) -> tuple[Any, ...]:
    """Return the rows for a model that takes them from outside; otherwise nothing."""
    return () if hasattr(model, "data") else ((tf.constant(case.X), tf.constant(case.Y)),)


def found_by(case: Case, model: Any, *, compiled: bool = False) -> Found:
    """Compute objective and predictions by a model of the rows of a case."""

    def numbers() -> tuple[tf.Tensor, ...]:
        objective = model.maximum_log_likelihood_objective(*batch_of(case, model))
        return objective, *model.predict_f(tf.constant(case.Xnew))

    compute = tf.function(numbers, autograph=False) if compiled else numbers
    return Found(*(each.numpy() for each in compute()))


# --- relations: from a case and what its model finds to what must be found as well, and what is ---

Compared = tuple[Found, Found, Any]
Relation = Callable[[Case, Any, Found, Rng], Compared]


def _rows(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    order = rng.permutation(len(case.X))
    return _with(found, case._replace(X=case.X[order], Y=case.Y[order]))


def _with(expected: Found, case: Case, **options: Any) -> Compared:
    model = make(case, **options)
    return expected, found_by(case, model), model


def _units(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    s = 10.0 ** rng.uniform(-4.0, 4.0)
    other = case._replace(
        X=s * case.X, Z=s * case.Z, Xnew=s * case.Xnew, lengthscale=s * case.lengthscale
    )
    return _with(found, other)


def _origin(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    """A grid of 2^-20 of the lengthscale moves by a power of two without rounding."""
    unit = 2.0 ** np.round(np.log2(case.lengthscale) - 20.0)
    near = [unit * np.round(values / unit) for values in (case.X, case.Z, case.Xnew)]
    shift = unit * 2.0 ** rng.integers(20, 32)
    there = case._replace(X=near[0], Z=near[1], Xnew=near[2])
    far = case._replace(X=near[0] + shift, Z=near[1] + shift, Xnew=near[2] + shift)
    return _with(found_by(there, make(there)), far)


def _outputs(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    """The jitter has a unit as well, and a noise variance a least value."""
    s = max(10.0 ** rng.uniform(-4.0, 4.0), np.sqrt(2e-6 / case.noise))
    expected = Found(
        found.objective - len(case.Y) * np.log(s), s * found.mean, s * s * found.variance
    )
    with gpflow.config.as_context(gpflow.config.Config(jitter=s * s * gpflow.default_jitter())):
        return _with(
            expected,
            case._replace(Y=s * case.Y, variance=s * s * case.variance, noise=s * s * case.noise),
        )


def _columns(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    expected = Found(2.0 * found.objective, *(np.repeat(each, 2, axis=1) for each in found[1:]))
    return _with(expected, case._replace(Y=np.repeat(case.Y, 2, axis=1)))


def _chunks(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    return _with(found, case, chunk_size=int(rng.integers(1, len(case.X) + 2)))


def _copied(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    twin = copy.deepcopy(model)
    return found, found_by(case, twin), twin


def _compiled(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    return found, found_by(case, model, compiled=True), model


def _labels(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    if case.likelihood == "robust-max":
        order = rng.permutation(3)  # class k becomes order[k]
        columns = np.argsort(order)
        expected = Found(found.objective, found.mean[:, columns], found.variance[:, columns])
        q = case.q[0][:, columns], case.q[1][columns]
        return _with(expected, case._replace(Y=order[case.Y.astype(int)].astype(float), q=q))
    expected = found._replace(mean=-found.mean)
    return _with(expected, case._replace(Y=1.0 - case.Y, q=(-case.q[0], case.q[1])))


def _sibling(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    """Another class, or its settings, that is the same thing here."""
    kernel = kernel_of(case)
    Z = case.Z
    data = (case.X, case.Y)
    siblings: dict[str, Callable[[], Any]] = {
        "PEPR": lambda: PEPR(
            data, kernel, Z, alpha=case.alpha, noise_variance=case.noise, blocks=1
        ),
        "TSGPR": lambda: BTSGPR(data, kernel, Z, noise_variance=case.noise, blocks=1),
        "StreamingSGPR": lambda: PEPR(data, kernel, Z, alpha=case.alpha, noise_variance=case.noise),
        "StreamingPEP": lambda: make(case._replace(model="PEP")),
        "PEP": lambda: PEPR(data, kernel, Z, alpha=case.alpha, noise_variance=case.noise),
    }
    other = siblings[case.model]()
    return found, found_by(case, other), other


def _batches(case: Case, model: Any, found: Found, rng: Rng) -> Compared:
    """Two batches: the online evidences add up to that of all rows, and q is that of all rows."""
    n = int(rng.integers(1, len(case.X)))
    first = make(case._replace(X=case.X[:n], Y=case.Y[:n]))
    begin = first.maximum_log_likelihood_objective().numpy()
    first.update((case.X[n:], case.Y[n:]))
    rest = found_by(case, first)
    return found, rest._replace(objective=rest.objective + begin), first


class Related(NamedTuple):
    """A relation, and the models and likelihoods that it holds for."""

    relation: Relation
    models: Sequence[str] = MODELS
    likelihoods: Sequence[str] = tuple(LIKELIHOODS)


_WITH_DATA = (*REGRESSION, *SITES)
RELATIONS = {
    "order of rows": Related(_rows),
    "units of inputs": Related(_units),
    "origin of inputs": Related(_origin),
    "units of outputs": Related(_outputs, _WITH_DATA, ["Gaussian"]),
    "columns of outputs": Related(_columns, _WITH_DATA, ["Gaussian"]),
    "chunks": Related(_chunks, _WITH_DATA),
    "copy": Related(_copied),
    "compiled": Related(_compiled),
    "labels": Related(_labels, MODELS, [*BINARY, "robust-max"]),
    "another class": Related(_sibling, ["PEPR", "TSGPR", "StreamingSGPR", "StreamingPEP"]),
    "sites of Gaussian noise": Related(_sibling, ["PEP"], ["Gaussian"]),
    "batches": Related(_batches, ["StreamingSGPR"]),
}


def _possible(model: str) -> list[str]:
    """Return the likelihoods that a model takes."""
    if model in GAUSSIAN:
        return ["Gaussian"]
    if model == "PEPClassifier":
        return [*BINARY, "robust-max"]
    return [name for name in LIKELIHOODS if model != "TSVGP" or name != "robust-max"]


def drawn(
    seed: int,
    rng: Rng,
    models: Sequence[str] = MODELS,
    likelihoods: Sequence[str] = tuple(LIKELIHOODS),
    spread: float = 1.0,
) -> Case:
    """
    Draw a case without a relation.

    :param spread: of parameters, on a logarithmic scale.
    """
    model = models[rng.integers(len(models))]
    likelihood = str(rng.choice([name for name in _possible(model) if name in likelihoods]))
    N = int(rng.integers(1, 30)) + 1
    M = int(rng.integers(1, 7))
    D = int(rng.integers(1, 4))
    X, Z, Xnew = (rng.normal(size=(rows, D)) for rows in (N, M, 5))
    variance = 10.0 ** (spread * rng.uniform(-2.0, 2.0))
    lengthscale = 10.0 ** (spread * rng.uniform(-1.0, 1.0))
    f = np.sin(2.0 * X[:, :1]) * np.sqrt(variance) + 0.3 * rng.normal(size=(N, 1))
    observed: dict[str, Callable[[], AnyNDArray]] = {
        "Probit": lambda: f > 0.0,
        "Logit": lambda: f > 0.0,
        "robust-max": lambda: rng.integers(0, 3, size=(N, 1)),
        "Poisson": lambda: rng.poisson(np.exp(np.clip(f, -3.0, 2.0))),
    }
    Y = observed.get(likelihood, lambda: f)().astype(float)
    C = 3 if likelihood == "robust-max" else 1
    q = 0.5 * rng.normal(size=(M, C)), np.tril(0.2 * rng.normal(size=(C, M, M))) + np.eye(M)
    alpha = float(rng.choice([0.0, 0.01, 0.3, 0.5, 1.0]))
    noise = 10.0 ** (spread * rng.uniform(-4.0, 1.0))
    return Case(
        seed, model, likelihood, "", X, Y, Z, Xnew, alpha, variance, lengthscale, noise, q
    )  # fmt: skip


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng([seed, 7])
    case = drawn(seed, rng)
    possible = [
        name
        for name, (_, models, likelihoods) in RELATIONS.items()
        if case.model in models and case.likelihood in likelihoods
    ]
    return case._replace(relation=str(rng.choice(possible)))


def run(case: Case) -> Outcome:
    """Make both models of a case, and judge how they agree."""
    return guarded(lambda: _judged(case))


def _judged(case: Case) -> Outcome:
    model = make(case)
    found = found_by(case, model)
    if not converged(model):
        return Outcome("not converged", np.nan, "")
    expected, obtained, other = RELATIONS[case.relation].relation(
        case, model, found, np.random.default_rng([case.seed, 8])
    )
    if not converged(other):
        return Outcome("not converged", np.nan, "")
    model.kernel.lengthscales.assign(case.lengthscale * (1.0 + _LONGER))
    moved = [
        np.max(np.abs(one - two)) / (np.max(np.abs(two)) + 1e-300)
        for one, two in zip(found_by(case, model), found, strict=True)
    ]
    errors = {}
    for name, want, have, effect in zip(Found._fields, expected, obtained, moved, strict=True):
        size = np.max(np.abs(want)) + (
            len(case.X) if name == "objective" else np.sqrt(np.max(expected.variance))
        )
        errors[name] = float(
            np.max(np.abs(want - have)) / (size * (_RELATIVE + _AMPLIFIED * effect))
        )
    return judged(errors)


def converged(model: Any) -> bool:
    """Return whether the sites of a model, if any, have converged."""
    return not isinstance(model, PEP) or model.sites_status.converged


CAMPAIGN = Campaign(
    run,
    words=lambda case: (case.model, case.likelihood, case.relation),
    verdicts=("right", "refused", "not converged"),
)

if __name__ == "__main__":
    CAMPAIGN.main(__doc__, case_of, 1000)
