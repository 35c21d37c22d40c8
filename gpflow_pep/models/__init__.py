"""Models, one family per file."""

from .classifier import PEPClassifier
from .pep import PEP
from .pepr import PEPR
from .streaming import StreamingPEP, StreamingSGPR, StreamingSVGP
from .structured_svgp import BTSVGP, PEPSVGP, TSVGP
from .tied import APEP, ARPEP, RPAPEP
from .tsgpr import BTSGPR, TSGPR

__all__ = [
    "APEP",
    "ARPEP",
    "BTSGPR",
    "BTSVGP",
    "PEP",
    "PEPR",
    "PEPSVGP",
    "RPAPEP",
    "TSGPR",
    "TSVGP",
    "PEPClassifier",
    "StreamingPEP",
    "StreamingSGPR",
    "StreamingSVGP",
]
