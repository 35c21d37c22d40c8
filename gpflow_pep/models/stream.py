"""Base classes of streaming models: the old posterior, its update with a new batch, and its state."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import parameter_dict
from typing_extensions import override

from .. import validation
from ..engine import AbsorbedPosterior, OldPosterior, OldSite, Prior, SiteSums, absorbed_posterior, independent_parts
from ..graphs import compiled
from ..identity import difference, settings_of
from ..inducing import greedy_conditional_variance
from ..stream_state import StreamState
from .all_or_nothing import all_or_nothing
from .moving_points import all_points, are_points, given_points, moved_points, place, points_of
from .sparse import SparseGP
from .structure import CompiledSteps

_Model = TypeVar("_Model", bound="Stream")
_POINTS, _PARTS = "inducing.Z", "parts"  # of a state


class Stream(CompiledSteps):
    """
    A model of the batch it holds, with the posterior of all earlier batches as one more Gaussian site.

    :meth:`update` absorbs the batch and takes the next one; in between the model is trained like any other. The old
    posterior is a factor on the old inducing variables (Bui, Nguyen and Turner 2017), kept in natural parameters. It is
    exact if hyperparameters and inducing points stay fixed, whatever the conditioning of Kuu; otherwise it is as
    accurate as the new inducing points represent f at the old ones.
    """

    _NEEDED: tuple[str, ...] = ()
    """Entries that a state must have so that a model can be constructed from it."""

    _old: OldPosterior
    _num_inducing: tf.Variable

    def _begin_stream(self, leading: list[int], num_outputs: int) -> None:
        """
        Start the stream, without an old posterior.

        :param leading: [] where outputs share q's covariance, or [C].
        :param num_outputs: columns of c, P or 1.
        :raises ValueError: if the inducing variable does not consist of inducing points.
        """
        if not are_points(self.inducing_variable):
            raise ValueError(f"inducing_variable must be inducing points, got {type(self.inducing_variable).__name__}.")
        K, _, D = all_points(self.inducing_variable).shape
        self._num_inducing = tf.Variable(int(self.inducing_variable.num_inducing), trainable=False)
        self._old = OldPosterior(K, D, leading, num_outputs, default_float())

    def update(
        self,
        new_data: RegressionData,
        inducing_variable: InducingPointsLike | None = None,
        *,
        fraction_to_move: float = 0.0,
    ) -> None:
        """
        Absorb the current posterior and go on with a new batch.

        The posterior is absorbed exactly if no site has a negative precision. Otherwise, directions in which it is
        wider than the prior become as wide as the prior. Models with sites update these first, and warn if they have
        not converged.

        Compiled functions see the change without retracing, whatever the batch's size, unless the number of inducing
        points changes: then compile the training loss again (the old one raises an error).

        :param new_data: (X, Y), the new batch.
        :param inducing_variable: the new inducing points, [M, D] (or [C, M, D] if each latent function has its own);
            None: keep the current ones.
        :param fraction_to_move: move at most this fraction of them, in [0, 1], to inputs of the new batch. Points are
            chosen greedily, by largest conditional variance, among the inputs and the current points.
        :raises ValueError: naming the argument that cannot be used; the model is unchanged.
        :raises tf.errors.InvalidArgumentError: if the posterior cannot be computed; the model is unchanged.
        """
        X, Y = self._new_batch(new_data)
        Z = self._next_points(X, inducing_variable, fraction_to_move)
        posterior = self._absorbed()
        with all_or_nothing([self, *points_of(self.inducing_variable)], self._changing_variables()):
            if Z is not None:
                self._place(Z)
                self._num_inducing.assign(Z.shape[1])
            self._old.assign(posterior)
            self._take(X, Y)

    @property
    def state(self) -> StreamState:
        """The state from which :meth:`from_state` continues the stream exactly."""
        values = {name: np.asarray(variable) for name, variable in self._stream_variables().items()}
        values[_POINTS] = all_points(self.inducing_variable).numpy()
        values[_PARTS] = np.array(json.dumps(self._made_of()))
        return StreamState(values | {name: parameter.numpy() for name, parameter in self._other_parameters().items()})

    @classmethod
    def from_state(cls: type[_Model], state: StreamState, *parts: Any, **options: Any) -> _Model:
        """
        Construct a model that continues from the state of another one.

        :param state: :attr:`state` of that model.
        :param parts: the positional arguments of the constructor between data and inducing variable: a kernel, or
            kernel and likelihood, which are given the state's parameters.
        :param options: the constructor's other arguments; alpha is the state's.
        :raises ValueError: if the state does not fit a model of this class and these parts.
        """
        arrays = dict(state.arrays)
        missing = sorted({_POINTS, _PARTS, *cls._NEEDED} - arrays.keys())
        if missing:
            raise ValueError(f"the state must be that of a {cls.__name__}; it lacks {', '.join(missing)}.")
        Z, parts_then = arrays.pop(_POINTS), arrays.pop(_PARTS)
        if Z.ndim != 3 or 0 in Z.shape:
            raise ValueError(f"the state's {_POINTS} must have shape [1 or C, M, D], got {list(Z.shape)}.")
        points = Z[0] if len(Z) == 1 else SeparateIndependentInducingVariables([InducingPoints(each) for each in Z])
        try:
            model = cls._constructed(arrays, *parts, points, **options)
        except ValueError as error:  # it names the argument that came from the state
            raise ValueError(f"cannot make a {cls.__name__} of this state and these parts: {error}") from error
        variables = model._stream_variables() | model._other_parameters()
        if variables.keys() != arrays.keys():
            differing = sorted(variables.keys() ^ arrays.keys())
            raise ValueError(
                f"the state must have the parameters of this model; they differ in {', '.join(differing)}."
            )
        setting = difference(model._made_of(), _settings_in(parts_then))
        if setting is not None:
            raise ValueError(
                f"the state must be that of a model with the same kernel, likelihood and mean function; they differ in "
                f"{setting}."
            )
        for name, variable in variables.items():
            if not variable.shape.is_compatible_with(arrays[name].shape):
                raise ValueError(f"the state's {name} must have shape {variable.shape}, got {arrays[name].shape}.")
            if arrays[name].dtype != variable.dtype.as_numpy_dtype:
                raise ValueError(f"the state's {name} must be {variable.dtype.name}, got {arrays[name].dtype}.")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"the state's {name} must be finite, got values that are NaN or infinite.")
        for name, variable in variables.items():
            variable.assign(arrays[name])
        return model

    def _made_of(self) -> list[list[str]]:
        """Return classes and settings of kernel, likelihood and mean function."""
        return [list(setting) for setting in settings_of(self.kernel, self.likelihood, self.mean_function)]

    def _other_parameters(self) -> dict[str, tf.Variable]:
        """Return the unconstrained variables of all parameters but the inducing points, by name."""
        parameters = parameter_dict(self)
        points = parameter_dict(self.inducing_variable).values()
        return {
            f"parameter{path}": parameter.unconstrained_variable
            for path, parameter in parameters.items()
            if not any(parameter is other for other in points)
        }

    def _changing_variables(self) -> list[tf.Variable]:
        """Return all variables that an update may assign to."""
        points = (point.unconstrained_variable for point in parameter_dict(self.inducing_variable).values())
        others = self._stream_variables() | self._other_parameters()
        return [self._num_inducing, *points, *others.values()]

    def _stream_variables(self) -> dict[str, tf.Variable]:
        """Return the variables that change from batch to batch, by name."""
        return {f"old.{name}": variable for name, variable in self._old.absorbed._asdict().items()}

    @classmethod
    @abstractmethod
    def _constructed(cls: type[_Model], arrays: Mapping[str, AnyNDArray], *parts: Any, **options: Any) -> _Model:
        """Construct a model of the state's batch; `parts` are kernel, perhaps likelihood, and inducing variable."""

    @abstractmethod
    def _new_batch(self, new_data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """Check a new batch and return it as arrays."""

    @abstractmethod
    def _take(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Hold this batch."""

    def _absorbed(self) -> AbsorbedPosterior:
        """Return the current posterior, which becomes the old one."""
        structure = self._current_structure()  # first: this drops traces of another structure
        found: AbsorbedPosterior = self._absorb(structure)
        return found

    @abstractmethod
    def _absorb(self, structure: int) -> AbsorbedPosterior:
        """Compute the posterior to absorb; compiled once per structure."""

    def _place(self, Z: AnyNDArray) -> None:
        """Set the inducing points to Z, after all steps that may fail."""
        place(self.inducing_variable, Z)

    def _old_site(self, L: tf.Tensor, alpha: tf.Tensor) -> OldSite:
        """The site of the old posterior; `L` is the Cholesky factor of Kuu, and `alpha` one power, []."""
        return self._old.site(self.inducing_variable, self.kernel, L, alpha, default_jitter())

    def _next_points(
        self, X: AnyNDArray, inducing_variable: InducingPointsLike | None, fraction_to_move: float
    ) -> AnyNDArray | None:
        """Return the new inducing points, [1 or C, M, D]; None to keep the current ones."""
        if not (isinstance(fraction_to_move, int | float | np.number) and 0.0 <= fraction_to_move <= 1.0):
            raise ValueError(f"fraction_to_move must be a number in [0, 1], got {fraction_to_move!r}.")
        if inducing_variable is not None:
            if fraction_to_move:
                raise ValueError("inducing_variable and fraction_to_move cannot both be given.")
            return given_points(self.inducing_variable, inducing_variable)
        if not fraction_to_move:
            return None
        structure, count = self._current_structure(), int(self._num_inducing)

        def select(number: int, candidates: AnyNDArray, num_kept: int) -> tf.Tensor:
            return self._greedy(structure, number, *map(tf.constant, (candidates, count, num_kept)))

        return moved_points(self.inducing_variable, X, float(fraction_to_move), select)

    @compiled(reduce_retracing=True)
    def _greedy(self, structure: int, number: int, X: tf.Tensor, count: tf.Tensor, num_kept: tf.Tensor) -> tf.Tensor:
        _, kernel = independent_parts(self.inducing_variable, self.kernel)[number]
        return greedy_conditional_variance(kernel, X, count, first=num_kept, among=count)

    def _with_same_points(self, covariance: tf.Tensor) -> tf.Tensor:
        """
        Kuu itself.

        :raises tf.errors.InvalidArgumentError: in a function that was compiled for another number of inducing points.
        """
        message = "The number of inducing points has changed since this function was compiled: compile it again. M is"
        same = tf.equal(self._num_inducing, covariance.shape[-1])
        return validation.asserted(covariance, same, message, self._num_inducing)


class StreamOfBatches(Stream, SparseGP):
    """A streaming model that holds its batch."""

    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_old", "_num_inducing", "_alpha", *SparseGP._TF_MODULE_IGNORED_PROPERTIES}
    )

    _NEEDED = ("data.X", "data.Y", "alpha")

    _alpha: tf.Variable

    @override
    def _new_batch(self, new_data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        return self._replacement(new_data)

    @override
    def _take(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        self._hold(X, Y)

    @override
    @compiled
    def _absorb(self, structure: int) -> AbsorbedPosterior:
        return absorbed_posterior(all_points(self.inducing_variable), self._absorbed_sums())

    def _absorbed_sums(self) -> SiteSums:
        """The sums of the posterior, with the leading dimensions of the old one."""
        return self._sums()

    @override
    def _inducing_covariance(self, prior: Prior | None = None) -> tf.Tensor:
        return self._with_same_points(super()._inducing_covariance(prior))

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._resizable_variables(), *self._old.variables

    @override
    def _stream_variables(self) -> dict[str, tf.Variable]:
        X, Y = self._data
        return {**super()._stream_variables(), "data.X": X, "data.Y": Y, "alpha": self._alpha}

    @override
    @classmethod
    def _constructed(cls: type[_Model], arrays: Mapping[str, AnyNDArray], *parts: Any, **options: Any) -> _Model:
        return cls((arrays["data.X"], arrays["data.Y"]), *parts, **options)  # type: ignore[call-arg]


def _settings_in(text: AnyNDArray) -> list[list[str]]:
    """Read what `_made_of` returned from a state."""
    try:
        found = json.loads(str(text))
    except ValueError as error:
        raise ValueError(f"the state's {_PARTS} must be JSON that a model wrote, got {str(text)[:40]!r}.") from error
    if not isinstance(found, list) or not all(isinstance(each, list) and each for each in found):
        raise ValueError(f"the state's {_PARTS} must be a list of settings, got {str(text)[:40]!r}.")
    return found
