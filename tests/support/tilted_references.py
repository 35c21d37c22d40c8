"""
Tilted distributions with 40 digits by mpmath: source of tests/data/tilted.json, and used by a few
tests.

`python tests/support/tilted_references.py` computes the cases of that file anew, in five minutes on
two cores.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpflow.likelihoods import Bernoulli, Poisson, StudentT
from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre

from gpflow_pep.likelihoods import Logit, Probit

DATA = Path(__file__).parents[1] / "data"
DIGITS = 40


def recorded():
    """Return the content of tests/data/tilted.json."""
    return json.loads((DATA / "tilted.json").read_text())


class LogDensity(NamedTuple):
    """
    log p(y|f) with its first two derivatives, of one mpf; where it changes fastest, and over what
    length.
    """

    at: Callable
    where: float
    width: float


def probit(y, jitter=0.0):
    """Phi(±f) without or with the 1e-3 by which GPflow keeps it from 0 and 1."""
    sign = 1 if y == 1 else -1
    jitter = mpf(jitter)
    keep = mpf(1 - 2 * float(jitter))

    def at(f):
        x = sign * f
        density = keep * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        wrong = jitter + keep * mp.erfc(x / mp.sqrt(2)) / 2
        p = jitter + keep * mp.erfc(-x / mp.sqrt(2)) / 2
        value = mp.log1p(-wrong) if x > 0 and not jitter else mp.log(p)
        hazard = density / p
        return value, sign * hazard, -hazard * (x + hazard)

    return LogDensity(at, 0.0, 1.0)


def logit(y):
    sign = 1 if y == 1 else -1

    def at(f):
        wrong = 1 / (1 + mp.exp(sign * f))
        value = (
            -mp.log1p(mp.exp(-sign * f)) if sign * f > 0 else sign * f - mp.log1p(mp.exp(sign * f))
        )
        return value, sign * wrong, -wrong / (1 + mp.exp(-sign * f))

    return LogDensity(at, 0.0, 3.0)


def poisson(y, binsize=1.0):
    y, log_bin, constant = mpf(y), mp.log(mpf(binsize)), mp.loggamma(mpf(y) + 1)

    def at(f):
        rate = mp.exp(f + log_bin)
        return y * (f + log_bin) - rate - constant, y - rate, -rate

    return LogDensity(at, float(mp.log(y + 1)), 1.0)


def student_t(y, scale=1.0, df=3.0):
    y = mpf(y)
    scale = mpf(scale)
    df = mpf(df)
    constant = (
        mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - mp.log(scale) - mp.log(df * mp.pi) / 2
    )

    def at(f):
        e = y - f
        total = df * scale * scale + (y - f) ** 2
        value = constant - (df + 1) / 2 * mp.log1p(e * e / (df * scale * scale))
        return value, (df + 1) * e / total, (df + 1) * (2 * e * e / total - 1) / total

    return LogDensity(at, float(y), float(scale))


LIKELIHOODS = {
    "probit": (Probit, probit),
    "logit": (Logit, logit),
    "poisson": (Poisson, poisson),
    "student_t": (StudentT, student_t),
    "student_t_0.1": (lambda: StudentT(scale=0.1), lambda y: student_t(y, 0.1)),
    "bernoulli": (Bernoulli, lambda y: probit(y, 1e-3)),
}
"""As GPflow or this package has them, and in mpmath given y."""


class Reference(NamedTuple):
    """The tilted distribution, mpf each."""

    log_partition: mpf
    d1: mpf
    d2: mpf
    ratio: mpf
    scales: tuple
    """
    The same integrals of moduli: of what errors of the first three are relative to where these
    vanish.
    """
    panels: list
    """
    :class:`Panel`, of which the first integral is that of the density: where they are narrow enough
    for it.
    """
    density: Callable
    """The tilted density of f, unnormalized as in the panels."""


class Panel(NamedTuple):
    left: mpf
    right: mpf
    sums: list


def _nodes(degree):
    """Gauss-Legendre on [-1, 1], with 3 · 2^(degree - 1) nodes."""
    with mp.workdps(DIGITS):
        return sorted(GaussLegendre(mp).calc_nodes(degree, mp.prec))


_GAUSS = _nodes(4)
_SHORT = _nodes(3)


def integrate(function, edges, watched, tolerance=1e-25):
    """
    Panels with the integrals of `function` (a list) over each, halved until two halves agree with
    the whole to a `tolerance` of the sum of moduli, for the first `watched` components. The halves,
    better by far, are kept.
    """

    def whole(left, right):
        middle = (left + right) / 2
        half = (right - left) / 2
        terms = ([half * w * value for value in function(middle + half * x)] for x, w in _GAUSS)
        columns = list(zip(*terms, strict=True))
        return [[mp.fsum(each, absolute) for each in columns] for absolute in (False, True)]

    open_ = [(left, right, *whole(left, right)) for left, right in itertools.pairwise(edges)]
    totals = [sum(column) for column in zip(*(panel[3] for panel in open_), strict=True)]
    done = []
    while open_:
        left, right, sums, moduli = open_.pop()
        middle = (left + right) / 2
        halves = [(left, middle, *whole(left, middle)), (middle, right, *whole(middle, right))]
        totals = [
            max(t, t - m + a + b)
            for t, m, a, b in zip(totals, moduli, halves[0][3], halves[1][3], strict=True)
        ]
        errors = [abs(a + b - c) for a, b, c in zip(halves[0][2], halves[1][2], sums, strict=True)]
        if all(errors[k] <= tolerance * totals[k] for k in range(watched)):
            done.extend(Panel(*half[:3]) for half in halves)
        else:
            open_.extend(halves)
        assert len(done) < 5000
    return sorted(done, key=lambda panel: panel.left)


def tilted(density, m, v, alpha):
    """
    :class:`Reference`, from E l' and E l'' + α Var l'; asserts that moments of f say the same.

    The window is 20 cavity standard deviations about m and about the mode, found by bisection (on
    the derivative, from m towards where the density rises; a second mode is met by the panels that
    are graded towards `density.where`).
    """
    with mp.workdps(DIGITS):
        m = mpf(m)
        v = mpf(v)
        alpha = mpf(alpha)
        sd = mp.sqrt(v)

        def uphill(f):
            return alpha * v * density.at(f)[1] - (f - m)

        mode = m
        reach = sd
        if alpha:
            direction = 1 if uphill(m) > 0 else -1
            while uphill(m + direction * reach) * direction > 0:
                reach *= 2
            low = mpf(0)
            high = reach
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (
                    (middle, high)
                    if uphill(m + direction * middle) * direction > 0
                    else (low, middle)
                )
            mode = m + direction * low
        top = alpha * density.at(mode)[0] - (mode - m) ** 2 / (2 * v)
        narrow = 1 / mp.sqrt(1 / v + alpha * max(mpf(0), -density.at(mode)[2]))

        ends = min(m, mode) - 20 * sd, max(m, mode) + 20 * sd
        steps = [mpf(2) ** k for k in range(-3, 12)]
        edges = {m + s * k * sd for k in range(0, 21, 4) for s in (-1, 1)}
        edges |= {mode + s * k * narrow for k in steps for s in (-1, 1)} | {mode}
        edges |= {density.where + s * k * density.width for k in steps for s in (-1, 1)} | {
            mpf(density.where)
        }
        edges = [*sorted(edge for edge in edges if ends[0] < edge < ends[1]), ends[1]]
        edges.insert(0, ends[0])

        def function(f):
            l0, l1, l2 = density.at(f)
            x = (f - m) / sd
            P = mp.exp(alpha * l0 - x * x / 2 - top)
            change = (
                (mp.expm1(alpha * l0) / alpha if alpha else l0)
                * mp.exp(-x * x / 2)
                / mp.sqrt(2 * mp.pi)
            )
            return [
                P,
                P * x,
                P * x * x,
                P * l1,
                P * l1 * l1,
                P * l2,
                change,
                P * abs(l1),
                P * abs(l2),
                abs(change),
            ]

        resolved = integrate(function, edges, watched=7)
        sums = [
            mp.fsum(column) / sd for column in zip(*(panel.sums for panel in resolved), strict=True)
        ]
        change = sums.pop(6)
        change_modulus = sums.pop(8)
        mass, Ex, Exx, E1, E11, E2, A1, A2 = (value / sums[0] for value in sums)
        mass = sums[0]
        log_Z = top + mp.log(mass) - mp.log(2 * mp.pi) / 2
        log_partition = change if not alpha else log_Z / alpha
        if alpha and abs(alpha * change) < 0.5:
            accurate = mp.log1p(alpha * change) / alpha
            assert abs(accurate - log_partition) <= mpf(10) ** -20 * (abs(accurate) + 1 / alpha)
            log_partition = accurate
        d1 = E1
        d2 = E2 + alpha * (E11 - E1 * E1)
        ratio = Exx - Ex * Ex
        if alpha:
            assert abs(Ex / (alpha * sd) - d1) <= mpf(10) ** -20 * (
                abs(d1) + (1 + abs(Ex)) / (alpha * sd)
            )
            assert abs((ratio - 1) / (alpha * v) - d2) <= mpf(10) ** -20 * (
                abs(d2) + (1 + Exx) / (alpha * v)
            )
        near_one = abs(log_Z) < 0.5
        scales = (
            change_modulus if near_one or not alpha else abs(log_partition),
            A1,
            A2 + alpha * (E11 - E1 * E1),
        )

        def unnormalized(f):
            return mp.exp(alpha * density.at(f)[0] - (f - m) ** 2 / (2 * v) - top)

        return Reference(log_partition, d1, d2, ratio, scales, resolved, unnormalized)


def _short(function, left, right):
    """Gauss-Legendre with 12 nodes."""
    middle = (left + right) / 2
    half = (right - left) / 2
    return half * mp.fsum(w * function(middle + half * x) for x, w in _SHORT)


def _height(tail):
    """φ(Φ⁻¹(F)) of F or 1 - F, by Newton steps on log Phi."""
    if tail <= 0:
        return mpf(0)
    log_tail = mp.log(tail)
    z = -mp.sqrt(-2 * log_tail) if tail < 0.05 else mpf(0)
    for _ in range(60):
        cdf = mp.erfc(-z / mp.sqrt(2)) / 2
        step = (mp.log(cdf) - log_tail) * cdf * mp.sqrt(2 * mp.pi) * mp.exp(z * z / 2)
        z -= step
        if abs(step) < mpf(10) ** -22:
            break
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def quantile_deviation(density, m, v, alpha):
    """σ = ∫ φ(Φ⁻¹(F(f))) df, F integrated from node to node of the panels, from the nearer end."""
    with mp.workdps(DIGITS):
        found = tilted(density, m, v, alpha)
        masses = [panel.sums[0] for panel in found.panels]
        total = mp.fsum(masses)
        below = mpf(0)
        sigma = mpf(0)
        for panel, mass in zip(found.panels, masses, strict=True):
            middle = (panel.left + panel.right) / 2
            half = (panel.right - panel.left) / 2
            if min(below + mass, total - below) > mpf(10) ** -28 * total:
                F = below
                left = panel.left
                for x, w in _GAUSS:
                    right = middle + half * x
                    F += _short(found.density, left, right)
                    left = right
                    tail = min(F, total - F) / total
                    sigma += half * w * _height(tail)
            below += mass
        return sigma


def closed_poisson(y, m, v):
    """α = 0: the mass of exp(f) is at a distance v from m."""
    with mp.workdps(DIGITS):
        y = mpf(y)
        m = mpf(m)
        v = mpf(v)
        rate = mp.exp(m + v / 2)
        constant = mp.loggamma(y + 1)
        value = y * m - rate - constant
        return Reference(
            value,
            y - rate,
            -rate,
            mpf(1),
            (abs(y * m) + rate + constant, y + rate, rate),
            None,
            None,
        )


def _deviation(row):
    """Likelihood, y, cavity mean and variance, alpha; the deviation is computed anew."""
    *case, _ = row
    name, y, *rest = case
    return [*case, float(quantile_deviation(LIKELIHOODS[name][1](y), *rest) / mp.sqrt(rest[1]))]


def _group(group):
    """Mean, variance and alpha of the cases of a likelihood and y; the rest is computed anew."""
    name = group["likelihood"]
    y = group["y"]
    rows = []
    for m, v, alpha, *_ in group["cases"]:
        closed = name == "poisson" and alpha == 0.0
        found = closed_poisson(y, m, v) if closed else tilted(LIKELIHOODS[name][1](y), m, v, alpha)
        scales = [float(f"{float(scale):.3g}") for scale in found.scales]
        rows.append([m, v, alpha, *map(float, found[:4]), *scales])
    print(name, y, flush=True)
    return group | {"cases": rows}


if __name__ == "__main__":
    from multiprocessing import Pool

    content = recorded()
    with Pool(2) as pool:
        for name, renewed in (("groups", _group), ("quantile_deviations", _deviation)):
            content[name] = pool.map(renewed, content[name], chunksize=1)
    text = json.dumps(content).replace("], [", "],\n[").replace("}, {", "},\n{")
    (DATA / "tilted.json").write_text(f"{text}\n")
