"""Small regression problems, and dense evaluations of all formulas of the collapsed models."""

from dataclasses import dataclass
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu


class Problem(NamedTuple):
    X: np.ndarray
    Y: np.ndarray
    Z: np.ndarray
    Xnew: np.ndarray


# Blocks of the 24 rows of a problem: uneven, and not contiguous.
UNEVEN = np.split(np.random.default_rng(9).permutation(24), [3, 10, 12, 13])


def make_problem(N=24, M=5, P=1, seed=0):
    """
    A regression problem in [0, 3]^2 that a sparse posterior fits in part: Z is well spread but too
    few.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, size=(N, 2))
    slopes = rng.normal(size=(2, P))
    Y = np.sin(2.0 * X @ slopes) + 0.4 * X[:, :1] + 0.3 * rng.normal(size=(N, P))
    # A Latin square: no two inducing points share a coordinate, so that Kuu is well conditioned.
    cells = np.stack([rng.permutation(M) for _ in range(2)], axis=1)
    return Problem(X, Y, 3.0 * (cells + 0.5) / M, rng.uniform(-1.0, 4.0, size=(7, 2)))


@dataclass(frozen=True)
class Dense:
    """
    The formulas of the papers, with N x N matrices of numpy: D = Kff - Qff, S = diag(noise).

    The noise may differ from row to row; there every d/σ² becomes S^-1/2 D S^-1/2.
    """

    Kuu: np.ndarray
    Kuf: np.ndarray
    Kff: np.ndarray
    noise: np.ndarray
    residual: np.ndarray

    @classmethod
    def of(cls, model):
        """From a model's data, kernel, inducing variable, likelihood and mean function."""
        X, Y = (tf.convert_to_tensor(values) for values in model.data)
        Z = model.inducing_variable
        jitter = gpflow.config.default_jitter()
        return cls(
            Kuu(Z, model.kernel, jitter=jitter).numpy(),
            Kuf(Z, model.kernel, X).numpy(),
            model.kernel(X).numpy(),
            model.likelihood.variance_at(X).numpy()[:, 0],
            (Y - model.mean_function(X)).numpy(),
        )

    @property
    def Qff(self):
        return self.Kuf.T @ np.linalg.solve(self.Kuu, self.Kuf)

    @property
    def D(self):
        return self.Kff - self.Qff

    @property
    def relative(self):
        """S^-1/2 D S^-1/2."""
        return self.D / np.sqrt(np.outer(self.noise, self.noise))

    @property
    def N(self):
        return len(self.noise)

    @property
    def P(self):
        return self.residual.shape[1]

    def singletons(self):
        return np.arange(self.N)[:, None]

    def log_gaussian(self, covariance):
        log_det = np.linalg.slogdet(2.0 * np.pi * covariance)[1]
        return -0.5 * (
            self.P * log_det + np.sum(self.residual * np.linalg.solve(covariance, self.residual))
        )

    def exact(self):
        return self.log_gaussian(self.Kff + np.diag(self.noise))

    def vfe(self):
        """log N(y; m, Qff + S), from which the bounds subtract."""
        return self.log_gaussian(self.Qff + np.diag(self.noise))

    def sgpr(self):
        return self.vfe() - 0.5 * self.P * np.trace(self.relative)

    def spherical_scale(self):
        return 1.0 / (1.0 + np.mean(np.diag(self.relative)))

    def best_scales(self, blocks):
        """The best m of each block at alpha = 0."""
        return np.array([1.0 / (1.0 + np.mean(np.diag(self.relative)[b])) for b in blocks])

    def spherical(self):
        return self.vfe() + 0.5 * self.P * self.N * np.log(self.spherical_scale())

    def structured(self, blocks):
        """F3 and F4: T-SGPR (singletons) and BT-SGPR."""
        return self.vfe() - 0.5 * self.P * sum(
            _log_det(self.relative[np.ix_(b, b)]) for b in blocks
        )

    def shared(self, blocks):
        """F5."""
        mean = np.mean([self.relative[np.ix_(b, b)] for b in blocks], axis=0)
        return self.vfe() - 0.5 * self.P * len(blocks) * _log_det(mean)

    def covariance(self, alpha, blocks, scale=1.0):
        """Qff + blkdiag(alpha_b m_b D_bb) + S."""
        covariance = self.Qff + np.diag(self.noise)
        for power, m, b in _by_block(alpha, scale, blocks):
            covariance[np.ix_(b, b)] += power * m * self.D[np.ix_(b, b)]
        return covariance

    def predictions(self, model, Xnew, alpha, blocks, scale=1.0):
        """
        Mean and covariance of f*: Qff with the sites' noise, Kbar, gives Q*f Kbar^-1 r and k** -
        Q*f Kbar^-1 Qf* by Gaussian conditioning.
        """
        Kus = model.kernel(model.inducing_variable.Z, Xnew).numpy()
        Qsf = Kus.T @ np.linalg.solve(self.Kuu, self.Kuf)
        weights = np.linalg.solve(self.covariance(alpha, blocks, scale), Qsf.T).T
        mean = weights @ self.residual + model.mean_function(Xnew)
        return mean, model.kernel(Xnew) - weights @ Qsf.T

    def pep(self, alpha, blocks, scale=1.0):
        """Power EP with a power and a scale per block."""
        penalty = 0.0
        for power, m, b in _by_block(alpha, scale, blocks):
            X = m * self.relative[np.ix_(b, b)]
            if power == 0.0:
                penalty += 0.5 * np.trace(X) + 0.5 * len(b) * (m - 1.0)
            else:
                penalty += (1.0 - power) / (2.0 * power) * _log_det(power * X)
                penalty += 0.5 * len(b) / power * np.log1p(power * (m - 1.0))
            penalty -= 0.5 * len(b) * np.log(m)
        return self.log_gaussian(self.covariance(alpha, blocks, scale)) - self.P * penalty


def _by_block(alpha, scale, blocks):
    return zip(
        np.broadcast_to(alpha, len(blocks)),
        np.broadcast_to(scale, len(blocks)),
        blocks,
        strict=True,
    )


def _log_det(X):
    return np.linalg.slogdet(np.eye(len(X)) + X)[1]
