"""Data sets of more than two classes: from Villacampa-Calvo and Hernández-Lobato (2020) or like them, and two from
scikit-learn.
"""

from functools import partial
from typing import Any

from experiments.datasets.digits import MNIST_TEST, MNIST_TRAIN
from experiments.datasets.files import PublishedFile
from experiments.datasets.flights import FLIGHTS
from experiments.datasets.generated import THREE_CLASSES
from experiments.datasets.info import Entry, multiclass_entry
from experiments.datasets.sources import ArchivedArrays, SeededSplits, TrainAndTest
from experiments.datasets.tables import read_digits, read_images, read_iris

_ARCHIVE = PublishedFile(
    repository="cvillacampa/dgps_pep",
    commit="30ce21fd68f3af7b9cdb4d2a267e95c568c3ac93",
    path="datasets/multiclass.tgz",
    sha256="3ddf479e54cb87df9dd600819a382a53686dc6810235a2ee7b6928a9d7e124cf",
)


def _archived(name: str, **description: Any) -> Entry:
    """Return the entry of a set of the archive, with its 20 splits; its codes of classes count from 1."""
    return multiclass_entry(name, ArchivedArrays(_ARCHIVE, name), license="Apache-2.0", **description)


_bundled = partial(multiclass_entry, license="BSD-3-Clause")

MULTICLASS = (
    _archived(
        "glass",
        N=214,
        D=9,
        target="kind of glass, by its refractive index and eight oxides",
        classes=(
            "float-processed windows of buildings",
            "other windows of buildings",
            "float-processed windows of vehicles",
            "containers",
            "tableware",
            "headlamps",
        ),
        notes=(
            "The classes are types 1, 2, 3, 5, 6 and 7; type 4 does not occur. Some test parts lack classes. One "
            "row repeats another, in some splits across training and test part."
        ),
    ),
    _archived(
        "new-thyroid",
        N=215,
        D=5,
        target="function of a thyroid gland, by five laboratory tests",
        classes=("normal", "over-active", "under-active"),
        notes="Some test parts lack a class.",
    ),
    _archived(
        "satellite",
        N=6435,
        D=36,
        target="soil of the middle of 3 x 3 pixels, by their values in four spectral bands",
        classes=(
            "red soil",
            "cotton crop",
            "gray soil",
            "damp gray soil",
            "soil with vegetation stubble",
            "very damp gray soil",
        ),
        notes="Trains on 20 % of the rows, as published. The last class is type 7; type 6 does not occur.",
    ),
    _archived("svmguide2", N=391, D=20, target="class of a protein, without a name", classes=("1", "2", "3")),
    _archived(
        "vehicle", N=846, D=18, target="vehicle whose silhouette was measured", classes=("bus", "opel", "saab", "van")
    ),
    _archived(
        "vowel",
        N=540,
        D=10,
        target="vowel spoken, by log area ratios of the vocal tract",
        classes=("hid", "hId", "hEd", "hAd", "hYd", "had"),
        notes=(
            "The first six of eleven vowels; the full set has 990 rows. Input 0 is the number of the speaker, 0 to 14, "
            "whose rows are split across training and test part; one of the ten published ratios is not an input."
        ),
    ),
    _archived(
        "waveform",
        N=1000,
        D=21,
        target="which two of three waves a curve with noise was made of",
        classes=("1", "2", "3"),
        notes="Generated. Trains on 30 % of the rows, as published.",
    ),
    _archived(
        "wine",
        N=178,
        D=13,
        target="cultivar that a wine was made of, by thirteen chemical measures",
        classes=("1", "2", "3"),
        notes="The table of qp-wine-12, qp-wine-13 and qp-wine-23.",
    ),
    _bundled(
        "iris",
        SeededSplits(read_iris),
        N=150,
        D=4,
        target="species of an iris, by lengths of its flower",
        classes=("setosa", "versicolor", "virginica"),
        notes="Comes with scikit-learn. One row repeats another, in some splits across training and test part.",
    ),
    _bundled(
        "digits",
        SeededSplits(read_digits),
        N=1797,
        D=64,
        target="which digit is written, by 8 x 8 gray values",
        classes=tuple("0123456789"),
        notes="Comes with scikit-learn. Gray values from 0 to 16; three pixels are blank in all images.",
    ),
    multiclass_entry(
        "mnist",
        TrainAndTest(
            partial(read_images, *MNIST_TRAIN), partial(read_images, *MNIST_TEST), files=(*MNIST_TRAIN, *MNIST_TEST)
        ),
        N=70000,
        D=784,
        target="which digit is written",
        classes=tuple("0123456789"),
        license="none stated",
        notes="The images of mnist-even-odd; standardize=False is usual here too.",
    ),
    FLIGHTS,
    THREE_CLASSES,
)
