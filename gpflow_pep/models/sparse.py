"""
Base classes: InducingVariableGP (posterior, predictions) and SparseGP (a model that holds its
data).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.models.util import InducingPointsLike
from gpflow.posteriors import PrecomputeCacheType
from typing_extensions import Self, override

from .. import validation
from ..engine import (
    DatasetChunks,
    OldPosterior,
    OldPosteriorSite,
    Prior,
    RowChunks,
    SiteSums,
    checked_indices,
    default_chunk_size,
    flat_rows,
    index_columns,
)
from ..engine.chunks import MOST_ROWS
from ..engine.chunks import ROWS_PER_CHUNK as ROWS_ON_CPU
from ..likelihoods.observations import check_observations
from ..maths.linalg import cholesky, cholesky_with_growing_jitter, finite, sufficient_jitter
from ..runtime import (
    Tensors,
    WithGradient,
    Workers,
    asserted,
    assign_all,
    atomic,
    check_disjoint,
    compiled,
    devices_of_strategy,
    in_xla,
    local_variable,
    no_autograph,
    resizable_copy,
    structure_of,
    tracing,
)
from ..tilted.predictive import predicted_log_density, predicted_moments
from .kernels_and_inducing_variables import (
    are_inducing_points,
    as_inducing_variable,
    check_inducing_variable,
    single_output_variables,
)
from .parts import Part, checked_at_the_end
from .posteriors import ROWS_PER_CHUNK, WhitenedPosterior

ADVICE_KUU = (
    "a larger jitter (gpflow.config.set_default_jitter, or max_jitter= to raise it on demand), "
    "removing duplicate inducing points, shorter lengthscales"
)
_ADVICE_Y = (
    "checking Xnew, Y and the likelihood's parameters for NaN, infinite or overflowing values, and "
    "the kernel for a variance so large that p(y|f) overflows"
)


class InducingVariableGP(GPModel):
    """
    A GP with M inducing variables u = L v, Kuu = L L', and a Gaussian q(v): its posterior and
    predictions.

    A model defines `maximum_log_likelihood_objective` and :meth:`site_sums`, q in natural
    parameters, which a stream absorbs; :meth:`posterior_values`, if q is parameterized differently;
    and it may extend :meth:`_structure` and :meth:`run_identity`. Compiled methods are traced again
    when a part or a setting is replaced.
    """

    # Variables, so that compiled functions use new values, but not parameters: GPflow and
    # TensorFlow do not list them.
    _TF_MODULE_IGNORED_PROPERTIES = GPModel._TF_MODULE_IGNORED_PROPERTIES.union(
        ("_data", "_num_data", "_chunks", "_blocks", "_alpha", "_old"),
        ("_sites", "_status", "_options", "_warned"),  # of a model with sites
    )

    _is_constructed = False
    _shares_covariance = False  # all outputs share kernel, inducing variable and q's covariance
    # `posterior_values` returns a factor of q's precision; otherwise a root of its covariance.
    _by_precision = True
    _eager_chunks = 2  # chunks still to be predicted eagerly: tracing takes as long as ten of them
    _old: OldPosterior | None = None  # of a stream
    _data: tuple[tf.Variable, ...] = ()  # X and Y of a model that stores them
    _num_inputs: int | None = None  # D of a model that stores its data

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = checked_at_the_end(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        mean_function: MeanFunction | None,
        num_latent_gps: int,
        max_jitter: float | None = None,
    ):
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        self.inducing_variable = inducing_variable
        self.jitter = None
        self.max_jitter = max_jitter
        InducingVariableGP._check(self)  # constructors of subclasses use the parts

    @Part
    def kernel(self, kernel: Any) -> Kernel:
        """The kernel."""
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel must be a gpflow Kernel, got {validation.kind(kernel)}.")
        return kernel

    @Part
    def inducing_variable(self, inducing_variable: object) -> InducingVariables:
        """The inducing variable; an array Z [M, D] becomes inducing points."""
        return as_inducing_variable(inducing_variable, shared=self._shares_covariance)

    @Part
    def likelihood(self, likelihood: object) -> Likelihood:
        """The likelihood."""
        if not isinstance(likelihood, Likelihood):
            raise ValueError(
                "likelihood must be a gpflow Likelihood, such as gpflow.likelihoods.StudentT(), "
                f"got {validation.kind(likelihood)}."
            )
        return likelihood

    @Part
    def mean_function(self, mean_function: object) -> MeanFunction:
        """The mean function; None: zero."""
        if mean_function is None:
            return Zero()
        if not (isinstance(mean_function, tf.Module) and callable(mean_function)):
            raise ValueError(
                f"mean_function must be a gpflow function or None, got {mean_function!r}."
            )
        return mean_function

    @Part
    def num_latent_gps(self, number: Any) -> int:
        """The number C of latent functions, fixed at construction."""
        if self._is_constructed and number != self.num_latent_gps:
            raise ValueError(
                f"num_latent_gps must stay {self.num_latent_gps}, got {number!r}: construct a new "
                "model."
            )
        return number

    @Part
    def jitter(self, jitter: object) -> float | None:
        """The jitter of Kuu; None: GPflow's default."""
        return None if jitter is None else validation.positive_number(jitter, "jitter")

    @Part
    def max_jitter(self, max_jitter: object) -> float | None:
        """The largest jitter to try if Kuu cannot be factorized; None: `jitter` only."""
        return None if max_jitter is None else validation.positive_number(max_jitter, "max_jitter")

    def _check(self) -> None:
        """Raise a ValueError unless all parts and settings fit together. Subclasses extend it."""
        check_inducing_variable(
            self.kernel,
            self.inducing_variable,
            self._num_inputs,
            self.num_latent_gps,
            shared=self._shares_covariance,
        )
        jitter = self._jitter_of_Kuu()
        if self.max_jitter is not None and self.max_jitter < jitter:
            raise ValueError(
                f"max_jitter must be at least the jitter of Kuu, {jitter:g}, got "
                f"{self.max_jitter:g}."
            )
        for part in (self.kernel, self.likelihood, self.mean_function, self.inducing_variable):
            tracing.remember_parameters(part)

    def _checked_alpha(self, alpha: object) -> AnyNDArray:
        """Check a value of the power, in models that have one, and return it: one number, []."""
        return validation.power(alpha)

    def _jitter_of_Kuu(self) -> float:
        return default_jitter() if self.jitter is None else self.jitter

    @abstractmethod
    def site_sums(self) -> SiteSums:
        """Compute the sums (L, A, c) of q(v) ∝ exp(-v'(I + A)v/2 + c'v)."""

    def posterior_values(self) -> Tensors:
        """Return the cache of :class:`.WhitenedPosterior`."""
        return self.site_sums().posterior()

    def _new_old_posterior(self) -> OldPosterior | None:
        """
        Return the old posterior of a stream; None for other models. Called at the end of the
        constructor.
        """
        return None

    def _structure(self) -> list[object]:
        """
        Return the parts and settings that compiled methods depend on: replacing one retraces them.
        """
        return structure_of([self], [default_jitter()])

    def _prior(self) -> Prior:
        """
        Return the prior covariances; raise an error if a number has taken the place of a parameter.
        """
        self._structure()
        return Prior(self.inducing_variable, self.kernel)

    def run_identity(self) -> dict[str, object]:
        """Return the private settings and arrays that a checkpoint must match, by name."""
        return {"old_posterior": () if self._old is None else tuple(self._old.variables)}

    def _hidden_variables(self) -> list[tf.Variable]:
        """
        Return the variables that are not parameters: data, sites, powers, old posterior; some are
        resizable.
        """
        names = self._TF_MODULE_IGNORED_PROPERTIES - GPModel._TF_MODULE_IGNORED_PROPERTIES
        hidden = structure_of([value for name, value in vars(self).items() if name in names], ())
        return [each for each in hidden if isinstance(each, tf.Variable)]

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        """Undo changes of the model that do not complete in this context."""
        objects = self, *single_output_variables(self.inducing_variable)
        return atomic(objects, [*self.variables, *self._hidden_variables()])

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        memo |= {
            id(variable): resizable_copy(variable, variable.shape)
            for variable in self._hidden_variables()
        }
        clone = memo[id(self)] = type(self).__new__(type(self))
        # A copy of the attributes: other threads may add some.
        clone.__dict__.update(deepcopy(dict(vars(self)), memo))
        return clone

    def __getstate__(self) -> tuple[dict[str, object], list[object]]:
        return dict(vars(self)), [
            (variable, variable.shape.as_list()) for variable in self._hidden_variables()
        ]

    def __setstate__(self, state: tuple[dict[str, Any], list[Any]]) -> None:
        attributes, resizable = state
        memo = {id(variable): resizable_copy(variable, shape) for variable, shape in resizable}
        memo[id(self)] = self  # a posterior among the attributes refers to it
        self.__dict__.update(deepcopy(attributes, memo))

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: object) -> Any:
        """Omit the data in TensorFlow checkpoints."""
        left_out = ("_data", "_chunks") if save_type == "checkpoint" else ()
        return {
            name: part
            for name, part in super()._trackable_children(save_type, **kwargs).items()
            if name not in left_out
        }

    def _factorize(self, Kuu: tf.Tensor) -> tf.Tensor:
        if self.max_jitter is None:
            return cholesky(Kuu, name="Kuu", advice=ADVICE_KUU)
        return cholesky_with_growing_jitter(
            Kuu,
            jitter=self._jitter_of_Kuu(),
            max_jitter=self.max_jitter,
            name="Kuu",
            advice=ADVICE_KUU,
        )

    def _factor_of_Kuu(self) -> tf.Tensor:
        """Compute the Cholesky factor L of Kuu."""
        return self._factorize(self._prior().Kuu(self._jitter_of_Kuu()))

    def _raised_jitter(self) -> tuple[float, float]:
        """Return the jitter of Kuu if it must be raised, else 0, and the mean of Kuu's diagonal."""
        if self.max_jitter is None:
            return 0.0, 1.0
        jitter = self._jitter_of_Kuu()
        Kuu = self._prior().Kuu(jitter)
        mean = float(tf.reduce_mean(tf.linalg.diag_part(Kuu)))
        raised = float(sufficient_jitter(Kuu, jitter=jitter, max_jitter=self.max_jitter))
        if raised <= jitter:
            return 0.0, mean
        return raised, mean

    @no_autograph
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> WhitenedPosterior:
        """
        Return the posterior, with its cache computed once. After a change of the model, call
        ``update_cache()``.

        :param precompute_cache: GPflow's "tensor" (default), "variable" (``update_cache()`` assigns
            new values without changing a compiled graph) or "nocache" (None), for
            ``fused_predict_f`` only.
        :raises ValueError: for any other cache type.
        """
        return self._posterior(self.posterior_values, validation.cache_type(precompute_cache))

    def _posterior(
        self, values: Callable[[], Any], cache: PrecomputeCacheType | None = None
    ) -> WhitenedPosterior:
        parts = self.kernel, self.inducing_variable, self.mean_function
        # No function of its own: a copy of the posterior must follow the copy of the model.
        current = partial(self._current, values, parts)
        return WhitenedPosterior(
            *parts, current, by_precision=self._by_precision, precompute_cache=cache
        )

    def _current(self, values: Callable[[], Any], parts: tuple[object, ...]) -> Any:
        if parts != (self.kernel, self.inducing_variable, self.mean_function):
            raise ValueError(
                "posterior() must have the model's parts, one was replaced: call posterior() again."
            )
        return values()

    @inherit_check_shapes
    @no_autograph
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Compute mean and (co)variance of f at Xnew; :meth:`posterior` is faster for many
        predictions.
        """
        Xnew = validation.real_numbers(Xnew, "Xnew")
        posterior = self._posterior(self.posterior_values)
        return posterior.fused_predict_f(Xnew, full_cov, full_output_cov)

    def _predict_y_by(
        self, cache: Iterable[AnyNDArray], Xnew: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Return mean and variance [n, P] of new observations at Xnew [n, D] from the cache of a
        posterior.
        """
        values = tuple(map(tf.constant, cache))
        count = -(-len(Xnew) // ROWS_PER_CHUNK)
        predict: Any = self._predict_y_of_chunk
        if self._eager_chunks < count:
            # One graph for any number of rows, without a loop over chunks, which would double the
            # time of tracing.
            specs = tuple(map(tf.TensorSpec.from_tensor, values))
            predict = self._compiled_predict_y_of_chunk.func.get_concrete_function(
                specs, tf.TensorSpec([None, Xnew.shape[1]], Xnew.dtype)
            )
        self._eager_chunks = max(0, self._eager_chunks - count)
        chunks = [
            predict(values, tf.constant(Xnew[start : start + ROWS_PER_CHUNK]))
            for start in range(0, len(Xnew), ROWS_PER_CHUNK)
        ]
        mean, variance = map(np.concatenate, zip(*chunks, strict=True))
        return mean, variance

    def _predict_y_of_chunk(self, values: Tensors, Xnew: tf.Tensor) -> MeanAndVariance:
        posterior = self._posterior(lambda: values)
        posterior.rows_per_chunk = None
        f = posterior.fused_predict_f(Xnew)
        return predicted_moments(self.likelihood, Xnew, *f, rows_per_chunk=None)

    _compiled_predict_y_of_chunk = compiled(_predict_y_of_chunk)

    @check_shapes(
        "Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    @no_autograph
    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Compute mean and variance of new observations at Xnew, by quadrature if there is no closed
        form.

        :raises NotImplementedError: if full_cov or full_output_cov is True.
        :raises ValueError: if Xnew is not finite (eagerly).
        :raises tf.errors.InvalidArgumentError: if a predicted mean or variance is NaN.
        """
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_y has no full_cov and no full_output_cov: they must be False."
            )
        Xnew = validation.real_numbers(Xnew, "Xnew")
        mean, variance = predicted_moments(self.likelihood, Xnew, *self.predict_f(Xnew))
        return _not_nan(mean, "the predicted mean of y"), _not_nan(
            variance, "the predicted variance of y"
        )

    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
    @no_autograph
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """
        Compute the log density of new observations Y at X, in nats.

        :raises NotImplementedError: if full_cov or full_output_cov is True.
        :raises ValueError: if X is not finite (eagerly), or the likelihood does not accept Y.
        :raises tf.errors.InvalidArgumentError: if a density is NaN.
        """
        X, Y = data
        X = validation.inputs(X, "data[0] (X)")
        Y = validation.real_numbers(Y, "data[1] (Y)")
        rows = check_observations(self.likelihood, flat_rows(Y), self.num_latent_gps)
        Y = tf.reshape(rows, tf.shape(Y))
        if in_xla():
            X = asserted(X, tf.math.is_finite(Y))  # a likelihood may treat NaN as a label
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_log_density has no full_cov and no full_output_cov: they must be False."
            )
        density = predicted_log_density(self.likelihood, X, *self.predict_f(X), Y)
        return _not_nan(density, "the log predictive densities")

    @inherit_check_shapes
    @no_autograph
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Sample the latent functions at Xnew; see :meth:`gpflow.models.GPModel.predict_f_samples`.

        :raises tf.errors.InvalidArgumentError: if their covariance cannot be factorized.
        """
        samples = super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)
        return finite(
            samples,
            name="the posterior samples",
            advice="a larger jitter, or fewer or distinct Xnew",
        )


class SparseGP(InducingVariableGP, InternalDataTrainingLossMixin):
    """
    A GP that stores its data, with a posterior made of Gaussian sites. A model may extend
    :meth:`checked_new_data`, :meth:`assign_data` (which also resizes the variables whose size
    depends on N) and :meth:`batch_variables`.
    """

    def __new__(cls, *args: object, **options: object) -> Self:
        """
        Reject arguments in the order of models without data, such as SVGP: Python's error would
        name a wrong one.
        """
        if isinstance(next(iter(args), None), Kernel) or "num_data" in options:
            raise ValueError(
                f"data must come first, got a kernel or num_data, as for SVGP: {cls.__name__}((X, "
                "Y), kernel, ...)."
            )
        return super().__new__(cls)

    def __init__(
        self,
        data: RegressionData | DatasetChunks,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        mean_function: MeanFunction | None,
        num_latent_gps: int,
        chunk_size: int | None,
        max_jitter: float | None,
    ):
        """:param data: from :func:`checked_data`."""
        super().__init__(
            kernel, likelihood, inducing_variable, mean_function, num_latent_gps, max_jitter
        )
        self._workers = Workers.of_strategy()
        self._devices = devices_of_strategy()
        arrays = () if isinstance(data, DatasetChunks) else data
        self._data = tuple(
            local_variable(values, default_float(), shape=[None, values.shape[1]])
            for values in arrays
        )
        self._num_inputs = columns(data)[0]
        self._chunk_size = validation.chunk_size(chunk_size) or self._default_chunk_size()
        # At this size a chunk takes 10 ms of Python.
        eager_size = None if chunk_size else 8 * self._chunk_size
        rows = RowChunks(self._chunk_size, self._devices, eager_size=eager_size)
        self._chunks: Any = data if isinstance(data, DatasetChunks) else rows
        self._old = self._new_old_posterior()
        if self._workers.count > 1:
            check_disjoint(self._workers, self._batches())

    @override
    def _check(self) -> None:
        super()._check()
        if index_columns(self.kernel):
            for number, (X, _) in enumerate(self._batches(), start=1):
                name = "data[0] (X)" if self._data else f"data[0] (X) of batch {number}"
                checked_indices(self.kernel, tf.cast(X, default_float()), name)

    def _batches(self) -> Iterable[RegressionData]:
        """Return the batches of a dataset; X and Y, if they are in memory, are one batch."""
        if not self._data:
            return self._chunks.batches()
        X, Y = self._data
        return [(tf.convert_to_tensor(X), tf.convert_to_tensor(Y))]

    def _default_chunk_size(self) -> int:
        num_rows = MOST_ROWS
        if self._data and self._devices is not None:
            num_rows = -(-int(self._local_num_data()) // len(self._devices))
        return default_chunk_size(
            self._data[0].device if self._data else "",
            int(self.inducing_variable.num_inducing),
            tf.as_dtype(default_float()).size,
            num_rows=num_rows,
            on_cpu=self._rows_on_cpu(),
        )

    def _rows_on_cpu(self) -> int:
        """Return the default number of rows of a chunk on a CPU."""
        return ROWS_ON_CPU

    def batch_variables(self) -> dict[str, tf.Variable]:
        """Return the variables that a stream replaces with its batch, by name."""
        X, Y = self._data
        return {"data.X": X, "data.Y": Y} | (
            {"alpha": self._alpha} if hasattr(self, "_alpha") else {}
        )

    @inherit_check_shapes
    @no_autograph
    def training_loss(self, *data: object) -> tf.Tensor:
        """Return the negative objective, [] in nats. Takes no data: the model stores them."""
        if data:
            raise TypeError(
                f"{type(self).__name__} stores its data: call training_loss() without data."
            )
        return super().training_loss()

    @property
    def data(self) -> RegressionData | tf.data.Dataset:
        """
        The data: variables X [N, D] and Y [N, P], or the dataset given to the constructor.
        ``model.data = (X, Y)`` checks and assigns new data; compiled functions use them without
        retracing. A dataset cannot be replaced.

        :raises ValueError: if set to data that the model does not accept.
        """
        return self._data or self._chunks.dataset

    @data.setter
    def data(self, data: RegressionData) -> None:
        X, Y = self.checked_new_data(data)
        with atomic([self], self._hidden_variables()):
            self.assign_data(X, Y)

    def check_data(self) -> None:
        """
        Read a dataset again; raise a `ValueError` if its rows differ from the rows that the
        constructor read.
        """
        if not self._data:
            self._chunks.check()

    def checked_new_data(self, data: object) -> tuple[AnyNDArray, AnyNDArray]:
        """Check new data for the model and return them as arrays, without assigning them."""
        if not self._data:
            raise ValueError(
                "data of a model with a dataset cannot be replaced: construct a new model."
            )
        if self._workers.count > 1:
            raise ValueError(
                "data of a model of several workers cannot be replaced: construct a new model."
            )
        if isinstance(data, tf.data.Dataset):
            raise ValueError(
                "data must be a pair (X, Y) of arrays, got a dataset: construct a new model for it."
            )
        X, Y = validation.regression_data(data)
        for name, values, variable in zip(("X", "Y"), (X, Y), self._data, strict=True):
            if values.shape[1] != variable.shape[1]:
                raise ValueError(
                    f"data ({name}) must keep {variable.shape[1]} columns, got {values.shape[1]}."
                )
        return checked_indices(self.kernel, X, "data[0] (X)"), Y

    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Assign checked data X [N, D], Y [N, P], or raise an error."""
        assign_all(self._data, (X, Y))

    @override
    def run_identity(self) -> dict[str, object]:
        dataset = None if self._data else self._chunks.identity
        return super().run_identity() | {"chunk_size": self._chunk_size, "dataset": dataset}

    @property
    def num_data(self) -> tf.Tensor:
        """Number of rows N, summed over the workers if there are several, []."""
        return self._workers.sum(self._local_num_data())

    def _local_num_data(self) -> tf.Tensor:
        """Number of rows of this worker, []."""
        return tf.shape(self._data[0])[0] if self._data else self._chunks.num_data

    def _equally_many(self, others: str, *counts: tf.Tensor) -> Tensors:
        """
        Return (X, Y), or () for a dataset; raise an error unless X, Y and `others` have equally
        many rows.
        """
        if not self._data:
            return ()
        X, Y = map(tf.convert_to_tensor, self._data)
        same = tf.reduce_all(
            [tf.equal(tf.shape(X)[0], count) for count in (tf.shape(Y)[0], *counts)]
        )
        message = (
            f"X, Y and {others} have different numbers of rows: set model.data = (X, Y) instead"
        )
        return asserted(X, same, message), Y

    def _old_site(self, L: tf.Tensor, alpha: tf.Tensor) -> OldPosteriorSite | None:
        """
        Return the site of the old posterior for one power []; None unless the model is a stream.
        """
        if self._old is None:
            return None
        projected = self._old.project(self.inducing_variable, self.kernel, self._jitter_of_Kuu(), L)
        return self._old.site(projected, alpha, self._old_noise_variance())

    def _old_noise_variance(self) -> tf.Tensor | None:
        """Return the noise variance of a stream's earlier rows, []; None: as they were absorbed."""
        return None

    def _inducing_covariance(self, prior: Prior) -> tf.Tensor:
        """
        Compute Kuu. Its gradient raises an error if a kernel has a tensor for a parameter: Kuf and
        Kff lack it.
        """
        covariance = prior.Kuu(self._jitter_of_Kuu())
        tensors = [
            f"{name} of {type(part).__name__}"
            for part in (self.kernel, *self.kernel.submodules)
            if isinstance(part, Kernel)
            for name, value in vars(part).items()
            if isinstance(value, tf.Tensor) and value.dtype.is_floating
        ]
        if not tensors:
            return covariance
        found = f"{', '.join(tensors)} is a tensor; make it a gpflow.Parameter (trainable or not)"
        message = f"kernel: the derivative would be incomplete, since {found}."

        @tf.custom_gradient
        def guarded(covariance: tf.Tensor) -> WithGradient:
            # raised when the gradient runs, not when it is traced: an export only traces it
            return tf.identity(covariance), lambda bar: asserted(bar, tf.constant(False), message)

        return guarded(covariance)

    @check_shapes("return[0]: [M, P]", "return[1]: [covariances..., M, M]")
    @no_autograph
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u), without the mean function: L B^-1 c [M, P] and L B^-1
        L', [M, M] if the outputs share it, otherwise [P, M, M]. An SVGP with this q(u) gives the
        same predictions.
        """
        L, LB, b = self.site_sums().posterior()
        mean = tf.matmul(L, b)  # [M, P] or [P, M, 1]
        root = tf.linalg.triangular_solve(LB, tf.linalg.matrix_transpose(L))  # chol(B)^-1 L'
        covariance = tf.matmul(root, root, transpose_a=True)
        return mean if mean.shape.rank == 2 else tf.transpose(mean[..., 0]), covariance


_NO_BOUND = (
    "elbo() needs alpha = 0, since the objective is no bound at other powers: use "
    "maximum_log_likelihood_objective(). alpha is"
)


def checked_bound(objective: tf.Tensor, alpha: tf.Variable) -> tf.Tensor:
    """Return the objective, a lower bound if alpha = 0; raise an error at other powers."""
    return asserted(objective, alpha == 0.0, _NO_BOUND, alpha)


def checked_power(alpha: tf.Variable, largest: float = 1.0, why: str = "") -> tf.Tensor:
    """
    Return alpha's current value, also in a graph, not differentiated; raise an error outside [0,
    largest].
    """
    value = tf.stop_gradient(tf.convert_to_tensor(alpha))
    accepted = "in [0, 1]" if largest else "0"
    return asserted(
        value, (value >= 0.0) & (value <= largest), f"alpha must be {accepted}{why}, got", value
    )


def checked_data(data: object, chunk_size: object) -> tuple[AnyNDArray, AnyNDArray] | DatasetChunks:
    """
    Check arrays X and Y, or a dataset, which is read; `chunk_size` must be None for a dataset.
    """
    if not isinstance(data, tf.data.Dataset | DatasetChunks):
        return validation.regression_data(data)
    if chunk_size is not None:
        raise ValueError(
            "chunk_size must be None if data is a dataset, whose batches are chunks, got "
            f"{chunk_size!r}."
        )
    return data if isinstance(data, DatasetChunks) else DatasetChunks(data)


def checked_rows(model: GPModel, data: object) -> tuple[AnyNDArray, AnyNDArray]:
    """Check X [N, D] and Y [N, P] that a model, of this library or of GPflow, does not store."""
    X, Y = validation.regression_data(data)
    if isinstance(model, InducingVariableGP) and are_inducing_points(model.inducing_variable):
        D = int(single_output_variables(model.inducing_variable)[0].Z.shape[1])
        if X.shape[1] != D:
            raise ValueError(
                f"data[0] (X) must have as many columns as the inducing points, {D}, got "
                f"{X.shape[1]}."
            )
    mixing = getattr(model.kernel, "W", None)  # [P, C], of latent functions that outputs share
    check_observations(
        model.likelihood, Y, int(model.num_latent_gps if mixing is None else mixing.shape[0])
    )
    return checked_indices(model.kernel, X, "data[0] (X)"), Y


def columns(data: RegressionData | DatasetChunks) -> tuple[int, int]:
    """Return D and P of checked data."""
    if isinstance(data, DatasetChunks):
        return data.columns
    X, Y = data
    return X.shape[1], Y.shape[1]


def _not_nan(value: tf.Tensor, name: str) -> tf.Tensor:
    """Raise an error on NaN. Infinity is a valid result (variance of a Student-t, log 0)."""
    if in_xla():
        return asserted(value, ~tf.math.is_nan(value))
    bounded = tf.where(tf.math.is_inf(value), tf.zeros_like(value), value)
    with tf.control_dependencies([finite(bounded, name=name, advice=_ADVICE_Y)]):
        return tf.identity(value)
