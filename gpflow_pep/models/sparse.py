"""Base class of models with data, inducing variables and Gaussian sites: data, Kuu, posterior and predictions."""

from abc import abstractmethod
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.models.util import InducingPointsLike
from gpflow.posteriors import PrecomputeCacheType
from typing_extensions import override

from .. import validation
from ..engine import DatasetRows, OldPosterior, OldPosteriorSite, Prior, SiteSums, default_chunk_size
from ..maths.linalg import cholesky, cholesky_with_growing_jitter
from ..runtime.checks import asserted
from ..runtime.devices import devices_of_strategy
from ..runtime.distribution import ONE_PROCESS, Workers, local_variable
from ..runtime.tracing import CompiledModel, no_autograph
from ..runtime.transactions import atomic
from . import predictions
from .kernels_and_inducing_variables import checked_shared_inducing_variable
from .posteriors import SitesPosterior

ADVICE_KUU = (
    "a larger jitter (gpflow.config.set_default_jitter, or max_jitter= to raise it on demand), "
    "removing duplicate inducing points, shorter lengthscales"
)


class SparseGP(CompiledModel, GPModel, InternalDataTrainingLossMixin):
    """
    A GP with data, M inducing variables u and a posterior made of Gaussian sites.

    Subclasses define the sums over their sites (`_sums`) and the objective.
    """

    # Data, and what a subclass adds here, are variables, so that compiled functions see them change. They are not
    # parameters: the listings of GPflow and TensorFlow leave them out.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"_data", "_old", *GPModel._TF_MODULE_IGNORED_PROPERTIES})
    # Left out of TensorFlow checkpoints, but not of exported models, whose predictions need it.
    _NOT_IN_CHECKPOINTS = frozenset({"_data"})

    _old: OldPosterior | None = None
    """The old posterior of a stream (:class:`.stream.Stream`)."""

    predict_y = predictions.predict_y
    predict_log_density = predictions.predict_log_density
    predict_f_samples = predictions.predict_f_samples

    def __init__(
        self,
        data: RegressionData | DatasetRows,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        mean_function: MeanFunction | None,
        num_latent_gps: int,
        chunk_size: int | None,
        max_jitter: float | None,
    ):
        inducing_variable = self._checked_inducing_variable(kernel, inducing_variable, columns(data)[0], num_latent_gps)
        if not (mean_function is None or (isinstance(mean_function, tf.Module) and callable(mean_function))):
            raise ValueError(f"mean_function must be a gpflow function or None, got {mean_function!r}.")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=num_latent_gps)
        self.inducing_variable = inducing_variable
        self.max_jitter = None if max_jitter is None else validation.positive_number(max_jitter, "max_jitter")
        if self.max_jitter is not None and self.max_jitter <= default_jitter():
            raise ValueError(f"max_jitter must be above the default jitter, {default_jitter():g}, got {max_jitter!r}.")
        self._workers, self._devices = Workers.of_strategy(), devices_of_strategy()
        self._data = data if isinstance(data, DatasetRows) else tuple(_variable(values) for values in data)
        size = validation.chunk_size(chunk_size)
        self._chunk_size = self._default_chunk_size() if size is None else size

    def _default_chunk_size(self, **options: int) -> int:
        size = int(self.inducing_variable.num_inducing), tf.as_dtype(default_float()).size
        if isinstance(self._data, DatasetRows):
            return default_chunk_size("", *size, **options)
        X = self._data[0]
        if self._devices is not None:
            options["num_rows"] = -(-int(tf.shape(X)[0]) // len(self._devices))
        return default_chunk_size(X.device, *size, **options)

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._resizable_variables(), *self._data_variables(), *self._old_variables()

    def _data_variables(self) -> tuple[tf.Variable, ...]:
        return () if isinstance(self._data, DatasetRows) else self._data

    def _old_variables(self) -> tuple[tf.Variable, ...]:
        return () if self._old is None else tuple(self._old.variables)

    def _batch_variables(self) -> dict[str, tf.Variable]:
        """Return the variables that a stream replaces with its batch, by name."""
        X, Y = self._data
        return {"data.X": X, "data.Y": Y}

    @property
    def data(self) -> RegressionData | tf.data.Dataset:
        """
        The data: variables X [N, D] and Y [N, P], or the dataset given to the constructor. ``model.data = (X, Y)``
        checks and assigns new data, which compiled functions see. A dataset cannot be replaced.

        :raises ValueError: when set to data that the model does not accept.
        """
        return self._data.dataset if isinstance(self._data, DatasetRows) else self._data

    @data.setter
    def data(self, data: RegressionData) -> None:
        X, Y = self._checked_new_data(data)
        with atomic([self], self._resizable_variables()):
            self._assign_data(X, Y)

    def check_data(self) -> None:
        """
        Read a dataset once more, to see whether it gives the rows that it gave to the constructor.

        :raises ValueError: if it does not.
        """
        if isinstance(self._data, DatasetRows):
            self._data.check()

    def _checked_new_data(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """Check new data for the model and return them as arrays, without assigning them."""
        if isinstance(self._data, DatasetRows):
            raise ValueError("data of a model with a dataset cannot be replaced: construct a new model.")
        if self._workers is not None:
            raise ValueError("data of a model of several workers cannot be replaced: construct a new model.")
        if isinstance(data, tf.data.Dataset):
            raise ValueError(
                f"data must be a pair (X, Y) of arrays, got {type(data).__name__}: construct a new model for a dataset."
            )
        X, Y = self._validated(data)
        for name, values, variable in zip(("X", "Y"), (X, Y), self._data, strict=True):
            if values.shape[1] != variable.shape[1]:
                raise ValueError(f"data ({name}) must keep {variable.shape[1]} columns, got {values.shape[1]}.")
        return X, Y

    def _assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Assign checked data X [N, D], Y [N, P] in place of the current ones."""
        self._resize_for(X, Y)
        for values, variable in zip((X, Y), self._data, strict=True):
            variable.assign(values)

    def _run_identity(self) -> dict[str, Any]:
        """Return private settings and arrays, by name, that a training run depends on."""
        dataset = self._data.identity if isinstance(self._data, DatasetRows) else None
        return {"chunk_size": self._chunk_size, "dataset": dataset, "old_posterior": self._old_variables()}

    @override
    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.max_jitter

    @property
    def num_data(self) -> tf.Tensor:
        """Number of rows N, summed over the workers if there are several, []."""
        return self._sum_over_workers(self._local_num_data())

    def _local_num_data(self) -> tf.Tensor:
        """Number of rows of this worker, []."""
        return self._data.num_data if isinstance(self._data, DatasetRows) else tf.shape(self._data[0])[0]

    def _sum_over_workers(self, count: tf.Tensor) -> tf.Tensor:
        return (self._workers or ONE_PROCESS).sum(count)

    def _checked_inducing_variable(
        self, kernel: Kernel, inducing_variable: InducingPointsLike, num_inputs: int, num_latent_gps: int
    ) -> InducingVariables:
        """Check kernel and inducing variable, both shared by all outputs here, and return the inducing variable."""
        return checked_shared_inducing_variable(kernel, inducing_variable, num_inputs, num_latent_gps)

    def _validated(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """Check the pair (X, Y) and return it as arrays."""
        return validation.regression_data(data)

    def _resize_for(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Resize what depends on the number of rows before new data are assigned, or raise an error."""

    @abstractmethod
    def _sums(self) -> SiteSums:
        """Return the sums over the sites."""

    def _old_site(self, L: tf.Tensor, alpha: tf.Tensor) -> OldPosteriorSite | None:
        """
        Return the site of the old posterior; None if the model is no stream.

        :param L: Cholesky factor of Kuu.
        :param alpha: one power, [].
        """
        if self._old is None:
            return None
        return self._old.site(self.inducing_variable, self.kernel, L, alpha, default_jitter())

    def _inducing_covariance(self, prior: Prior | None = None) -> tf.Tensor:
        """
        Kuu.

        :param prior: the model's prior, if already computed.
        """
        prior = Prior(self.inducing_variable, self.kernel) if prior is None else prior
        return _differentiable_in_parameters(prior.Kuu(default_jitter()), self.kernel)

    def _factorize(self, covariance: tf.Tensor) -> tf.Tensor:
        if self.max_jitter is None:
            return cholesky(covariance, name="Kuu", advice=ADVICE_KUU)
        return cholesky_with_growing_jitter(
            covariance, jitter=default_jitter(), max_jitter=self.max_jitter, name="Kuu", advice=ADVICE_KUU
        )

    @check_shapes("return[0]: [M, P]", "return[1]: [covariances..., M, M]")
    @no_autograph
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u), without the mean function: L B^-1 c [M, P] and L B^-1 L', [M, M] if the
        outputs share it, otherwise [P, M, M].

        An SVGP with this q(u) gives the same predictions.
        """
        L, LB, b = self._sums().posterior()
        mean = tf.matmul(L, b)  # [M, P] or [P, M, 1]
        root = tf.linalg.triangular_solve(LB, tf.linalg.matrix_transpose(L))  # chol(B)^-1 L'
        covariance = tf.matmul(root, root, transpose_a=True)
        return mean if mean.shape.rank == 2 else tf.transpose(mean[..., 0]), covariance

    @no_autograph
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SitesPosterior:
        """
        Return the posterior, with its cache computed once; it does not follow later changes of the model.

        :param precompute_cache: GPflow's "tensor" (default), "variable" (``update_cache()`` assigns new values without
            changing a compiled graph) or "nocache" (None), for ``fused_predict_f`` alone.
        :raises ValueError: for any other cache type.
        """
        cache = validation.cache_type(precompute_cache)
        return SitesPosterior.of(
            self.kernel, self.inducing_variable, self.mean_function, self._sums, precompute_cache=cache
        )

    @inherit_check_shapes
    @no_autograph
    def predict_f(self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False) -> MeanAndVariance:
        """
        Compute mean and (co)variance of the latent function at Xnew, from the data each time; for repeated predictions
        keep the result of :meth:`posterior`.
        """
        Xnew = validation.real_numbers(Xnew, "Xnew")
        return self.posterior(PrecomputeCacheType.NOCACHE).fused_predict_f(Xnew, full_cov, full_output_cov)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Leave the data out of checkpoints, but not out of exported models, whose predictions need them."""
        children = super()._trackable_children(save_type, **kwargs)
        left_out = self._NOT_IN_CHECKPOINTS if save_type == "checkpoint" else frozenset()
        return {name: child for name, child in children.items() if name not in left_out}


def columns(data: RegressionData | DatasetRows) -> tuple[int, int]:
    """Return D and P of checked data."""
    return data.columns if isinstance(data, DatasetRows) else (data[0].shape[1], data[1].shape[1])


def check_chunk_size_for_dataset(chunk_size: Any) -> None:
    """
    Check the argument of a model of a dataset.

    :raises ValueError: if it is not None.
    """
    if chunk_size is not None:
        raise ValueError(
            f"chunk_size must be None where data is a dataset, whose batches are the chunks, got {chunk_size!r}."
        )


def _differentiable_in_parameters(covariance: tf.Tensor, kernel: Kernel) -> tf.Tensor:
    """
    Return Kuu, with a gradient that raises an error if the kernel holds a tensor in place of a parameter (as in a
    frozen model): such a tensor would get the derivative through Kuu, but not the one through the rows.
    """
    kernels = [part for part in (kernel, *kernel.submodules) if isinstance(part, Kernel)]
    tensors = [
        f"{name} of {type(part).__name__}"
        for part in kernels
        for name, value in vars(part).items()
        if isinstance(value, tf.Tensor) and value.dtype.is_floating
    ]
    if not tensors:
        return covariance
    message = (
        f"kernel: the derivative would be incomplete, since {', '.join(tensors)} is a tensor; "
        "make it a gpflow.Parameter (trainable or not)."
    )

    @tf.custom_gradient
    def guarded(covariance: tf.Tensor) -> Any:
        def gradient(bar: tf.Tensor) -> tf.Tensor:
            return asserted(bar, tf.constant(False), message)  # when run: an export traces it without running it

        return tf.identity(covariance), gradient

    return guarded(covariance)


def _variable(values: AnyNDArray) -> tf.Variable:
    """A variable whose number of rows may change."""
    return local_variable(values, trainable=False, shape=[None, values.shape[1]], dtype=default_float())
