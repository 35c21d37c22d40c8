"""Binary and multi-class likelihoods, exact and stable in the far tails."""

from .binary import Logit, Probit
from .robust_max import MultiClassRobustMax

__all__ = ["Logit", "MultiClassRobustMax", "Probit"]
