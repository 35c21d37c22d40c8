"""Gaussian sites for any likelihood: tilted distributions, their projections, sweeps and the energy."""

from .convergence import Report, SitesStatus, converge, converge_in_batches, update_batch, update_once
from .energy import energy
from .gaussian import SiteSums
from .latent import LatentRows
from .leave_one_out import leave_one_out
from .projections import site_rule
from .sweep import Sites, Sweep, sweep
from .tilted import Cavity, Rows, Tilted, TiltedRule

__all__ = [
    "Cavity",
    "LatentRows",
    "Report",
    "Rows",
    "SiteSums",
    "Sites",
    "SitesStatus",
    "Sweep",
    "Tilted",
    "TiltedRule",
    "converge",
    "converge_in_batches",
    "energy",
    "leave_one_out",
    "site_rule",
    "sweep",
    "update_batch",
    "update_once",
]
