"""A linear kernel whose functions are 0 at a center, for inputs far from the origin."""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Linear
from gpflow.kernels.base import ActiveDims
from typing_extensions import override

from . import validation


class CenteredLinear(Linear):
    r"""
    The kernel of linear functions that are zero at a center, with a variance of the slope of each
    column.

    .. math:: k(x, x') = \sum_d v_d \frac{(x_d - c_d)(x'_d - c_d)}{s_d^2}

    GPflow's `Linear` has the origin as its center. If the inputs are far from the origin, such as
    years, its values are far larger than their differences, and digits are lost. Units
    whose squares leave floating point range need a scale.

    >>> kernel = CenteredLinear(center=[1990.0], variance=0.5)
    >>> kernel(np.array([[1980.0], [2010.0]])).numpy()
    array([[  50., -100.],
           [-100.,  200.]])
    """

    def __init__(
        self,
        center: TensorType,
        variance: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
        *,
        scale: TensorType = 1.0,
    ):
        """
        :param center: c, usually the mean of the inputs; it is not trained.
        :param variance: v, the variance of the slopes; an array has an entry for each active
            column.
        :param active_dims: a slice or list of the columns of X that are used.
        :param scale: s > 0, usually the standard deviation of the inputs; it is not trained.
        """
        center = validation.shaped(center, (np.size(center),), center, "center")
        validation.positive_numbers(variance, "variance", len(center), "column")
        super().__init__(variance, active_dims)
        self.center = Parameter(center, trainable=False)
        self.scale = validation.scale(scale, len(center), "column")
        self._validate_ard_active_dims(self.center)

    @override
    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            return super().K(*self._scaled(X))
        left, right = self._scaled(X, X2)
        if right.shape.rank == 2:  # GPflow's product of all ranks takes many operations
            return tf.matmul(left * self.variance, right, transpose_b=True)
        return super().K(left, right)

    @override
    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return super().K_diag(*self._scaled(X))

    @check_shapes("self.center: [D]", "inputs[all]: [., D]")
    def _scaled(self, *inputs: TensorType) -> list[tf.Tensor]:
        """Return (x - c) / s of all inputs."""
        scale = tf.convert_to_tensor(self.scale)
        return [(X - self.center) / scale for X in inputs]
