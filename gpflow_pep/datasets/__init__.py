"""Real data sets with fixed train/test splits: ``names()``, ``describe(name)`` and ``load(name, split)``.

A file is downloaded when its set is first loaded, checked against its sha256 and kept in the user's cache; the
directory ``GPFLOW_PEP_DATA``, where set, is looked into first (see `gpflow_pep.datasets.files`).
"""

from gpflow_pep.datasets.catalog import DatasetInfo
from gpflow_pep.datasets.files import ChecksumError, PublishedFile
from gpflow_pep.datasets.loading import Dataset, describe, load, names

__all__ = ["ChecksumError", "Dataset", "DatasetInfo", "PublishedFile", "describe", "load", "names"]
