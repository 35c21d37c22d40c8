"""What a model declares about its training; `fit` asks for nothing else, so that other classes can be trained too."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeGuard

import tensorflow as tf
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin, InternalDataTrainingLossMixin

from ..ep import Sites, SitesStatus


class ModelWithSites(Protocol):
    """A model with ``has_sites = True``: its objective and its predictions converge its sites first."""

    has_sites: bool
    tol: float
    max_sweeps: int
    num_data: tf.Tensor

    @property
    def sites(self) -> Sites:
        """Natural parameters of the sites."""

    @property
    def sites_status(self) -> SitesStatus:
        """Status of their last update."""

    @property
    def sites_variables(self) -> dict[str, tf.Variable]:
        """The sites and their status, as a checkpoint holds them."""

    @property
    def is_lower_bound(self) -> bool:
        """Whether the objective is a lower bound on the log evidence, at any sites."""

    def training_loss(self) -> tf.Tensor:
        """Compute the loss at converged sites."""

    def update_sites(self) -> SitesStatus:
        """Converge the sites."""

    def reset_sites(self) -> None:
        """Make q the prior."""

    def minibatches(self, batch_size: int, *, seed: int) -> Iterator[list[tf.Tensor]]:
        """Yield the derivatives of the loss from each minibatch of an epoch."""

    def without_warnings(self) -> AbstractContextManager[None]:
        """Suppress the warning that sites have not converged."""


class Declared(NamedTuple):
    """The declarations of a model."""

    has_own_data: bool
    """GPflow's `InternalDataTrainingLossMixin`; otherwise `ExternalDataTrainingLossMixin`, and data are given."""
    has_sites: bool
    """Whether the model is a `ModelWithSites`."""
    minibatch_is_block: bool
    """Whether a minibatch is a block of the model, so that rows must stay together."""


def declared_by(model: GPModel) -> Declared:
    """
    Read the declarations of a model.

    :raises ValueError: if it has no training loss.
    """
    own = isinstance(model, InternalDataTrainingLossMixin)
    if not own and not isinstance(model, ExternalDataTrainingLossMixin):
        raise ValueError(f"model must be one of gpflow_pep or GPflow with a training loss, got {type(model).__name__}.")
    return Declared(own, has_sites(model), bool(getattr(model, "minibatch_is_block", False)))


def has_sites(model: Any) -> TypeGuard[ModelWithSites]:
    """Whether the model declares sites."""
    return bool(getattr(model, "has_sites", False))


def without_warnings(model: GPModel) -> AbstractContextManager[None]:
    """Suppress the warning that sites have not converged: the training result reports it."""
    return model.without_warnings() if has_sites(model) else nullcontext()
