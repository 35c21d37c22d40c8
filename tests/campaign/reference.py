"""
The collapsed regression of PEPR, TSGPR and BTSGPR, densely and with 50 digits (Bui, Yan and Turner
2017, eq. 14).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import mpmath
import numpy as np
from gpflow.base import AnyNDArray

DIGITS = 50
Numbers = list[mpmath.mpf]


class Reference(NamedTuple):
    """Results of the dense computation, rounded to doubles."""

    objective: float
    mean: AnyNDArray
    """At the new inputs, [n]."""
    variance: AnyNDArray
    """At the new inputs, [n]."""
    size: float
    """The sum of the moduli of the objective's terms, which may cancel."""


Kernel = Callable[[Numbers, Numbers], mpmath.mpf]
"""k(x, z) of two rows of numbers."""


def _stationary(profile: Callable[[mpmath.mpf], mpmath.mpf]) -> Callable[[float, float], Kernel]:
    """Return a function of variance and lengthscale; the profile is that of a squared distance."""

    def of(variance: float, lengthscale: float) -> Kernel:
        height = mpmath.mpf(variance)
        width = mpmath.mpf(lengthscale)

        def kernel(x: Numbers, z: Numbers) -> mpmath.mpf:
            square = mpmath.fsum((a - b) ** 2 for a, b in zip(x, z, strict=True)) / width**2
            return height * profile(square)

        return kernel

    return of


def _matern52(square: mpmath.mpf) -> mpmath.mpf:
    r = mpmath.sqrt(5 * square)
    return (1 + r + r**2 / 3) * mpmath.exp(-r)


squared_exponential = _stationary(lambda square: mpmath.exp(-square / 2))
matern52 = _stationary(_matern52)


class Collapsed(NamedTuple):
    """A dense computation, with all its digits."""

    terms: Numbers
    """They add up to the objective."""
    L: list[Numbers]
    LB: list[Numbers]
    c: Numbers


def collapsed(
    X: Sequence[Numbers],
    y: Numbers,
    U: Sequence[Numbers],
    kernel: Kernel,
    *,
    alpha: float,
    noise: float,
    jitter: float,
    blocks: Sequence[Sequence[int]] = (),
    rounding: AnyNDArray | None = None,
) -> Collapsed:
    """
    Compute log N(y; 0, Qff + α D + σ²I) - (1-α)/2α Σ log(1 + α d/σ²).

    :param blocks: BTSGPR instead: alpha is 0, and the penalty Σ_b log |I + D_b/σ²|/2; rows: TSGPR.
    :param rounding: is added to Kuu.
    """
    power = mpmath.mpf(alpha)
    noise = mpmath.mpf(noise)
    M = range(len(U))
    Kuu = [[kernel(a, b) for b in U] for a in U]
    for i in M:
        Kuu[i][i] += mpmath.mpf(jitter)
        if rounding is not None:
            for j in M:
                Kuu[i][j] += mpmath.mpf(float(rounding[i, j]))
    L = _cholesky(Kuu)
    V = [_solve(L, [kernel(x, b) for b in U]) for x in X]

    def D(m: int, n: int) -> mpmath.mpf:
        return kernel(X[m], X[n]) - mpmath.fdot(V[m], V[n])

    d = [D(n, n) for n in range(len(X))]
    N = [noise + power * value for value in d]  # of the sites
    B = [
        [(i == j) + mpmath.fsum(v[i] * v[j] / n for v, n in zip(V, N, strict=True)) for j in M]
        for i in M
    ]
    LB = _cholesky(B)
    c = [mpmath.fsum(v[i] * t / n for v, n, t in zip(V, N, y, strict=True)) for i in M]
    c = _solve(LB, c)
    log_det = mpmath.fsum(map(mpmath.log, N)) + _log_det(LB)
    fit = mpmath.fsum(t**2 / n for n, t in zip(N, y, strict=True))
    if blocks:
        penalty = mpmath.fsum(
            _log_det(_cholesky([[(m == n) + D(m, n) / noise for n in block] for m in block]))
            for block in blocks
        )
    elif power == 0:
        penalty = mpmath.fsum(d) / noise
    else:
        penalty = (
            (1 - power) / power * mpmath.fsum(mpmath.log(1 + power * value / noise) for value in d)
        )
    constant = len(y) * mpmath.log(2 * mpmath.pi)
    terms = [-constant / 2, -log_det / 2, -fit / 2, mpmath.fdot(c, c) / 2, -penalty / 2]
    return Collapsed(terms, L, LB, c)


def power_ep(
    data: tuple[AnyNDArray, AnyNDArray],
    kernel: Kernel,
    Z: AnyNDArray,
    Xnew: AnyNDArray,
    *,
    alpha: float,
    noise: float,
    jitter: float,
    structured: bool = False,
) -> Reference:
    """
    Compute objective and predictions, taking doubles as exact numbers.

    :param data: X [N, D] and Y [N, 1].
    :param structured: TSGPR instead of PEPR.
    """
    with mpmath.workdps(DIGITS):
        X, U, new = (_rows(values) for values in (data[0], Z, Xnew))
        y = [row[0] for row in _rows(data[1])]
        blocks = [[n] for n in range(len(X))] if structured else []
        found = collapsed(X, y, U, kernel, alpha=alpha, noise=noise, jitter=jitter, blocks=blocks)
        mean = []
        variance = []
        for x in new:
            v = _solve(found.L, [kernel(x, b) for b in U])
            t = _solve(found.LB, v)
            mean.append(float(mpmath.fdot(t, found.c)))
            variance.append(float(kernel(x, x) - mpmath.fdot(v, v) + mpmath.fdot(t, t)))
        return Reference(
            float(mpmath.fsum(found.terms)),
            np.array(mean),
            np.array(variance),
            float(mpmath.fsum(map(abs, found.terms))),
        )


def _rows(values: AnyNDArray) -> list[Numbers]:
    return [[mpmath.mpf(float(value)) for value in row] for row in np.asarray(values)]


def _cholesky(K: Sequence[Numbers]) -> list[Numbers]:
    L: list[Numbers] = []
    for i, row in enumerate(K):
        L.append([])
        for j in range(i + 1):
            rest = row[j] - mpmath.fdot(L[i][:j], L[j][:j])
            L[i].append(mpmath.sqrt(rest) if i == j else rest / L[j][j])
    return L


def _log_det(L: list[Numbers]) -> mpmath.mpf:
    """log |L L'|."""
    return 2 * mpmath.fsum(mpmath.log(row[i]) for i, row in enumerate(L))


def _solve(L: list[Numbers], b: Numbers) -> Numbers:
    """L^-1 b."""
    x: Numbers = []
    for i, row in enumerate(L):
        x.append((b[i] - mpmath.fdot(row[:i], x)) / row[i])
    return x
