"""
Power expectation propagation: cavities, site updates, sweeps to convergence, the energy,
leave-one-out.
"""

from .energy import leave_one_out
from .inference import Inference, Sites, SitesStatus, UpdatedPosterior, status_before_updates
from .solver import FEW_SWEEPS, RUNNING, SolverOptions
from .sweep import LatentRows, Problem, sum_sites
