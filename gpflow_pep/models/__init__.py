"""
Models, one family per file. Constructors raise a ValueError that names the argument that cannot be
used.
"""

from .block_pep import BlockPEP
from .classifier import PEPClassifier
from .pep import PEP
from .pepr import PEPR
from .streaming import StreamingPEP, StreamingSGPR, StreamingSVGP
from .structured_svgp import BTSVGP, PEPSVGP, TSVGP
from .tied import APEP, ARPEP, RPAPEP
from .tsgpr import BTSGPR, TSGPR
