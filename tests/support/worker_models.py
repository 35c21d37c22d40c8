"""Regression models and models with sites, and their data, for one process and several workers."""

import itertools

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, TSVGP
from gpflow_pep.likelihoods import Probit

N = 46
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(N, 2))
_F = np.c_[np.sin(_X[:, 0]), np.cos(_X[:, 1])]
_Y = _F + 0.3 * _RNG.normal(size=(N, 2))
_LABELS = (_F[:, :1] + 0.5 * _RNG.normal(size=(N, 1)) > 0.0).astype(float)
Z = _X[:6]


def data_of(name):
    """All rows of a model."""
    return _X, _LABELS if name.startswith("PEP of") or name == "PEP" else _Y


def rows_of(index, count):
    """The rows of a worker."""
    return np.arange(index * N // count, (index + 1) * N // count)


def _dataset(data):
    return tf.data.Dataset.from_tensor_slices(data).batch(7)


def _blocks(shards, size):
    """Blocks of this size that end with the rows of each worker; rows are numbered from 0."""
    starts = np.cumsum([0, *map(len, shards)])
    return [
        np.arange(begin, min(begin + size, end))
        for first, end in itertools.pairwise(starts)
        for begin in range(first, end, size)
    ]


def _powers(shards):
    """One for each row, in the order of the workers."""
    return np.linspace(0.0, 1.0, N)[np.concatenate(shards)]


MODELS = {
    "PEPR": lambda data, kernel, shards: PEPR(data, kernel, Z, alpha=0.4),
    "VFE of a dataset": lambda data, kernel, shards: PEPR(_dataset(data), kernel, Z, alpha=0.0),
    "a power for each block": lambda data, kernel, shards: PEPR(
        data,
        kernel,
        Z,
        blocks=_blocks(shards, 4),
        alpha=np.full(len(_blocks(shards, 4)), 0.7),
    ),
    "T-PEP": lambda data, kernel, shards: PEPR(
        data, kernel, Z, alpha=0.5, scale=gpflow.Parameter(0.7)
    ),
    "T-PEP of a power for each row": lambda data, kernel, shards: PEPR(
        data,
        kernel,
        Z,
        alpha=_powers(shards),
        scale=gpflow.Parameter(1.5),
    ),
    "TSGPR": lambda data, kernel, shards: TSGPR(data, kernel, Z),
    "BTSGPR": lambda data, kernel, shards: BTSGPR(data, kernel, Z, blocks=_blocks(shards, 5)),
    "PEP": lambda data, kernel, shards: PEP(data, kernel, Probit(), Z, alpha=0.5),
    "PEP of a dataset": lambda data, kernel, shards: PEP(
        _dataset(data), kernel, Probit(), Z, alpha=1.0
    ),
    "PEP of a power for each row": lambda data, kernel, shards: PEP(
        data,
        kernel,
        Probit(),
        Z,
        alpha=_powers(shards),
        scale=gpflow.Parameter(0.8),
    ),
}


def model_of(name, rows=None, *, shards=None):
    """A model of all rows or a subset; with `shards`, blocks end with the rows of each worker."""
    shards = shards or [np.arange(N) if rows is None else rows]
    X, Y = data_of(name)
    rows = np.concatenate(shards)
    return MODELS[name]((X[rows], Y[rows]), SquaredExponential(lengthscales=[1.0, 2.0]), shards)


def mixed_model(rows, *, mixed_precision=True):
    """Rows sorted by noise: the noise of the first chunk is too small for single precision."""
    order = np.argsort(_X[:, 0])[rows]
    scale = gpflow.functions.Linear(A=[[0.4], [0.0]], b=0.01 - 0.4 * _X[:, 0].min())
    return PEPR(
        (_X[order], _Y[order]),
        SquaredExponential(lengthscales=[1.0, 2.0]),
        Z,
        alpha=0.0,
        likelihood=Gaussian(scale=scale),
        chunk_size=7,
        mixed_precision=mixed_precision,
    )


MINIBATCH_MODELS = {
    "SVGP": lambda kernel: gpflow.models.SVGP(kernel, Gaussian(), Z, num_latent_gps=2, num_data=N),
    "TSVGP": lambda kernel: TSVGP(kernel, Gaussian(), Z, num_latent_gps=2, num_data=N),
}
# How these are trained: without q(u) apart, with natural gradients of q(u), and by L-BFGS.
MINIBATCH_OPTIONS = {
    "adam": {"optimizer": "adam", "natural_step": None},
    "natural": {"optimizer": "adam", "natural_step": 0.1},
    "lbfgs": {"optimizer": "lbfgs"},
}


def minibatch_model(name):
    return MINIBATCH_MODELS[name](SquaredExponential(lengthscales=[1.0, 2.0]))


def numbers_of(model):
    """Results that depend on all rows."""
    if isinstance(model, PEP):
        return [model.num_data, model.sites_status.sweeps]
    return [model.upper_bound(), model.num_blocks, model.num_data]
