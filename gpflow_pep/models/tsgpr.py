"""TSGPR: the tighter bound of a structured conditional, one scale a row."""

import tensorflow as tf
from gpflow.config import default_float
from typing_extensions import override

from ..statistics import Powers, Sums
from .collapsed import CollapsedRegression


class TSGPR(CollapsedRegression):
    """
    The tighter collapsed bound (Bui and Titsias 2025, eq. 6); q(u) and predictions as `gpflow.models.SGPR`.

        log N(y; m, Qff + σ²I) - 1/2 Σ_n log(1 + d_n/σ²),          d = diag(Kff - Qff)

    Never below SGPR's bound nor above the log evidence. Arguments as :class:`PEPR`, without alpha, scale and blocks.
    """

    @override
    def _powers(self) -> Powers:
        zero = tf.zeros([], default_float())
        return Powers(noise=zero, penalty=zero + 1.0, weight=zero + 0.5)

    @override
    def _penalty(self, sums: Sums) -> tf.Tensor:
        return -sums.penalty
