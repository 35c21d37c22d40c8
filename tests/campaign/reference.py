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


def squared_exponential(variance: float, lengthscale: float) -> Kernel:
    """Return the kernel of a variance and a lengthscale."""
    height = mpmath.mpf(variance)
    width = mpmath.mpf(lengthscale)

    def kernel(x: Numbers, z: Numbers) -> mpmath.mpf:
        square = mpmath.fsum((a - b) ** 2 for a, b in zip(x, z, strict=True)) / width**2
        return height * mpmath.exp(-square / 2)

    return kernel


class Collapsed(NamedTuple):
    """A dense computation, with all its digits."""

    terms: Numbers
    """They add up to the objective."""
    L: mpmath.matrix
    LB: mpmath.matrix
    c: mpmath.matrix


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
    Kuu = _covariance(kernel, U, U) + mpmath.mpf(jitter) * mpmath.eye(len(U))
    if rounding is not None:
        Kuu += mpmath.matrix(rounding.tolist())
    L = mpmath.cholesky(Kuu)
    V = L**-1 * _covariance(kernel, U, X)

    def D(m: int, n: int) -> mpmath.mpf:
        return kernel(X[m], X[n]) - mpmath.fdot(V[:, m], V[:, n])

    d = [D(n, n) for n in range(len(X))]
    N = [noise + power * value for value in d]  # of the sites
    weighted = V * mpmath.diag([1 / n for n in N])
    LB = mpmath.cholesky(mpmath.eye(len(U)) + weighted * V.T)
    c = LB**-1 * (weighted * mpmath.matrix(y))
    log_det = mpmath.fsum(map(mpmath.log, N)) + _log_det(LB)
    fit = mpmath.fsum(t**2 / n for n, t in zip(N, y, strict=True))
    if blocks:
        relative = (
            mpmath.matrix([[(m == n) + D(m, n) / noise for n in block] for m in block])
            for block in blocks
        )
        penalty = mpmath.fsum(_log_det(mpmath.cholesky(each)) for each in relative)
    elif power == 0:
        penalty = mpmath.fsum(d) / noise
    else:
        logs = mpmath.fsum(mpmath.log(1 + power * value / noise) for value in d)
        penalty = (1 - power) / power * logs
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
        X, U, new = (mpmath.matrix(values).tolist() for values in (data[0], Z, Xnew))
        y = [mpmath.mpf(float(value)) for value in np.ravel(data[1])]
        blocks = [[n] for n in range(len(X))] if structured else []
        found = collapsed(X, y, U, kernel, alpha=alpha, noise=noise, jitter=jitter, blocks=blocks)
        v = found.L**-1 * _covariance(kernel, U, new)
        t = found.LB**-1 * v
        spread = [
            kernel(x, x) - mpmath.norm(v[:, n]) ** 2 + mpmath.norm(t[:, n]) ** 2
            for n, x in enumerate(new)
        ]
        return Reference(
            float(mpmath.fsum(found.terms)),
            np.array(list(t.T * found.c), float),
            np.array(spread, float),
            float(mpmath.fsum(map(abs, found.terms))),
        )


def _covariance(kernel: Kernel, X: Sequence[Numbers], Z: Sequence[Numbers]) -> mpmath.matrix:
    return mpmath.matrix([[kernel(x, z) for z in Z] for x in X])


def _log_det(L: mpmath.matrix) -> mpmath.mpf:
    """log |L L'|."""
    return 2 * mpmath.fsum(mpmath.log(L[i, i]) for i in range(L.rows))
