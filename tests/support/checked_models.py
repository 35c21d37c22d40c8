"""Collapsed models and their data, as one process and several workers have them."""

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_pep import BTSGPR, PEPR, TSGPR

_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(46, 2))
DATA = _X, np.c_[np.sin(_X[:, 0]), np.cos(_X[:, 1])] + 0.3 * _RNG.normal(size=(46, 2))
Z = _X[:6].copy()

MODELS = {
    "PEPR": lambda data, kernel: PEPR(data, kernel, Z.copy(), alpha=0.4),
    "VFE of a dataset": lambda data, kernel: PEPR(
        tf.data.Dataset.from_tensor_slices(data).batch(7), kernel, Z.copy(), alpha=0.0
    ),
    "a power for each block": lambda data, kernel: PEPR(
        data, kernel, Z.copy(), blocks=4, alpha=np.full(-(-len(data[0]) // 4), 0.7)
    ),
    "T-PEP": lambda data, kernel: PEPR(data, kernel, Z.copy(), alpha=0.5, scale=gpflow.Parameter(0.7)),
    "TSGPR": lambda data, kernel: TSGPR(data, kernel, Z.copy()),
    "BTSGPR": lambda data, kernel: BTSGPR(data, kernel, Z.copy(), blocks=5),
}


def model_of(name, data):
    return MODELS[name](data, gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0]))
