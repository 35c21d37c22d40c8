"""The classification sets of the catalog."""

from functools import partial

from experiments.datasets.digits import DIGITS
from experiments.datasets.files import PublishedFile
from experiments.datasets.info import binary_entry
from experiments.datasets.quantile_propagation import BREAST_REPEATS, QUANTILE_PROPAGATION
from experiments.datasets.sources import ArchivedSplits, SeededSplits, TrainAndTest
from experiments.datasets.tables import TwoClasses, read_breast_cancer, read_columns, read_csv, stack

_ARCHIVE = PublishedFile(
    repository="cvillacampa/dgps_pep",
    commit="30ce21fd68f3af7b9cdb4d2a267e95c568c3ac93",
    path="datasets/binary.tgz",
    sha256="6e1ce9cf8487416f274f574cd6ed548214ca9112d8c426e3df3d7f007afd049d",
)
_AUSTRALIAN = PublishedFile(
    repository="andybaoxv/copula",
    commit="ebc09c65f3903ebd9480c62b9771598e187212fc",
    path="data/australian.dat",
    sha256="b918bf143bd4e0f8e7542ebeef9033bbc351950e2a888a65df0d772b0d178b6c",
)

_banana = partial(
    PublishedFile, repository="thangbui/streaming_sparse_gp", commit="d95081b8a67316981088172124bc44e3c2235e49"
)
_BANANA_TRAIN = (
    _banana(path="data/banana_train_x.txt", sha256="f1d50b70028cc99ce658f16419357dc55b5c7ce97c1854493176e1728f4e69b8"),
    _banana(path="data/banana_train_y.txt", sha256="6cbb537327965075dd104ac6181eabd6aec374407d8a9e64661721aba0f4371d"),
)
_BANANA_TEST = (
    _banana(path="data/banana_test_x.txt", sha256="74305b60ec7fce46789ffd175906dc5893f4720618973ebd83b3ef4b2e06d6e5"),
    _banana(path="data/banana_test_y.txt", sha256="48e9a7a309a75984ff5a409ae4cb7fbf5dc363a06efcbe2a3a145264ef4e5d9b"),
)

_PLUS_MINUS = (-1.0, 1.0)

_PUBLISHED_SPLITS = (
    binary_entry(
        "australian",
        SeededSplits(TwoClasses(partial(read_csv, _AUSTRALIAN, delimiter=None), _PLUS_MINUS), files=(_AUSTRALIAN,)),
        N=690,
        D=14,
        target="decision on an application for credit (column 14)",
        classes=("refused", "granted"),
        license="none stated",
        notes=(
            "Inputs 0, 3, 4, 5, 7, 8, 10 and 11 are numbered categories; missing values were filled in by the donors. "
            "The classes are published as -1 and 1; their names here are the usual reading. "
            "Not the Australian of the archive that holds breast, crabs, iono, pima and sonar: there the target is "
            "input 0, and the decision is an input. The splits are therefore not that archive's."
        ),
    ),
    binary_entry(
        "breast",
        ArchivedSplits(_ARCHIVE, "Breast", dropped=(0,), classes=_PLUS_MINUS),
        N=683,
        D=9,
        target="kind of a breast tumour (column 10)",
        classes=("benign", "malignant"),
        license="Apache-2.0",
        notes=BREAST_REPEATS.format("20 to 33 of the 68"),
    ),
    binary_entry(
        "crabs",
        ArchivedSplits(_ARCHIVE, "Crabs", dropped=(1,), classes=_PLUS_MINUS),
        N=200,
        D=6,
        target="species of a rock crab, by its color (column 7)",
        classes=("blue", "orange"),
        license="Apache-2.0",
        notes=(
            "Inputs: sex, 1 for female, and five lengths in mm. Column 1 is left out: it numbers the crabs of each "
            "species and sex, from 1 to 50, by their size. qp-crabs is the same table with the sex to predict."
        ),
    ),
    binary_entry(
        "iono",
        ArchivedSplits(_ARCHIVE, "Iono", classes=(1.0, -1.0)),
        N=351,
        D=34,
        target="structure seen in a radar return from the ionosphere (column 34)",
        classes=("bad", "good"),
        license="Apache-2.0",
        notes=(
            "Input 1 is constant. The archive codes good as -1; labels here agree with qp-ionosphere. One row repeats "
            "another, in some splits across training and test part."
        ),
    ),
    binary_entry(
        "pima",
        ArchivedSplits(_ARCHIVE, "Pima", classes=_PLUS_MINUS),
        N=768,
        D=8,
        target="diabetes within five years, by WHO criteria (column 8)",
        classes=("no", "yes"),
        license="Apache-2.0",
        notes=(
            "Zeros are missing values in inputs 1 to 5: glucose (5 rows), blood pressure (35), skin fold (227), "
            "insulin (374) and body mass index (11). They are left as they are."
        ),
    ),
    binary_entry(
        "sonar",
        ArchivedSplits(_ARCHIVE, "Sonar", classes=_PLUS_MINUS),
        N=208,
        D=60,
        target="what a sonar signal was bounced off (column 60)",
        classes=("rock", "mine"),
        license="Apache-2.0",
    ),
)


def _banana_points(inputs: PublishedFile, classes: PublishedFile) -> TwoClasses:
    return TwoClasses(partial(read_columns, inputs, classes), _PLUS_MINUS)


_two_bananas = partial(
    binary_entry,
    N=5300,
    D=2,
    target="which of two banana-shaped clouds a point was drawn from",
    classes=("-1", "+1"),
    license="Apache-2.0",
)
CLASSIFICATION = (
    *_PUBLISHED_SPLITS,
    *QUANTILE_PROPAGATION,
    *DIGITS,
    _two_bananas(
        "banana",
        TrainAndTest(
            _banana_points(*_BANANA_TRAIN), _banana_points(*_BANANA_TEST), files=(*_BANANA_TRAIN, *_BANANA_TEST)
        ),
        notes="Trains on 400 and tests on 4900 points, as published.",
    ),
    _two_bananas(
        "banana-5300",
        SeededSplits(
            partial(stack, _banana_points(*_BANANA_TRAIN), _banana_points(*_BANANA_TEST)),
            files=(*_BANANA_TRAIN, *_BANANA_TEST),
        ),
        notes="The points of banana, training and test part together.",
    ),
    binary_entry(
        "breast-cancer",
        SeededSplits(TwoClasses(read_breast_cancer, (1.0, 0.0))),
        N=569,
        D=30,
        target="kind of a breast tumour, by measures of its cell nuclei",
        classes=("benign", "malignant"),
        license="BSD-3-Clause",
        notes="Comes with scikit-learn, which codes malignant as 0. Not the table of breast and qp-cancer.",
    ),
)
