"""The gradient of the energy under the Wasserstein projection, by implicit differentiation.

Converged sites are a fixed point of their update U(sites, θ), at which the energy E(sites, θ) is
stationary under the KL projection only. With λ from the adjoint fixed point,

    dE/dθ = ∂E/∂θ + λ' ∂U/∂θ,    λ = ∂E/∂sites + (∂U/∂sites)' λ.

The update of a row depends on its own site and on the marginal N(μ, s) of its w, which depends on
all sites: with S = V'B^-1 V, whose diagonal is s,

    dμ = S (dh - μ dτ),    ds = -(S ∘ S) dτ.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood

from ..maths.linalg import column_products, epsilon
from ..runtime import asserted, derivatives
from ..tilted import Cavity, Observations, Tilted
from ..tilted.rule import EachLatent, flat_latents
from ..tilted.trapezoid import TiltedRows
from ..tilted.wasserstein import WassersteinRule
from . import sweep
from .energy import RowBars
from .sweep import Iterate, Marginals, Problem, Projected, Site

_TOLERANCE = 1e-8  # of λ, relative; in float32 10 machine epsilons
_MOST_STEPS = 150
_LEAST_POWER = 1e-5  # in U: at α = 0 both projections coincide, and λ is 0


def implicit_bars(
    problem: Problem, likelihood: ScalarLikelihood, iterate: Iterate, *, stores_squares: bool
) -> RowBars:
    """
    Differentiate the rows' part of E + λ'U at converged sites.

    :param problem: with all rows in one chunk.
    :param stores_squares: store S ∘ S, [C, N, N]; otherwise each product with it takes O(N M²).
    """
    chunk: Any = problem.rows.chunked.only_chunk
    here = problem.projected(chunk)
    alpha = problem.rows.alpha(chunk)
    q = problem.total(iterate.A, iterate.c).posterior()
    site = Site(*sweep.take_pair(iterate.swept.sites, chunk))
    marginal = sweep.marginals(q, here.V)
    mu, s = marginal
    d = here.conditional_variance + tf.zeros_like(s)  # [C, n]
    cavity = sweep.cavity_of_f(sweep.cavity_of_w(marginal, site, alpha), here)
    observations = Observations(*chunk.data)
    rows = TiltedRows.of(*flat_latents(cavity, observations, tf.maximum(alpha, _LEAST_POWER)))
    rule = WassersteinRule(likelihood)
    points = rule.points(rows)

    def project(cavity: Cavity) -> list[tf.Tensor]:
        moved = rows._replace(cavity=Cavity(*(tf.reshape(each, [-1]) for each in cavity)))
        moments = rule.projections(points, moved)
        return [tf.reshape(each, tf.shape(s)) for each in tf.unstack(moments)]

    kl = EachLatent(rule.kl).moments(cavity, observations, alpha)
    inputs = [*site, *marginal, d, here.mean]
    variables = problem.variables
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch([*inputs, *variables])
        energy, update = _energy_and_update(here, alpha, inputs, cavity, kl, project)
    in_energy, in_precision, in_linear = (
        derivatives(tape, value, inputs) for value in (energy, *update)
    )

    T = tf.linalg.triangular_solve(q.LB, here.V)  # [C, M, N], S = T'T
    times_squares = _times_squares(T, stores_squares)

    def in_sites(bars: list[tf.Tensor]) -> tf.Tensor:
        """Differentiate in the sites, directly and through the marginals, [2, C, N]."""
        precision_bar, linear_bar, mean_bar, variance_bar, *_ = bars
        linear = tf.linalg.matvec(T, tf.linalg.matvec(T, mean_bar), transpose_a=True)
        precision = -times_squares(variance_bar) - mu * linear
        return tf.stack([precision_bar + precision, linear_bar + linear])

    def through_update(bar: tf.Tensor) -> list[tf.Tensor]:
        """Return the derivatives of bar'U in the inputs."""
        pairs = zip(in_precision, in_linear, strict=True)
        return [bar[0] * precision + bar[1] * linear for precision, linear in pairs]

    of_integral = tf.stack([-0.5 * (s + tf.square(mu)), mu])
    adjoint = _solve(
        in_sites(list(in_energy)) + of_integral, lambda bar: in_sites(through_update(bar))
    )
    bars = map(tf.add, in_energy, through_update(adjoint))
    _, _, mean_bar, variance_bar, d_bar, m_bar = bars
    return RowBars(
        tf.transpose(tf.stack([variance_bar, mean_bar]), [2, 0, 1]),
        tf.transpose(tf.stack([d_bar, m_bar]), [2, 0, 1]),
        derivatives(tape, update, variables, tuple(tf.unstack(adjoint))),
    )


def _times_squares(T: tf.Tensor, stores: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the product of S ∘ S, S = T'T, with values [C, N]; `stores`: see above."""
    if stores:
        return partial(tf.linalg.matvec, tf.square(tf.matmul(T, T, transpose_a=True)))

    def product(values: tf.Tensor) -> tf.Tensor:
        scaled = T * values[:, None]
        return column_products(T, tf.matmul(scaled, T, transpose_b=True) @ T)

    return product


def _energy_and_update(
    here: Projected, alpha: tf.Tensor, inputs: list[tf.Tensor], at: Cavity, kl: Tilted, project: Any
) -> tuple[tf.Tensor, Site]:
    """
    Return the rows' part of E, [], and U, [C, N]; `kl`: tilted distributions of the cavities `at`;
    `project`: maps cavities to means and standard deviations of the projections.
    """
    precision, linear, mu, s, d, prior_mean = inputs
    site, marginal = Site(precision, linear), Marginals(mu, s)
    w = sweep.cavity_of_w(marginal, site, alpha)
    m, v = sweep.cavity_of_f(w, here._replace(conditional_variance=d, mean=prior_mean))
    in_variance = 0.5 * (kl.d2 + alpha * tf.square(kl.d1))
    log_Z = kl.log_partition + kl.d1 * (m - at.mean) + in_variance * (v - at.variance)
    energy = sweep.row_terms(marginal, site, w, kl._replace(log_partition=log_Z), alpha)
    mean, deviation = project(Cavity(m, v))
    ratio = tf.square(deviation) / v
    scaled = tf.maximum(alpha, _LEAST_POWER) * v
    projected = Tilted(log_Z, (mean - m) / scaled, (ratio - 1.0) / scaled, ratio)
    return energy, sweep.matching_site(w, d, projected)


def _solve(start: tf.Tensor, pull_back: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """
    Solve λ - (∂U/∂sites)' λ = start by BiCGSTAB (van der Vorst 1992); raise an error if it does not
    converge.
    """
    one = tf.ones([], start.dtype)
    least = max(_TOLERANCE, 10.0 * epsilon(start.dtype)) * tf.norm(start)

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
