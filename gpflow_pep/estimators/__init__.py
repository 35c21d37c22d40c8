"""
Estimators for scikit-learn: :class:`SparseGPRegressor` and :class:`SparseGPClassifier`.

:mod:`gpflow_pep` does not import them, because scikit-learn takes seconds to import.
"""

from .classifier import SparseGPClassifier
from .regressor import SparseGPRegressor

__all__ = ["SparseGPClassifier", "SparseGPRegressor"]
