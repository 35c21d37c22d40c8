"""TensorFlow internals: tracing, checks, custom gradients, devices, workers."""

from .checks import (
    RARE,
    UnreadableData,
    asserted,
    rarely,
    reason_of,
    repeated,
    silent,
    warn,
    with_plain_errors,
)
from .custom_gradients import (
    Sources,
    Tensors,
    WithGradient,
    derivatives,
    once_differentiable,
    unrecorded,
    watching,
)
from .devices import (
    devices_of_strategy,
    in_every_replica,
    in_replica,
    scope_of,
    side_by_side,
    sync_trainable,
)
from .distribution import ONE_PROCESS, Workers, check_disjoint, local_variable, row_hashes
from .tracing import (
    compiled,
    enabled,
    functions_of_model,
    in_xla,
    may_be_recorded,
    no_autograph,
    on_demand,
    recording_is_stopped,
    refuse_xla,
    resizable_copy,
    shared,
    structure_of,
    without_rare_branches,
)
from .transactions import assign_all, atomic, store
