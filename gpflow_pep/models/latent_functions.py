"""How many latent functions a likelihood has; checks of their kernels and inducing variables."""

from gpflow.inducing_variables import InducingPoints, InducingVariables, MultioutputInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel, SharedIndependent
from gpflow.likelihoods import Likelihood, ScalarLikelihood, SwitchedLikelihood
from gpflow.models.util import InducingPointsLike

from .. import validation
from ..engine import independent_parts
from .kernel_columns import check_kernel_columns


def latent_functions(likelihood: Likelihood, num_outputs: int) -> int:
    """Return C, the number of latent functions: one for each of Y's columns, or the likelihood's `latent_dim`."""
    if isinstance(likelihood, ScalarLikelihood):
        return num_outputs - isinstance(likelihood, SwitchedLikelihood)
    return validation.positive_integer(likelihood.latent_dim, "likelihood.latent_dim")


def checked_shared_inducing_variable(
    kernel: Kernel, inducing_variable: InducingPointsLike, num_inputs: int, num_latent_gps: int
) -> InducingVariables:
    """
    Check kernel and inducing variable that all outputs share; return the inducing variable.

    :param num_inputs: columns of X.
    :param num_latent_gps: P, columns of Y.
    :raises ValueError: naming the argument that cannot be used, and what to use instead.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a gpflow Kernel, got {type(kernel).__name__}.")
    if isinstance(kernel, MultioutputKernel):
        if not isinstance(kernel, SharedIndependent):
            raise ValueError(
                "kernel must be one that all columns of Y share: a kernel of one output, or SharedIndependent, got "
                f"{type(kernel).__name__}. For a kernel per column use gpflow_pep.PEP with SeparateIndependent and "
                "gpflow.likelihoods.Gaussian(); for correlated columns one column of Y, with gpflow.kernels.Coregion "
                "on a column of X that holds the index of the output."
            )
        if kernel.num_latent_gps != num_latent_gps:
            raise ValueError(
                f"kernel must have as many outputs as Y has columns, {num_latent_gps}, got {kernel.num_latent_gps}."
            )
    if isinstance(inducing_variable, MultioutputInducingVariables):
        raise ValueError(
            "inducing_variable must be one that all columns of Y share, Z [M, D] or one of a single output, got "
            f"{type(inducing_variable).__name__}. For inducing points per column use gpflow_pep.PEP with "
            "gpflow.likelihoods.Gaussian()."
        )
    check_kernel_columns(kernel, num_inputs)
    return validation.single_output_inducing_variable(inducing_variable, num_inputs)


def checked_inducing_variable(
    kernel: Kernel, inducing_variable: InducingPointsLike, num_inputs: int | None, num_latent_gps: int
) -> InducingVariables:
    """
    Check kernel and inducing variable of independent latent functions, shared or one each; return the inducing
    variable.

    :param num_inputs: columns of X, where they are known.
    :raises ValueError: naming the argument that cannot be used.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a gpflow Kernel, got {type(kernel).__name__}.")
    if isinstance(kernel, MultioutputKernel) and kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"kernel must have one part for each of {num_latent_gps} latent functions, got {kernel.num_latent_gps}."
        )
    if not isinstance(inducing_variable, MultioutputInducingVariables):
        inducing_variable = validation.single_output_inducing_variable(inducing_variable, num_inputs)
    parts = independent_parts(inducing_variable, kernel)
    if len(parts) not in (1, num_latent_gps):
        raise ValueError(
            f"inducing_variable must have one part for each of {num_latent_gps} latent functions, got {len(parts)}."
        )
    for variable, _ in parts:
        validation.single_output_inducing_variable(variable, num_inputs)
    if num_inputs is None:
        num_inputs = next((variable.Z.shape[1] for variable, _ in parts if isinstance(variable, InducingPoints)), None)
    if num_inputs is not None:
        check_kernel_columns(kernel, num_inputs)
    sizes = {int(variable.num_inducing) for variable, _ in parts}
    if len(sizes) > 1:
        raise ValueError(f"inducing_variable must have parts of the same size, got {sorted(sizes)}.")
    return inducing_variable
