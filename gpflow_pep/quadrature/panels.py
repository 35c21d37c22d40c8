"""Polynomials on one panel of an interval: nodes, integrals and how well a function is resolved by them."""

import numpy as np
from gpflow.base import AnyNDArray
from numpy.polynomial import chebyshev

DEGREE = 22

NODES: AnyNDArray = -np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
"""Chebyshev points of [-1, 1], both ends among them, [K]."""

# values -> coefficients, [K, K]
_COEFFICIENTS: AnyNDArray = np.linalg.inv(chebyshev.chebvander(NODES, DEGREE))  # type: ignore[no-untyped-call]
_ANTIDERIVATIVES: AnyNDArray = np.stack(
    [
        chebyshev.chebval(NODES, chebyshev.chebint(row, lbnd=-1.0))  # type: ignore[no-untyped-call]
        for row in np.eye(DEGREE + 1)
    ],
    axis=1,
)

INTEGRALS: AnyNDArray = _ANTIDERIVATIVES @ _COEFFICIENTS
"""Values at the nodes -> integrals from -1 up to each node, [K, K]."""

WEIGHTS: AnyNDArray = INTEGRALS[-1:]
"""Clenshaw-Curtis weights: values at the nodes -> integral over the panel, [1, K]."""

TAIL: AnyNDArray = _COEFFICIENTS[-3:]
"""Values at the nodes -> the last three Chebyshev coefficients, [3, K]. Where they are small the values resolve the
function; the error of its integral is then about their square."""
