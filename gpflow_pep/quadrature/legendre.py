"""The Gauss-Legendre rule of 32 nodes on [-1, 1], and what tells whether it resolves a function."""

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)  # type: ignore[no-untyped-call]
_POLYNOMIALS = np.polynomial.legendre.legvander(NODES, 31)  # type: ignore[no-untyped-call]
LAST_COEFFICIENTS = (_POLYNOMIALS * WEIGHTS[:, None] * (np.arange(32) + 0.5))[:, -3:]
"""From values at the nodes to the last three Legendre coefficients, [32, 3]."""
