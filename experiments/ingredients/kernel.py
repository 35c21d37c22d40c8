"""Entries of the ingredients ``gp`` that describe the kernel."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Callable

import gpflow
from gpflow.kernels import Kernel, SquaredExponential, Stationary
from sacred import Ingredient

from experiments.datasets import Floats
from experiments.ingredients.initialization import median_distance


def initial_kernel(X: Floats) -> Kernel:
    """
    Return a squared exponential, every lengthscale the median distance between inputs X [N, D].
    """
    return SquaredExponential(lengthscales=[median_distance(X, 0)] * X.shape[1])


def _config() -> None:
    # class in gpflow.kernels with one lengthscale per input: SquaredExponential, Matern52, Matern32, ...
    kernel = "SquaredExponential"

    # initial value of all lengthscales; None: the median distance between inputs (streams: of the first batch)
    lengthscales = None

    # initial variance of the kernel
    kernel_variance = 1.0


def kernel_of(gp: Ingredient) -> Callable[[Floats], Kernel]:
    """Add the entries to an ingredient; return the function that builds its kernel."""
    gp.config(_config)

    @gp.capture
    def stationary_kernel(
        X: Floats, kernel: str, lengthscales: float | None, kernel_variance: float, _seed: int
    ) -> Kernel:
        """Return a kernel of gpflow.kernels for inputs X [N, D], with a lengthscale for each column."""
        constructor = getattr(gpflow.kernels, kernel, None)
        if not (isinstance(constructor, type) and issubclass(constructor, Stationary)):
            raise ValueError(
                f"kernel is {kernel!r}; a stationary kernel of gpflow.kernels is accepted."
            )
        start = median_distance(X, _seed) if lengthscales is None else lengthscales
        return constructor(variance=kernel_variance, lengthscales=[start] * X.shape[1])

    return stationary_kernel
