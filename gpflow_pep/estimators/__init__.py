"""
Estimators for scikit-learn, which :mod:`gpflow_pep` does not import: scikit-learn takes seconds to
import.
"""

from .classifier import SparseGPClassifier
from .regressor import SparseGPRegressor

__all__ = ["SparseGPClassifier", "SparseGPRegressor"]
