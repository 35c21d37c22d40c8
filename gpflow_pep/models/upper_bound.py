"""An upper bound of the exact log evidence, for models of all data."""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_float

from ..engine import IndependentSites, Powers, log_gaussian, mahalanobis
from ..graphs import no_autograph
from ..linalg import finite
from .collapsed import ADVICE_OBJECTIVE


class UpperBound:
    """Mixin for collapsed regression on all data. Streams have no such bound: earlier batches are gone."""

    @check_shapes("return: []")
    @no_autograph
    def upper_bound(self: Any) -> tf.Tensor:
        """
        Compute an upper bound on the exact log evidence, whatever the model's own sites (Titsias 2014).

            -P/2 log|2 pi (Qff + S)| - 1/2 r' (Qff + (1 + t) S)^-1 r,     t = tr(S^-1 (Kff - Qff))

        With constant noise it is the upper bound of `gpflow.models.SGPR` (correct there for one output only).

        :return: nats, summed over outputs.
        """
        half = tf.constant(0.5, default_float())
        zero = tf.zeros_like(half)
        vfe = Powers(noise_power=zero, penalty_power=zero, weight=half)
        rows = self._independent_rows()
        sums, terms = self._accumulate_sums(rows, IndependentSites(), vfe, 2.0 * half)
        wider = self._accumulate_sums(rows, IndependentSites(), vfe, 2.0 * half, 1.0 + 2.0 * terms.penalty)
        bound = log_gaussian(sums, terms, self.num_data) + 0.5 * (mahalanobis(sums, terms) - mahalanobis(*wider))
        checked: tf.Tensor = finite(bound, name="the upper bound", advice=ADVICE_OBJECTIVE)
        return checked
