"""The data sets there are, by name."""

from gpflow_pep.datasets.classification import CLASSIFICATION
from gpflow_pep.datasets.info import DatasetInfo, Entry
from gpflow_pep.datasets.multiclass import MULTICLASS
from gpflow_pep.datasets.regression import REGRESSION
from gpflow_pep.datasets.streaming import STREAMING

__all__ = ["ENTRIES", "DatasetInfo", "Entry"]

ENTRIES: dict[str, Entry] = {
    entry.info.name: entry for entry in (*REGRESSION, *CLASSIFICATION, *MULTICLASS, *STREAMING)
}
