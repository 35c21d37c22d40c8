"""
Initial inducing points: :func:`uniform`, :func:`k_means` and :func:`greedy_variance` return an array Z [M, D] for the
models of this library and of GPflow.
"""

from .greedy_variance import greedy_conditional_variance, greedy_variance
from .rows import k_means, uniform

__all__ = ["greedy_conditional_variance", "greedy_variance", "k_means", "uniform"]
