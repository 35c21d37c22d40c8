"""Points on a line, and rows of a noisy sine or of its signs."""

import numpy as np


def line(start, stop, count):
    """Return equally spaced points [count, 1]."""
    return np.linspace(start, stop, count)[:, None]


def wave(N, seed, *, frequency=2.0, noise=0.2, ends=(-2.0, 2.0)):
    """Return X [N, 1], in no order, and Y [N, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(*ends, (N, 1))
    return X, np.sin(frequency * X) + noise * rng.normal(size=X.shape)


def signs(N, seed, *, frequency=2.5, noise=0.3):
    """Return X [N, 1] and labels [N, 1], 0 or 1."""
    X, Y = wave(N, seed, frequency=frequency, noise=noise)
    return X, np.where(Y > 0.0, 1.0, 0.0)
