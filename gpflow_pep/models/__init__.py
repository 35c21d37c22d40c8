"""What a user constructs, one family a file."""

from .btsgpr import BTSGPR
from .classifier import PEPClassifier
from .pepr import PEPR
from .tsgpr import TSGPR

__all__ = ["BTSGPR", "PEPR", "TSGPR", "PEPClassifier"]
