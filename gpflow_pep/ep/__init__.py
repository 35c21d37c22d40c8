"""Power expectation propagation: cavities, site updates, sweeps until they converge, the energy, leave-one-out."""

from .convergence import converge
from .energy import EnergyInputs, energy_derivatives, leave_one_out
from .minibatch import minibatch_objective, old_objective, update_rows
from .rows import LatentRows, ProjectedRows, project
from .sites import Sites, SitesStatus
from .solution import CONVERGED, IMPROPER, RUNNING, ConvergenceOptions, Iterate, LoopResult, SitesProblem
from .sweep import sum_sites

__all__ = [
    "CONVERGED",
    "IMPROPER",
    "RUNNING",
    "ConvergenceOptions",
    "EnergyInputs",
    "Iterate",
    "LatentRows",
    "LoopResult",
    "ProjectedRows",
    "Sites",
    "SitesProblem",
    "SitesStatus",
    "converge",
    "energy_derivatives",
    "leave_one_out",
    "minibatch_objective",
    "old_objective",
    "project",
    "sum_sites",
    "update_rows",
]
