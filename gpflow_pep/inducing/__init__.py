"""
Inducing points Z [M, D] for this library and GPflow: :func:`uniform`, :func:`k_means`,
:func:`greedy_variance`.

:func:`neighbor_blocks` divides rows into blocks.
"""

from .blocks import neighbor_blocks
from .greedy_variance import greedy_conditional_variance, greedy_variance
from .rows import k_means, uniform

__all__ = [
    "greedy_conditional_variance",
    "greedy_variance",
    "k_means",
    "neighbor_blocks",
    "uniform",
]
