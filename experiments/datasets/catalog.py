"""All data sets by name: their sources, and their descriptions from ``catalog.toml``."""

from functools import partial
from pathlib import Path
from typing import Any, get_args

from experiments.datasets import series
from experiments.datasets.files import PublishedFile, published
from experiments.datasets.flights import read_flights
from experiments.datasets.generated import (
    gaussian_process_draw,
    gaussian_process_series,
    three_classes,
)
from experiments.datasets.info import DatasetInfo, Task
from experiments.datasets.sources import (
    ArchivedArrays,
    ArchivedSplits,
    Draws,
    MaskedFolds,
    MaskedRows,
    SeededFolds,
    SeededSplits,
    Source,
    TrainAndTest,
)
from experiments.datasets.tables import (
    Reader,
    read_bundled,
    read_columns,
    read_csv,
    read_images,
    read_parity,
    read_words,
    stack,
    two_classes,
)
from experiments.protocols.records import read_toml

_REGRESSION, _BINARY, _MULTICLASS = (
    published(f"cvillacampa/dgps_pep/datasets/{name}.tgz")
    for name in ("regression", "binary", "multiclass")
)
_AUSTRALIAN = published("andybaoxv/copula/data/australian.dat")
_AUDIO = published("thangbui/tsgp/exps/audio_subband.mat")
_TERRAIN = published("snodnipper/terrain50-java/data/nn/nn27.zip")
_FLIGHTS = published("vincentarelbundock/Rdatasets/csv/openintro/nycflights.csv")
_PLANES = published("vincentarelbundock/Rdatasets/csv/nycflights13/planes.csv")
_MNIST = "unixpickle/mnistlite/data/"
_MNIST_TRAIN = (
    published(
        f"{_MNIST}train-images-idx3-ubyte.gz",
        packed=True,
        elsewhere="mnist-rebuilt/train-images-idx3-ubyte.gz",
    ),
    published(f"{_MNIST}train-labels-idx1-ubyte.gz"),
)
_MNIST_TEST = (
    published(f"{_MNIST}t10k-images-idx3-ubyte.gz"),
    published(f"{_MNIST}t10k-labels-idx1-ubyte.gz"),
)

_PLUS_MINUS = (-1.0, 1.0)


def _uci(name: str, dropped: tuple[int, ...] = ()) -> MaskedFolds:
    place = f"treforevans/uci_datasets/uci_datasets/{name}/"
    return MaskedFolds(
        published(f"{place}data.csv.gz"), published(f"{place}test_mask.csv.gz"), dropped
    )


def _qp(*names: str) -> tuple[PublishedFile, ...]:
    place = "RuiZhang2016/Quantile-Propagation-for-Wasserstein-Approximate-Gaussian-Processes/data/"
    return tuple(published(f"{place}{name}") for name in names)


def _folds(table: Reader, *classes: Any, **options: Any) -> SeededFolds:
    return SeededFolds(partial(two_classes, table, *classes, **options))


def _streaming(name: str) -> tuple[PublishedFile, ...]:
    place = f"thangbui/streaming_sparse_gp/data/{name}"
    return published(f"{place}_x.txt"), published(f"{place}_y.txt")


_BANANA_TRAIN, _BANANA_TEST = (
    partial(two_classes, partial(read_columns, *_streaming(f"banana_{part}")), _PLUS_MINUS)
    for part in ("train", "test")
)
_ZIPCODE = "dgkim5360/the-elements-of-statistical-learning-notebooks/data/zipcode/zip."
_USPS_TRAIN, _USPS_TEST = (
    partial(
        two_classes,
        partial(read_csv, published(f"{_ZIPCODE}{part}.gz"), delimiter=None),
        (3.0, 5.0),
        target=0,
    )
    for part in ("train", "test")
)
_CRABS = {"B": 1.0, "O": -1.0, "F": 0.0, "M": 1.0}
_WINE = partial(read_csv, *_qp("wine.data"))
_IRIS = partial(read_bundled, "iris")
_PAIRS = ((1, 2), (1, 3), (2, 3))

_SOURCES: dict[str, Source] = {
    "snelson": SeededSplits(
        partial(read_csv, published("thangbui/tighter_sparse_gp/example/snelson.csv"))
    ),
    **{
        name: ArchivedSplits(_REGRESSION, folder)
        for name, folder in {
            "boston": "bostonHousing",
            "concrete": "concrete",
            "energy": "energy",
            "kin8nm": "kin8nm",
            "naval": "naval-propulsion-plant",
            "power": "power-plant",
            "wine-red": "wine-quality-red",
            "yacht": "yacht",
        }.items()
    },
    **{name: _uci(name) for name in ("kin40k", "elevators", "airfoil", "protein")},
    "bike": _uci("bike", dropped=(15, 16)),
    "diabetes": SeededSplits(partial(read_bundled, "diabetes", scaled=False)),
    "gp-draws": Draws(gaussian_process_draw, series.second_half, num_splits=30),
    "australian": SeededSplits(
        partial(two_classes, partial(read_csv, _AUSTRALIAN, delimiter=None), _PLUS_MINUS)
    ),
    "breast": ArchivedSplits(_BINARY, "Breast", dropped=(0,), classes=_PLUS_MINUS),
    "crabs": ArchivedSplits(_BINARY, "Crabs", dropped=(1,), classes=_PLUS_MINUS),
    "iono": ArchivedSplits(_BINARY, "Iono", classes=(1.0, -1.0)),
    "pima": ArchivedSplits(_BINARY, "Pima", classes=_PLUS_MINUS),
    "sonar": ArchivedSplits(_BINARY, "Sonar", classes=_PLUS_MINUS),
    "qp-ionosphere": _folds(
        partial(read_words, *_qp("ionosphere.data"), codes={"b": 0.0, "g": 1.0}, delimiter=",")
    ),
    "qp-cancer": _folds(
        partial(read_words, *_qp("breast-cancer-wisconsin.data"), codes={}, delimiter=","),
        (2.0, 4.0),
        dropped=(0,),
    ),
    "qp-pima": _folds(
        partial(
            read_words,
            *_qp("pima.tr", "pima.tr2", "pima.te"),
            codes={"No": 0.0, "Yes": 1.0},
            num_header_lines=1,
        )
    ),
    "qp-crabs": _folds(
        partial(read_words, *_qp("crabs.dat"), codes=_CRABS, num_header_lines=1), target=1
    ),
    "qp-sonar": _folds(
        partial(read_words, *_qp("sonar.all-data"), codes={"R": 0.0, "M": 1.0}, delimiter=",")
    ),
    **{f"qp-iris-{a}{b}": _folds(_IRIS, (a - 1.0, b - 1.0)) for a, b in _PAIRS},
    **{f"qp-wine-{a}{b}": _folds(_WINE, (float(a), float(b)), target=0) for a, b in _PAIRS},
    "usps-3-5": TrainAndTest(_USPS_TRAIN, _USPS_TEST),
    "qp-usps-3-5": SeededFolds(partial(stack, _USPS_TRAIN, _USPS_TEST)),
    "mnist-even-odd": TrainAndTest(
        partial(read_parity, *_MNIST_TRAIN), partial(read_parity, *_MNIST_TEST)
    ),
    "banana": TrainAndTest(_BANANA_TRAIN, _BANANA_TEST),
    "banana-5300": SeededSplits(partial(stack, _BANANA_TRAIN, _BANANA_TEST)),
    "breast-cancer": SeededSplits(
        partial(two_classes, partial(read_bundled, "breast_cancer"), (1.0, 0.0))
    ),
    **{
        name: ArchivedArrays(_MULTICLASS, name)
        for name in (
            "glass",
            "new-thyroid",
            "satellite",
            "svmguide2",
            "vehicle",
            "vowel",
            "waveform",
            "wine",
        )
    },
    "iris": SeededSplits(_IRIS),
    "digits": SeededSplits(partial(read_bundled, "digits")),
    "mnist": TrainAndTest(partial(read_images, *_MNIST_TRAIN), partial(read_images, *_MNIST_TEST)),
    "flights": SeededSplits(partial(read_flights, _FLIGHTS, _PLANES)),
    "three-classes": TrainAndTest(partial(three_classes, 0), partial(three_classes, 1)),
    "toy-stream": MaskedRows(
        partial(series.read_toy, *_streaming("reg_toy")), partial(series.alternate, period=5)
    ),
    "audio-subband": MaskedRows(partial(series.read_audio, _AUDIO), series.alternate),
    "terrain-nn27": MaskedRows(
        partial(series.read_grid, _TERRAIN, "NN27.asc"), series.between_places
    ),
    "jacksboro": MaskedRows(series.read_jacksboro, series.between_places),
    "pseudo-periodic": Draws(series.pseudo_periodic, series.alternate, num_splits=4),
    "gp-series": Draws(gaussian_process_series, series.alternate, num_splits=10),
}


def _entry(task: Task, name: str, description: dict[str, Any]) -> DatasetInfo:
    source = _SOURCES[name]
    description = {"classes": (), "notes": ""} | description
    description["classes"] = tuple(description["classes"])
    of_source = (source.num_splits, source.splits_published, source.files)
    return DatasetInfo(name, task, *of_source, **description, source=source)


_DESCRIBED = read_toml(Path(__file__).with_suffix(".toml"))

ENTRIES: dict[str, DatasetInfo] = {
    name: _entry(task, name, description)
    for task in get_args(Task)
    for name, description in _DESCRIBED[task].items()
}
