"""
Estimators for scikit-learn: :class:`SparseGPRegressor` and :class:`SparseGPClassifier`.

They are not imported with :mod:`gpflow_pep`, since scikit-learn takes seconds to import.
"""

from .classifier import SparseGPClassifier
from .regressor import SparseGPRegressor

__all__ = ["SparseGPClassifier", "SparseGPRegressor"]
