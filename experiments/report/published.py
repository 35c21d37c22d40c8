"""Published figures, for comparison."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A score of expectation propagation and of quantile propagation."""

    ep: float
    qp: float


class Scores(NamedTuple):
    """Test error, as a fraction, and mean negative log predictive probability (nats)."""

    error: float
    nlpd: float


class Structured(NamedTuple):
    """Scores of a sparse GP on test rows and in training."""

    objective: float
    """Negative objective per point, on about twice the scale of nats."""
    rmse: float
    log_likelihood: float
    noise_sd: float


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

MULTICLASS = {
    name: {alpha: Scores(*scores) for alpha, scores in zip((0.0, 0.5, 1.0), of_alpha, strict=True)}
    for name, of_alpha in {
        "glass": ((0.36, 2.05), (0.33, 0.81), (0.36, 0.90)),
        "new-thyroid": ((0.03, 0.11), (0.04, 0.09), (0.12, 0.35)),
        "satellite": ((0.11, 0.51), (0.11, 0.31), (0.11, 0.30)),
        "svmguide2": ((0.19, 0.90), (0.17, 0.57), (0.24, 0.65)),
        "vehicle": ((0.18, 0.57), (0.18, 0.36), (0.19, 0.37)),
        "vowel": ((0.06, 0.38), (0.05, 0.17), (0.09, 0.29)),
        "waveform": ((0.18, 0.67), (0.16, 0.40), (0.22, 0.69)),
        "wine": ((0.03, 0.10), (0.03, 0.08), (0.05, 0.49)),
    }.items()
}
"""Villacampa-Calvo and Hernández-Lobato (2020): PEP with M = 5 %, by set and alpha; mean of 20 splits. Their smallest
alpha is near 0."""

STRUCTURED_KIN40K = {
    "exact GP": Structured(-0.656, 0.117, 0.796, 0.001),
    "SGPR": Structured(0.883, 0.256, -0.136, 0.299),
    "T-SGPR": Structured(0.779, 0.223, -0.057, 0.259),
    "BT-SGPR, 50 blocks": Structured(0.752, 0.217, -0.045, 0.250),
    "BT-SGPR, 10 blocks": Structured(0.659, 0.200, -0.032, 0.227),
    "PEP 0.5": Structured(0.661, 0.235, -0.015, 0.225),
    "T-PEP 0.5": Structured(0.480, 0.200, 0.024, 0.182),
}
"""Bui and Titsias (2025): 5000 training rows of kin40k, M = 256, mean of three repeats; standard errors are 0.001 to
0.006."""

STREAMING_BANANA = {"forward": 0.0875, "backward": 0.095, "shuffled": 0.095, "batch": 0.095}
"""Bui, Nguyen and Turner (2017): final test error on banana by the order of arrival, and of all rows at once."""
