"""The gradient of the energy under the Wasserstein projection, by implicit differentiation.

Converged sites s are a fixed point of their update F(s, θ), at which the energy E(s, θ) is
stationary under the KL projection only. With λ from the adjoint fixed point, which the iteration of
the sites finds too,

    dE/dθ = ∂E/∂θ + λ' ∂F/∂θ,    λ = ∂E/∂s + (∂F/∂s)' λ.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..engine import InducingPosterior, SiteSums
from ..engine.chunks import Chunk
from ..maths.adaptive_quadrature import Panels
from ..runtime.checks import asserted
from ..runtime.custom_gradients import derivatives
from ..tilted import (
    LogDensity,
    Observations,
    Tilted,
    TiltedRule,
    log_density,
    log_partition,
    rule_for,
)
from ..tilted.rule import flat_latents
from ..tilted.trapezoid import TiltedRows
from ..tilted.wasserstein import fixed_panels, projected_moments
from . import sweep
from .sweep import CavityOfW, Marginals, Problem, Projected, Site, cavity_of_f

_TOLERANCE = 1e-8  # of λ, relative
_MOST_STEPS = 150
_LEAST_POWER = 1e-5  # in F: at α = 0 both projections coincide, and λ is 0


class _Cavities(NamedTuple):
    """The cavities of all rows, in one chunk, at given sites."""

    chunk: Chunk
    q: InducingPosterior
    c: tf.Tensor
    here: Projected
    site: Site
    marginal: Marginals
    w: CavityOfW
    alpha: tf.Tensor

    @classmethod
    def at(cls, problem: Problem, sites: tf.Tensor) -> "_Cavities":
        """Compute the cavities at sites [N, 2, C]."""
        chunk: Any = problem.rows.chunked.only_chunk
        here = problem.projected(chunk)
        site = Site(*sweep.take_pair(sites, chunk))
        alpha = problem.rows.alpha(chunk)
        total = SiteSums(problem.L, *sweep.sum_sites(problem, sites)).with_old(problem.old)
        q = total.posterior()
        marginal = sweep.marginals(q, here.V)
        return cls(
            chunk, q, total.c, here, site, marginal, sweep.cavity_of_w(marginal, site, alpha), alpha
        )

    def energy(self, problem: Problem, kl: TiltedRule) -> tf.Tensor:
        """
        Compute the energy, differentiable also in the sites, by the likelihood's rule `kl` for the
        KL divergence.
        """
        cavity = cavity_of_f(self.w, self.here)
        log_Z = log_partition(kl, cavity, Observations(*self.chunk.data), self.alpha)
        terms = sweep.row_terms(
            self.marginal, self.site, self.w, Tilted(log_Z, log_Z, log_Z, log_Z), self.alpha
        )
        old_terms = 0.0 if problem.old is None else problem.old.terms
        return sweep.log_integral(self.q, self.c) + terms + problem.terms + old_terms

    def rows(self) -> TiltedRows:
        """Return the cavities of f as rows, [C n]."""
        observations = Observations(*self.chunk.data)
        alpha = tf.maximum(self.alpha, _LEAST_POWER)
        return TiltedRows.of(*flat_latents(cavity_of_f(self.w, self.here), observations, alpha))

    def update(self, density: LogDensity, panels: Panels) -> tf.Tensor:
        """Compute F, the sites that match the projected distributions, [N, 2, C]."""
        rows = self.rows()
        (m, v), (mean, deviation) = rows.cavity, projected_moments(density, panels, rows)
        ratio = tf.square(deviation) / v
        scaled = rows.alpha * v
        values = (mean - m) / scaled, (ratio - 1.0) / scaled, ratio
        d1, d2, ratio = (tf.reshape(each, tf.shape(self.w.mean)) for each in values)
        sites = sweep.matching_site(
            self.w, self.here.conditional_variance, Tilted(d1, d1, d2, ratio)
        )
        return tf.transpose(tf.stack(sites), [2, 0, 1])


def implicit_derivatives(
    problem: Callable[[], Problem],
    likelihood: Likelihood,
    sites: tf.Tensor,
    variables: Sequence[tf.Variable],
) -> list[tf.Tensor]:
    """
    Differentiate the energy at converged sites [N, 2, C] in the variables; `problem()` has all rows
    in one chunk.
    """
    kl = rule_for(likelihood, "kl")
    density = log_density(likelihood)
    fixed = problem()
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sites)
        at_start = _Cavities.at(fixed, sites)
        energy = at_start.energy(fixed, kl)
    start = tape.gradient(energy, sites)
    panels = fixed_panels(likelihood, at_start.rows())

    def pull_back(bar: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sites)
            update = _Cavities.at(fixed, sites).update(density, panels)
        return tape.gradient(update, sites, bar)

    adjoint = _solve(start, pull_back)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        moving = problem()
        cavities = _Cavities.at(moving, sites)
        value = cavities.energy(moving, kl) + tf.reduce_sum(
            adjoint * cavities.update(density, panels)
        )
    return list(derivatives(tape, value, variables))


def _solve(start: tf.Tensor, pull_back: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """
    Solve λ - (∂F/∂s)' λ = start by BiCGSTAB (van der Vorst 1992); raise an error if it does not
    converge.
    """
    one = tf.ones([], start.dtype)
    least = _TOLERANCE * tf.norm(start)

    def dot(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(a * b)

    def step(
        number: tf.Tensor,
        bar: tf.Tensor,
        r: tf.Tensor,
        p: tf.Tensor,
        v: tf.Tensor,
        scalars: tf.Tensor,
    ) -> Any:
        rho, alpha, omega = tf.unstack(scalars)
        new_rho = dot(start, r)
        p = r + tf.math.divide_no_nan(new_rho * alpha, rho * omega) * (p - omega * v)
        v = p - pull_back(p)
        alpha = tf.math.divide_no_nan(new_rho, dot(start, v))
        half = r - alpha * v
        t = half - pull_back(half)
        omega = tf.math.divide_no_nan(dot(t, half), dot(t, t))
        bar += alpha * p + omega * half
        return number + 1, bar, half - omega * t, p, v, tf.stack([new_rho, alpha, omega])

    zero = tf.zeros_like(start)
    _, bar, residual, *_ = tf.while_loop(
        lambda number, bar, r, *_: (number < _MOST_STEPS) & (tf.norm(r) > least),
        step,
        (tf.constant(0), zero, start, zero, zero, tf.stack([one, one, one])),
    )
    message = (
        "The gradient of the Wasserstein energy has not converged. Try: a smaller alpha, or "
        "projection='kl'."
    )
    return asserted(bar, tf.norm(residual) <= 100.0 * least, message)
