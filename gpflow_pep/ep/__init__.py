"""
Power expectation propagation: cavities, site updates, sweeps to convergence, the energy,
leave-one-out.
"""

from .energy import energy_derivatives, leave_one_out, leave_one_out_moments
from .implicit import implicit_bars
from .inference import Inference, Sites, SitesStatus, UpdatedPosterior, status_before_updates
from .solver import FEW_SWEEPS, RUNNING, SolverOptions
from .sweep import Iterate, LatentRows, Problem
