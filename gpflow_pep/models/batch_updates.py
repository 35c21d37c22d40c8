"""Updates of some sites at a time: of a model's batches until all sites have converged, or of minibatches in training.

Methods of :class:`.pep.PEP`. Those that end in `_step` are compiled.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from .. import validation
from ..engine import SiteSums
from ..ep import EnergyInputs, SitesStatus, minibatch_objective, old_objective, project, sum_sites, update_rows
from ..ep.cavity import Site
from ..runtime.checks import with_plain_errors
from ..runtime.custom_gradients import derivatives
from ..runtime.devices import in_replica
from ..runtime.tracing import compiled

if TYPE_CHECKING:
    from .pep import PEP

_ANOTHER_EPOCH = "data must not change within an epoch: call minibatches() again."


def check_in_memory(model: "PEP") -> None:
    """
    Check that all rows are in this process.

    :raises ValueError: if data is a dataset, or there are several workers.
    """
    if isinstance(model.data, tf.data.Dataset):
        raise ValueError(
            "data must be arrays for updates of a batch of sites at a time, got a tf.data.Dataset: use update_sites() "
            "without batch_size."
        )
    if model._workers is not None:
        raise ValueError(
            f"updates of a batch of sites at a time need all rows in one process, got {model._workers.count} workers: "
            "use update_sites() without batch_size."
        )


def update_in_batches(model: "PEP", size: int, callback: Callable[[SitesStatus], None] | None) -> None:
    """
    Sweep over batches of `size` sites in random order until the sites have converged, or max_sweeps is reached.

    :param callback: called with the status before each sweep but one at which the sites have converged.
    """
    rng, limit = np.random.default_rng(0), model.max_sweeps
    try:
        for _ in range(limit):
            model._options.max_sweeps.assign(0)  # only the status
            model._converged_in_graph()
            if model.sites_status.converged:
                break
            if callback is not None:
                callback(model.sites_status)
            order = tf.constant(rng.permutation(model._num_rows), tf.int32)
            with_plain_errors(model._sweep_in_batches_step, order, tf.constant(size))
    finally:
        model._options.max_sweeps.assign(limit)


def minibatches(
    model: "PEP", batch_size: int, *, damping: float | None = None, seed: int = 0
) -> Iterator[list[tf.Tensor]]:
    """
    Estimate the derivatives of the training loss in the trainable variables from each minibatch of an epoch.

    The minibatch's sites and q are updated first. Hyperparameters may change between minibatches; the contribution
    of the other rows to q follows them at the next call, for the next epoch.

    :param batch_size: rows of a minibatch.
    :param damping: the fraction of an update to take, reduced if B would not be positive definite. None: the model's.
    :param seed: seed for the partition.
    :return: for each minibatch the derivatives, in the order of `trainable_variables`.
    :raises ValueError: naming the argument that cannot be used.
    :raises RuntimeError: while iterating, if the data have changed since the epoch began.
    """
    check_in_memory(model)
    batch_size = validation.positive_integer(batch_size, "batch_size")
    damping = model.damping if damping is None else validation.fraction(damping, "damping")
    return _epoch(model, batch_size, damping, validation.seed(seed))


def _epoch(model: "PEP", batch_size: int, damping: float, seed: int) -> Iterator[list[tf.Tensor]]:
    fraction = tf.constant(damping, default_float())
    order = np.random.default_rng(seed).permutation(model._num_rows).astype(np.int32)
    data, sites = [tf.convert_to_tensor(values) for values in model._data], None
    for start in range(0, len(order), batch_size):
        if _differ(data, model._data):
            raise RuntimeError(_ANOTHER_EPOCH)
        if sites is None or _differ(sites, model._sites.values()):  # predictions may have updated the sites
            A, c = with_plain_errors(model._sum_sites_step)
        indices = tf.constant(order[start : start + batch_size])
        A, c, gradients = with_plain_errors(model._minibatch_step, A, c, indices, fraction)
        sites = model._sites.values()
        yield gradients


@compiled
def sum_sites_step(model: "PEP") -> tuple[tf.Tensor, tf.Tensor]:
    """Compute A and c of the sites."""
    inputs = model._energy_inputs()
    return sum_sites(inputs.rows, model._projected(inputs), model._sites.stacked(), inputs.L)


@compiled(reduce_retracing=True)
def sweep_in_batches_step(model: "PEP", order: tf.Tensor, size: tf.Tensor) -> None:
    """Update the sites, `size` of them at a time in this order, and q after each batch."""
    inputs, damping = model._energy_inputs(), tf.convert_to_tensor(model._options.damping)
    start = sum_sites(inputs.rows, model._projected(inputs), model._sites.stacked(), inputs.L)

    def step(first: tf.Tensor, A: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
        sums = _updated(model, inputs, SiteSums(inputs.L, A, c), order[first : first + size], damping)
        return first + size, sums.A, sums.c

    tf.while_loop(lambda first, *_: first < tf.size(order), step, (tf.constant(0), *start), parallel_iterations=1)


@compiled(reduce_retracing=True)
def minibatch_step(
    model: "PEP", A: tf.Tensor, c: tf.Tensor, indices: tf.Tensor, damping: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Update the sites of some rows; return A, c and the estimated gradient of the training loss."""
    result: tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]] = in_replica(
        partial(_updated_minibatch, model), A, c, indices, damping
    )
    return result


def _updated_minibatch(
    model: "PEP", A: tf.Tensor, c: tf.Tensor, indices: tf.Tensor, damping: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    variables = model.trainable_variables
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        inputs = model._energy_inputs()
        with tape.stop_recording():
            sums = _updated(model, inputs, SiteSums(inputs.L, A, c), indices, damping)
            q = sums.with_old(inputs.old).posterior()
        with tf.control_dependencies([sums.A]):  # the sites of the minibatch have been updated
            site = Site(*(tf.transpose(tf.gather(v, indices)) for v in (model._sites.precision, model._sites.linear)))
            batch = model._rows(indices=indices)
            projected = project(inputs.L, batch(tf.constant(0), *batch.inputs), inputs.scale)
            objective = minibatch_objective(batch, projected, model._rule, site, q, model.num_data)
        loss = -objective - inputs.terms - model.log_prior_density()
        if inputs.old is not None:
            loss -= old_objective(inputs.old, q)
    return sums.A, sums.c, list(derivatives(tape, loss, variables))


def _updated(model: "PEP", inputs: EnergyInputs, sums: SiteSums, indices: tf.Tensor, damping: tf.Tensor) -> SiteSums:
    """Update the sites of some rows."""
    rows = model._rows(indices=indices)
    return update_rows(rows, indices, model._rule, model._sites, sums, inputs.old, inputs.scale, damping)


def _differ(some: Iterable[tf.Tensor], others: Iterable[Any]) -> bool:
    """Whether any of these tensors differs from its counterpart in shape or value; NaN is like NaN."""
    for x, y in zip(some, map(tf.convert_to_tensor, others), strict=True):
        if x.shape != y.shape or bool(tf.reduce_any((x != y) & ~(tf.math.is_nan(x) & tf.math.is_nan(y)))):
            return True
    return False
