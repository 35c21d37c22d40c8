"""What a user constructs, one family a file."""

from .btsgpr import BTSGPR
from .classifier import PEPClassifier
from .pepr import PEPR
from .streaming import StreamingSGPR
from .streaming_svgp import StreamingSVGP
from .tied import APEP, ARPEP, RPAPEP
from .tsgpr import TSGPR

__all__ = ["APEP", "ARPEP", "BTSGPR", "PEPR", "RPAPEP", "TSGPR", "PEPClassifier", "StreamingSGPR", "StreamingSVGP"]
