"""Leave-one-out predictions of collapsed regression models, without refitting."""

import numpy as np
import tensorflow as tf

from ..graphs import refuse_xla
from ..linalg import column_products
from .chunks import Chunks
from .rows import RowSource
from .site_algebra import Powers, SiteAlgebra
from .sums import SiteSums


def collapsed_leave_one_out(
    rows: RowSource,
    chunks: Chunks,
    sites: SiteAlgebra,
    powers: Powers,
    sums: SiteSums,
    scale: tf.Tensor,
    num_data: tf.Tensor,
) -> tf.Tensor:
    """
    log N(y_n; mean, variance) of every row given the others, hyperparameters held, summed over outputs, [N].

    Without row n, B is less by e e'/v and c by e r/v (:class:`LeaveOneOutTerms`). With s_VV = V'B^-1 V and so on

        mean = V'b - s_Ve (r - e'b)/(v - s_ee),    variance = d + s_VV + s_Ve²/(v - s_ee) + noise.
    """
    refuse_xla("leave-one-out densities")
    L, LB, b = sums.posterior()
    count = chunks.count(num_data)
    arrays = (
        tf.TensorArray(sums.c.dtype, count, infer_shape=False),
        tf.TensorArray(tf.int32, count, infer_shape=False),
    )

    def step(chunk: tf.Tensor, densities: tf.TensorArray, places: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        values = rows(chunk, *rows.inputs)
        V, d, e, v, r = sites.leave_one_out_terms(L, values, _of_chunk(powers, chunks, chunk), scale)
        TV, Te = tf.linalg.triangular_solve(LB, V), tf.linalg.triangular_solve(LB, e)  # [M, n]
        cavity_variance = v - column_products(Te, Te)
        cross = column_products(TV, Te)
        surprise = (r - tf.matmul(e, b, transpose_a=True)) / cavity_variance[:, None]  # [n, P]
        mean = tf.matmul(V, b, transpose_a=True) - cross[:, None] * surprise
        variance = d + column_products(TV, TV) + tf.square(cross) / cavity_variance + values.noise
        squares = tf.square(values.residual - mean) / variance[:, None]
        density = -0.5 * tf.reduce_sum(tf.math.log(2.0 * np.pi * variance)[:, None] + squares, axis=-1)
        place = chunks.take(tf.range(num_data), chunk)
        return chunk + 1, densities.write(chunk, density), places.write(chunk, place)

    _, densities, places = tf.while_loop(lambda chunk, *_: chunk < count, step, (tf.constant(0), *arrays))
    return tf.scatter_nd(places.concat()[:, None], densities.concat(), num_data[None])


def _of_chunk(powers: Powers, chunks: Chunks, chunk: tf.Tensor) -> Powers:
    return Powers(*(chunks.take_blocks(power, chunk) for power in powers))
