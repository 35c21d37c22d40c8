"""Gaussian sites for any likelihood: tilted distributions, their projections, sweeps and the energy."""

from .convergence import (
    Look,
    Report,
    SitesStatus,
    converge,
    converge_in_batches,
    proper_start,
    update_once,
)
from .energy import energy
from .gaussian import Posterior, SiteSums, along
from .joint import joint_rule
from .latent import LatentRows
from .leave_one_out import leave_one_out
from .minibatch import update_rows
from .projections import site_rule
from .stochastic import minibatch_objective, old_objective
from .sweep import Sites, Sweep, no_sums, sweep
from .tilted import Cavity, Rows, Tilted, TiltedRule, log_normaliser

__all__ = [
    "Cavity",
    "LatentRows",
    "Look",
    "Posterior",
    "Report",
    "Rows",
    "SiteSums",
    "Sites",
    "SitesStatus",
    "Sweep",
    "Tilted",
    "TiltedRule",
    "along",
    "converge",
    "converge_in_batches",
    "energy",
    "joint_rule",
    "leave_one_out",
    "log_normaliser",
    "minibatch_objective",
    "no_sums",
    "old_objective",
    "proper_start",
    "site_rule",
    "sweep",
    "update_once",
    "update_rows",
]
