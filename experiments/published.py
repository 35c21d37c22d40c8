"""Published figures that experiments are compared with."""

from typing import NamedTuple


class Pair(NamedTuple):
    """Of expectation propagation and of quantile propagation."""

    ep: float
    qp: float


QP_ERROR = {
    "qp-ionosphere": Pair(10.71, 6.79),
    "qp-cancer": Pair(3.24, 3.24),
    "qp-pima": Pair(14.29, 17.42),
    "qp-crabs": Pair(3.0, 3.0),
    "qp-sonar": Pair(14.12, 13.53),
    "qp-usps-3-5": Pair(3.44, 2.92),
}
"""Zhang et al. (2019): test error in %, mean of ten folds."""

QP_LOG_LIKELIHOOD = {
    "qp-ionosphere": Pair(-13.70, -9.01),
    "qp-cancer": Pair(-7.29, -6.74),
    "qp-pima": Pair(-22.72, -30.46),
    "qp-crabs": Pair(-1.92, -1.78),
    "qp-sonar": Pair(-16.46, -11.94),
    "qp-usps-3-5": Pair(-12.24, -10.63),
}
"""Zhang et al. (2019): test log likelihood summed over a fold, mean of ten folds."""
