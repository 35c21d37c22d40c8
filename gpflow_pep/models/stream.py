"""Streaming models: absorb the posterior, continue with the next batch; state."""

import json
from abc import abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import parameter_dict
from typing_extensions import Self, override

from .. import validation
from ..engine import (
    AbsorbedPosterior,
    DatasetChunks,
    OldPosterior,
    checked_indices,
    independent_parts,
    kernel_matrix,
)
from ..inducing import greedy_conditional_variance
from ..inducing.rows import distinct
from ..runtime import ONE_PROCESS, atomic, compiled, with_plain_errors
from ..saving.arrays_file import Arrays
from ..saving.parameter_settings import parameter_settings, restore_parameter_settings
from ..saving.run_identity import settings_of
from ..saving.stream_state import (
    JITTER,
    NOT_VARIABLES,
    PARAMETERS,
    POINTS,
    SETTINGS,
    StreamState,
)
from .kernels_and_inducing_variables import (
    assign_inducing_points,
    inducing_points,
    other_parameters,
    validated_points,
)
from .sparse import InducingVariableGP, checked_rows


class Stream(InducingVariableGP):
    """
    A model of the current batch; the posterior of all earlier batches enters as an additional
    Gaussian site.

    :meth:`update` absorbs the batch and continues with the next. The old posterior is a factor on
    the old inducing variables (Bui, Nguyen and Turner 2017), stored in natural parameters. It is
    exact if hyperparameters and inducing points stay fixed, for any conditioning of Kuu; otherwise
    its accuracy depends on how well the new inducing points represent f at the old points.

    Derive a stream from a model and from this class, in this order. The model's `site_sums` and
    objective must include the site of :attr:`_old`, and it must take new data by the three methods
    below, as every :class:`.sparse.SparseGP` does.
    """

    _old: Any = None
    # Entries of a state that :meth:`from_state` requires.
    _NEEDED: tuple[str, ...] = ("data.X", "data.Y")

    def checked_new_data(self, data: object) -> tuple[AnyNDArray, AnyNDArray]:
        """Check another batch (X, Y) and return it as arrays."""
        return checked_rows(self, data)

    @abstractmethod
    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Assign checked data X [N, D], Y [N, P]."""

    @abstractmethod
    def batch_variables(self) -> dict[str, tf.Variable]:
        """
        Return the variables, other than parameters, that belong to the batch, by their names in the
        state.
        """

    @override
    def _new_old_posterior(self) -> OldPosterior:
        """
        Return an empty old posterior; reject datasets, several workers and variables other than
        inducing points.
        """
        if isinstance(getattr(self, "_chunks", None), DatasetChunks):
            raise ValueError(
                "data must be a pair (X, Y) of arrays, a batch of the stream, got a dataset."
            )
        if getattr(self, "_workers", ONE_PROCESS).count > 1:
            raise ValueError(
                f"{type(self).__name__} does not support several workers: construct it outside the "
                "scope of the distribution strategy."
            )
        C = self.num_latent_gps
        leading, num_outputs = ([], C) if self._shares_covariance else ([C], 1)
        Z = inducing_points(self.inducing_variable)
        return OldPosterior(Z.shape.as_list(), leading, num_outputs, default_float())

    @override
    def _check(self) -> None:
        super()._check()
        names = "sets of points", "points", "columns"
        Z = inducing_points(self.inducing_variable)
        for name, kept, size in zip(names, self._old.shape, Z.shape, strict=True):
            if size != kept:
                raise ValueError(
                    f"inducing_variable must keep {kept} {name}, got {size}: see update()."
                )

    def update(
        self,
        new_data: RegressionData,
        inducing_variable: InducingPointsLike | None = None,
        *,
        fraction_to_move: float = 0.0,
    ) -> None:
        """
        Absorb the current posterior and continue with a new batch.

        Directions in which the posterior is wider than the prior (only if sites have a negative
        precision) become as wide as the prior. Models with sites update them first, and warn if
        they have not converged. Compiled functions use the new batch, of any size, without
        retracing. If the number of inducing points changes, compile the training loss again (the
        old function raises an error).

        :param new_data: (X, Y), the new batch.
        :param inducing_variable: new inducing points, [M, D], or [C, M, D] if functions have their
            own; None: the same.
        :param fraction_to_move: move at most this fraction of the points, in [0, 1], to inputs of
            the new batch, chosen greedily by largest conditional variance among the inputs and the
            current points.
        :raises ValueError: naming the argument that cannot be used; the model is unchanged.
        :raises tf.errors.InvalidArgumentError: if the posterior or new Kuu cannot be computed; the
            model is unchanged.
        :raises RuntimeError: in a compiled function.
        """
        if not tf.executing_eagerly():
            raise RuntimeError(
                "update changes the size of the data and of q: call it outside of a tf.function."
            )
        X, Y = self.checked_new_data(new_data)
        # Larger squares over the noise variance may overflow in the state.
        limit = float(np.finfo(Y.dtype).max) ** 0.4
        size = np.abs(Y).max()
        if size > limit:
            raise ValueError(
                f"new_data[1] (Y) has a value of {size:g}; above {limit:.0e} the saved state "
                "would overflow. Rescale it."
            )
        Z = self._next_points(X, inducing_variable, fraction_to_move)
        posterior = with_plain_errors(self._absorb)
        for variable, kernel in independent_parts(self.inducing_variable, self.kernel):
            covariances = kernel_matrix(
                kernel, tf.convert_to_tensor(variable.Z)[:1], tf.constant(X)
            )
            if not np.isfinite(covariances).all():
                raise ValueError(
                    "new_data[0] (X) must have finite covariances with the inducing points: some "
                    "rows are too far away, in units of the kernel. Rescale X."
                )
        with self._all_or_nothing():
            self._old.assign(posterior, len(posterior.Z[0]))
            if Z is not None:
                self._old.assign(posterior, len(Z[0]))
                self._move_inducing_points(Z)
                # If Kuu cannot be factorized, the error comes here, not in every later update.
                self._factor_of_Kuu()
            self.assign_data(X, Y)

    @compiled
    def _absorb(self) -> AbsorbedPosterior:
        """Return the current posterior, divided by its prior."""
        return self._old.absorb(inducing_points(self.inducing_variable), self.site_sums())

    def _move_inducing_points(self, Z: AnyNDArray) -> None:
        assign_inducing_points(self.inducing_variable, Z)

    def _next_points(
        self, X: AnyNDArray, inducing_variable: InducingPointsLike | None, fraction_to_move: float
    ) -> AnyNDArray | None:
        """Return the new inducing points, [1 or C, M, D]; None to keep the current ones."""
        fraction_to_move = validation.share(fraction_to_move, "fraction_to_move")
        if inducing_variable is None:
            return self._moved_points(X, fraction_to_move) if fraction_to_move else None
        if fraction_to_move:
            raise ValueError("inducing_variable and fraction_to_move cannot both be given.")
        return checked_indices(
            self.kernel,
            validated_points(self.inducing_variable, inducing_variable),
            "inducing_variable (Z)",
        )

    def _moved_points(self, X: AnyNDArray, fraction: float) -> AnyNDArray:
        """
        Return the points [1 or C, M, D] after moving at most this fraction to inputs X [N, D].
        """
        Z = inducing_points(self.inducing_variable).numpy()
        count = Z.shape[1]
        num_kept = count - int(fraction * count)
        for number, old in enumerate(Z.copy()):
            candidates = np.concatenate([old, X])
            rows = distinct(candidates)
            candidates = np.concatenate([old, candidates[rows[rows >= count]]])
            selected = with_plain_errors(
                self._greedy, number, *map(tf.constant, (candidates, count, num_kept))
            ).numpy()
            stays = np.isin(np.arange(count), selected)  # a point that stays keeps its index
            Z[number, ~stays] = candidates[selected[selected >= count]]
        return Z

    @compiled(reduce_retracing=True)
    def _greedy(
        self, number: int, X: tf.Tensor, count: tf.Tensor, num_kept: tf.Tensor
    ) -> tf.Tensor:
        """
        Select points for a latent function from candidates X, the current points first; return
        their indices [M].
        """
        _, kernel = independent_parts(self.inducing_variable, self.kernel)[number]
        return greedy_conditional_variance(kernel, X, count, first=num_kept, among=count)

    @property
    def state(self) -> StreamState:
        """The state from which :meth:`from_state` continues the stream exactly."""
        arrays = {name: variable.numpy() for name, variable in self._state_variables().items()}
        arrays[POINTS] = inducing_points(self.inducing_variable).numpy()
        arrays[JITTER] = np.array(self._jitter_of_Kuu())
        arrays[PARAMETERS] = np.array(parameter_settings(self._parameters_by_name()))
        return StreamState(arrays | {SETTINGS: np.array(json.dumps(self._settings_of_parts()))})

    @classmethod
    def from_state(cls, state: StreamState, *parts: object, **options: object) -> Self:
        """
        Construct a model that continues from the state of another model.

        :param state: :attr:`state` of that model.
        :param parts: the positional arguments of the constructor between data and inducing
            variable: a kernel, or kernel and likelihood, whose parameters get the state's values
            and weak priors, and are trained or fixed as in that model.
        :param options: the constructor's keyword arguments without alpha, which is taken from the
            state, as is shared_noise unless it is given.
        :raises ValueError: if the state does not fit a model of this class, these parts and
            options, or if alpha is given.
        """
        needed = {*NOT_VARIABLES, *cls._NEEDED}
        missing = sorted(needed - getattr(state, "arrays", {}).keys())
        if missing:
            raise ValueError(
                f"state must be the StreamState of a {cls.__name__}; it lacks {', '.join(missing)}."
            )
        if "alpha" in options and "alpha" in state.arrays:
            raise ValueError(
                f"alpha must not be given, got {options['alpha']!r}: it is taken from the state. "
                "Set alpha of the model that from_state returns."
            )
        points: InducingPointsLike = state.points[0]
        if len(state.points) > 1:
            points = SeparateIndependentInducingVariables([InducingPoints(Z) for Z in state.points])
        try:
            if "alpha" in state.arrays:
                validation.power(state.arrays["alpha"])
            model = cls._of_batch(state.arrays, *parts, points, **options)
            jitter = validation.positive_number(state.arrays[JITTER], JITTER)
            if jitter != model._jitter_of_Kuu():
                model.jitter = jitter
            for name, variable in model.batch_variables().items():
                expected = variable.numpy()
                found = state.arrays.get(name, expected)
                if found.shape != expected.shape:
                    raise ValueError(
                        f"the state's {name} must have shape {list(expected.shape)}, as its data "
                        f"imply, got {list(found.shape)}."
                    )
        except (
            TypeError,
            ValueError,
        ) as error:  # names an argument from the state, or a missing one
            raise ValueError(
                f"cannot construct a {cls.__name__} from this state and these parts: {error}"
            ) from error
        variables = [parameter.unconstrained_variable for parameter in model.parameters]
        with atomic([*model.parameters, *variables], variables):  # the caller's parts
            restore_parameter_settings(model._parameters_by_name(), str(state.arrays[PARAMETERS]))
            state.assign_to(model._state_variables(), model._settings_of_parts())
            counts = [state.arrays[f"old.{name}"].shape[-2] for name in ("root", "Z", "linear")]
            if {*counts} != {state.arrays["old.root"].shape[-1]}:
                raise ValueError(
                    "the state must have a square root, Z and linear terms of as many old points, "
                    f"got {', '.join(map(str, counts))}."
                )
        return model

    @classmethod
    def _of_batch(cls, arrays: Arrays, *parts: object, **options: object) -> Self:
        """
        Construct a model of the state's batch; `parts` are kernel, likelihood (if any) and inducing
        variable.
        """
        return cls((arrays["data.X"], arrays["data.Y"]), *parts, **options)  # type: ignore[arg-type]

    def _parameters_by_name(self) -> dict[str, Parameter]:
        """Return all parameters, inducing points by number: their paths may change."""
        points = parameter_dict(self.inducing_variable).values()
        numbered = {f"points.{number}": each for number, each in enumerate(points)}
        return other_parameters(self) | numbered

    def _settings_of_parts(self) -> dict[str, str]:
        """Return the settings on which the meaning of the arrays depends, by path."""
        names = "kernel", "likelihood", "mean_function", "projection", "whiten"
        return settings_of({name: getattr(self, name) for name in names if hasattr(self, name)})

    def _state_variables(self) -> dict[str, tf.Variable]:
        """
        Return the variables of the state, by name: old posterior, batch, and parameters except
        inducing points.
        """
        old = {f"old.{name}": variable for name, variable in self._old.absorbed._asdict().items()}
        del old["old.noise"]  # part of the state only with shared_noise=True
        others = other_parameters(self).items()
        parameters = {f"parameter{path}": each.unconstrained_variable for path, each in others}
        return old | self.batch_variables() | parameters
