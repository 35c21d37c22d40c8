"""GPyTorch's SGPR, for benchmarks if GPyTorch is installed."""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpflow.base import AnyNDArray
from gpytorch.kernels import InducingPointKernel, MaternKernel, RBFKernel, ScaleKernel


def sgpr_step(
    X: AnyNDArray,
    Y: AnyNDArray,
    Z: AnyNDArray,
    kernel: str,
    noise_variance: float,
    lengthscale: float,
    cores: int | None,
) -> Callable[[], Any]:
    """
    Return loss and gradients of SGPR for a kernel of `collapsed_step`: float64, jitter 1e-6, no
    iterative solver.
    """
    torch.set_default_dtype(torch.float64)
    if cores is not None:
        torch.set_num_threads(cores)
    inputs, outputs = torch.from_numpy(X), torch.from_numpy(Y[:, 0])

    def scaled(inner: Any) -> Any:
        inner.lengthscale = lengthscale
        outer = ScaleKernel(inner)
        outer.outputscale = 1.0
        return outer

    D = X.shape[1]
    kernels: dict[str, Callable[[], Any]] = {
        "SquaredExponential": lambda: scaled(RBFKernel(ard_num_dims=D)),
        "Matern32": lambda: scaled(MaternKernel(1.5, ard_num_dims=D)),
        "Matern52": lambda: scaled(MaternKernel(2.5, ard_num_dims=D)),
        "sum": lambda: kernels["SquaredExponential"]() + kernels["Matern32"](),
        "product": lambda: kernels["SquaredExponential"]() * kernels["Matern52"](),
    }
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = noise_variance

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, outputs, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = InducingPointKernel(
                kernels[kernel](), torch.from_numpy(Z.copy()), likelihood
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = SGPR()
    model.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def step() -> Any:
        model.zero_grad()
        with (
            gpytorch.settings.cholesky_jitter(double_value=1e-6),
            gpytorch.settings.max_cholesky_size(10**6),
        ):
            loss = -len(X) * objective(model(inputs), outputs)
            loss.backward()
        return loss.detach()

    return step
