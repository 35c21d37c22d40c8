"""How the sites of a model are updated until they converge, and the energy is differentiated.

Methods of :class:`.pep.PEP`. Those that end in `_step` are compiled.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import record

from .. import validation
from ..engine import SingleRows, SiteSums, floating_variables
from ..ep import (
    CONVERGED,
    IMPROPER,
    RUNNING,
    ConvergenceOptions,
    EnergyInputs,
    Iterate,
    LoopResult,
    ProjectedRows,
    SitesProblem,
    SitesStatus,
    converge,
    energy_derivatives,
)
from ..runtime.checks import asserted, check, warn, with_plain_errors
from ..runtime.custom_gradients import unrecorded
from ..runtime.tracing import compiled, in_xla
from ..runtime.transactions import lock_of
from .batch_updates import check_in_memory, update_in_batches

if TYPE_CHECKING:
    from .pep import PEP

_IMPROPER = (
    "The sites cannot be updated: tilted distributions are not finite, or B not positive definite, even under the "
    "prior. Check data, likelihood and kernel for values that are NaN, infinite or overflowing. At alpha = 0, "
    "E[log p(y|f)] may overflow: try a larger alpha."
)
_NOT_CONVERGED = (
    "the sites have not converged. The objective and the predictions use the sites of the smallest change. Raise "
    "max_sweeps or tol, or lower damping or alpha; see sites_status. (This warning appears once for each model.)"
)


class UpdatedPosterior(NamedTuple):
    """Sites after an update, and quantities computed from them."""

    iterate: Iterate
    log_evidence: tf.Tensor
    total: SiteSums  # Of the sites, and of an old posterior if there is one


def converged(model: "PEP") -> UpdatedPosterior:
    """
    Update the sites until they converge or max_sweeps is reached, one thread at a time; warn once if they have not
    converged.
    """
    with _one_at_a_time(model):
        posterior = _converged_eagerly(model)
        if posterior is None:
            posterior = model._converged_in_graph()
        _warn_unless_converged(model)
        return posterior


def differentiated_energy(model: "PEP") -> tuple[tf.Tensor, list[tf.Tensor]]:
    """
    Update the sites as :func:`converged` does; return the energy and its derivatives, one for each of the model's
    floating variables.
    """
    with _one_at_a_time(model):
        energy, derivatives = with_plain_errors(unrecorded, model._differentiate_step)
        _warn_unless_converged(model)
        return energy, derivatives


def _one_at_a_time(model: "PEP") -> AbstractContextManager[Any]:
    return lock_of(model) if tf.executing_eagerly() else nullcontext()


def _warn_unless_converged(model: "PEP") -> None:
    if tf.executing_eagerly():
        if not model.sites_status.converged and not model._warned:
            model._warned.assign(True)
            warn(_NOT_CONVERGED[0].upper() + _NOT_CONVERGED[1:])
    elif not in_xla():  # which prints nothing
        tf.cond((model._status[0] > 0.0) | model._warned, lambda: tf.constant(False), lambda: _print_warning(model))


def _print_warning(model: "PEP") -> tf.Tensor:
    said = tf.print("gpflow_pep:", _NOT_CONVERGED, output_stream=sys.stderr)
    with tf.control_dependencies([said, model._warned.assign(True)]):
        return tf.constant(True)


def _converged_eagerly(model: "PEP") -> UpdatedPosterior | None:
    """
    Converge the sites without a graph while that takes less time than tracing one: in a model's first calls, and in the
    first ones after training, whose graph serves no prediction.

    :return: None, with the sites as they were, where a gradient tape records, rows belong to a dataset or to several
        devices or workers, or too many sweeps would be taken.
    """
    in_one_place = isinstance(model._chunks, SingleRows) and model._workers is None and model._devices is None
    if not tf.executing_eagerly() or not in_one_place or tf.distribute.has_strategy():
        return None
    # Tapes would record the sweeps; and where recording has stopped, so have the tapes in densities.
    if record.could_possibly_record() or pywrap_tfe.TFE_Py_TapeSetIsStopped():
        return None
    chunks = -(-model._num_rows // model._chunk_size)
    most = model._eager_sweeps // chunks
    if most == 0:
        return None
    inputs = model._energy_inputs()
    result = _sweep_until_converged(model, inputs, model._projected(inputs), interrupt_after=most)
    model._eager_sweeps -= chunks * (int(result.sweeps) + 1)
    return None if result.status == RUNNING else _accept(model, inputs, result)


def converged_in_graph(model: "PEP") -> UpdatedPosterior:
    """Update the sites as :func:`converged` does, in a graph and without a warning."""
    if tf.executing_eagerly():
        model._eager_sweeps = 0  # A graph that is at hand is faster.
    posterior: UpdatedPosterior = with_plain_errors(unrecorded, model._converge_step)
    return posterior


@compiled
def converge_step(model: "PEP") -> UpdatedPosterior:
    """Converge the sites, from their current values, and assign them and their status."""
    inputs = model._energy_inputs()
    return _accept(model, inputs, _sweep_until_converged(model, inputs, model._projected(inputs)))


@compiled
def differentiate_step(model: "PEP") -> tuple[tf.Tensor, list[tf.Tensor]]:
    """
    Converge the sites and assign them, as :func:`converge_step` does; return the energy and its derivatives, one for
    each of the model's floating variables.
    """
    variables, of_likelihood = model._floating_variables(), floating_variables(model.likelihood)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        inputs = model._energy_inputs()
    inputs = inputs._replace(L=tf.stop_gradient(inputs.L))
    projected = model._projected(inputs, variables)
    posterior = _accept(model, inputs, _sweep_until_converged(model, inputs, projected))
    parts = inputs, tape, projected, model._rule, posterior.iterate
    return posterior.log_evidence, energy_derivatives(*parts, variables, of_likelihood)


def _sweep_until_converged(
    model: "PEP", inputs: EnergyInputs, projected: ProjectedRows, interrupt_after: int | None = None
) -> LoopResult:
    problem = SitesProblem(inputs.rows, projected, model._rule, inputs.L, inputs.old, model._is_bound())
    options = ConvergenceOptions(*map(tf.convert_to_tensor, model._options))
    return converge(
        problem,
        model._sites.stacked(),
        options,
        num_data=model._num_rows_of_all_workers,
        fraction=tf.where(model._status[0] > 0.0, options.damping, model._status[4]),
        interrupt_after=interrupt_after,
    )


def _accept(model: "PEP", inputs: EnergyInputs, result: LoopResult) -> UpdatedPosterior:
    """Assign the sites that the loop ended with, and their status; raise an error where none are proper."""
    iterate, sweeps, fraction, outcome = result
    proper = outcome != IMPROPER
    sites = iterate.sites
    if in_xla():
        sites = tf.where(proper, sites, model._sites.stacked())
        iterate = tf.nest.map_structure(lambda value: asserted(value, proper), iterate)
    log_evidence = iterate.log_evidence + inputs.terms
    is_converged = tf.cast(tf.equal(outcome, CONVERGED), iterate.change.dtype)
    status = [is_converged, tf.cast(sweeps, iterate.change.dtype), iterate.change, log_evidence, fraction]
    with tf.control_dependencies(check(proper, _IMPROPER)):
        precision, linear = tf.unstack(sites, axis=1)
        assigned = [
            model._sites.precision.assign(precision),
            model._sites.linear.assign(linear),
            model._status.assign(tf.stack(status)),
        ]
    with tf.control_dependencies(assigned):
        iterate = iterate._replace(A=tf.identity(iterate.A), c=tf.identity(iterate.c))
    total = SiteSums(inputs.L, iterate.A, iterate.c).with_old(inputs.old)
    return UpdatedPosterior(iterate, log_evidence, total)


def update_sites(
    model: "PEP", *, batch_size: int | None = None, callback: Callable[[SitesStatus], None] | None = None
) -> SitesStatus:
    """
    Update the sites until they have converged, starting from their current values, with hyperparameters fixed.

    Objective and predictions do this themselves. The fraction of an update to take is adaptive. An update that
    makes a cavity improper, or B not positive definite, is rejected. Cost of a sweep: O(N M²).

    :param batch_size: None: parallel sweeps. Otherwise this many sites are updated at a time, in random order, and
        q after each batch, at an extra cost of O(M³) per batch; if the sites have not converged after `max_sweeps` such
        sweeps, parallel ones follow.
    :param callback: called with the final status and, with `batch_size`, with the status between sweeps.
    :return: the status: whether the sites have converged, and the log evidence.
    :raises ValueError: if batch_size is not a positive integer; or if it is given, and data is a dataset or there are
        several workers.
    :raises RuntimeError: in a compiled function.
    :raises tf.errors.InvalidArgumentError: if tilted distributions are not finite even under the prior.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("update_sites returns a Python object: call it outside of a tf.function.")
    if batch_size is not None:
        check_in_memory(model)
        size = min(validation.positive_integer(batch_size, "batch_size"), model._num_rows)
        update_in_batches(model, size, callback)
    model._converged()
    if callback is not None:
        callback(model.sites_status)
    return model.sites_status
