"""All data sets, by name."""

from experiments.datasets.classification import CLASSIFICATION
from experiments.datasets.info import DatasetInfo, Entry
from experiments.datasets.multiclass import MULTICLASS
from experiments.datasets.regression import REGRESSION
from experiments.datasets.streaming import STREAMING

__all__ = ["ENTRIES", "DatasetInfo", "Entry"]

ENTRIES: dict[str, Entry] = {
    entry.info.name: entry for entry in (*REGRESSION, *CLASSIFICATION, *MULTICLASS, *STREAMING)
}
