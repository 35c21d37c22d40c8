"""
Real data sets with fixed train/test splits: ``names()``, ``describe(name)`` and
``load(name, split)``.

A file is downloaded when its set is first loaded, checked against its sha256 and kept in the user's
cache. If the environment variable ``GPFLOW_PEP_DATA`` is set, its directory is searched first (see
`experiments.datasets.files`).
"""

from experiments.datasets.files import ChecksumError, PublishedFile
from experiments.datasets.info import DatasetInfo
from experiments.datasets.loading import Dataset, describe, load, names
from experiments.datasets.tables import Floats

__all__ = [
    "ChecksumError",
    "Dataset",
    "DatasetInfo",
    "Floats",
    "PublishedFile",
    "describe",
    "load",
    "names",
]
