"""The regression sets of the catalog."""

from functools import partial

from experiments.datasets.files import PublishedFile
from experiments.datasets.generated import GP_DRAWS
from experiments.datasets.info import regression_entry
from experiments.datasets.sources import ArchivedSplits, MaskedFolds, SeededSplits
from experiments.datasets.tables import read_csv, read_diabetes

_ARCHIVE = PublishedFile(
    repository="cvillacampa/dgps_pep",
    commit="30ce21fd68f3af7b9cdb4d2a267e95c568c3ac93",
    path="datasets/regression.tgz",
    sha256="90c9f38e45ec1c51510bda1932f438caa12c11d9cd5c1be11df683a53b5a6ce4",
)
_SNELSON = PublishedFile(
    repository="thangbui/tighter_sparse_gp",
    commit="dc752f59d2cc13b15b3536f270a5e1f8491f66da",
    path="example/snelson.csv",
    sha256="5bab4bbce15e916b126cf0fc5011714c35ef731d05873c43104774d58931c253",
)
_CENTERED = "Published with every column mean-centered and rounded to about five digits."


def _folds(name: str, *, table: str, mask: str, dropped: tuple[int, ...] = ()) -> MaskedFolds:
    """Return the source of a set in the repository of UCI tables, from the sha256 of its two files."""
    pinned = partial(
        PublishedFile, repository="treforevans/uci_datasets", commit="f0737523712fe66a1640e4b980b927e8490b58eb"
    )
    return MaskedFolds(
        table=pinned(path=f"uci_datasets/{name}/data.csv.gz", sha256=table),
        mask=pinned(path=f"uci_datasets/{name}/test_mask.csv.gz", sha256=mask),
        dropped=dropped,
    )


REGRESSION = (
    regression_entry(
        "snelson",
        SeededSplits(partial(read_csv, _SNELSON), files=(_SNELSON,)),
        N=200,
        D=1,
        target="a toy function with noise, no unit (column 1)",
        license="none stated",
        notes="Papers plot all 200 points: that is the training and the test part of any split together.",
    ),
    regression_entry(
        "boston",
        ArchivedSplits(_ARCHIVE, "bostonHousing"),
        N=506,
        D=13,
        target="median value of homes, thousands of dollars (column 13)",
        license="Apache-2.0",
        notes="One input encodes the share of Black residents: kept for comparison with published figures only.",
    ),
    regression_entry(
        "concrete",
        ArchivedSplits(_ARCHIVE, "concrete"),
        N=1030,
        D=8,
        target="compressive strength, MPa (column 8)",
        license="Apache-2.0",
        notes="25 rows repeat others, some across training and test part.",
    ),
    regression_entry(
        "energy",
        ArchivedSplits(_ARCHIVE, "energy"),
        N=768,
        D=8,
        target="heating load, kWh/m^2 (column 8)",
        license="Apache-2.0",
        notes="Column 9, the cooling load, is left out.",
    ),
    regression_entry(
        "kin8nm",
        ArchivedSplits(_ARCHIVE, "kin8nm"),
        N=8192,
        D=8,
        target="distance of a simulated robot arm's end from a point (column 8)",
        license="Apache-2.0",
    ),
    regression_entry(
        "naval",
        ArchivedSplits(_ARCHIVE, "naval-propulsion-plant"),
        N=11934,
        D=16,
        target="decay coefficient of a gas turbine's compressor (column 16)",
        license="Apache-2.0",
        notes="Inputs 8 and 11 are constant. Column 17, the turbine's own decay coefficient, is left out.",
    ),
    regression_entry(
        "power",
        ArchivedSplits(_ARCHIVE, "power-plant"),
        N=9568,
        D=4,
        target="net electrical output, MW (column 4)",
        license="Apache-2.0",
        notes=(
            "41 rows repeat others, some across training and test part. Copies elsewhere hold the rows in another "
            "order, so that equal split numbers are different test sets."
        ),
    ),
    regression_entry(
        "wine-red",
        ArchivedSplits(_ARCHIVE, "wine-quality-red"),
        N=1599,
        D=11,
        target="quality, whole scores from 3 to 8 (column 11)",
        license="Apache-2.0",
        notes="240 rows repeat others, some across training and test part.",
    ),
    regression_entry(
        "yacht",
        ArchivedSplits(_ARCHIVE, "yacht"),
        N=308,
        D=6,
        target="residuary resistance per unit weight of displacement (column 6)",
        license="Apache-2.0",
    ),
    regression_entry(
        "kin40k",
        _folds(
            "kin40k",
            table="9bee7f2a9f39aa61a015f239378368601fb3978c5bb9a96433e88a55d40883ba",
            mask="d15fd645d0e81a9a17ce2d0b8dde470bb2efba4d5f417459965abe4b237e2aea",
        ),
        N=40000,
        D=8,
        target="distance of a simulated robot arm's end from a point, centered (column 8)",
        license="MIT",
        notes=_CENTERED,
    ),
    regression_entry(
        "elevators",
        _folds(
            "elevators",
            table="e39bc18a80ec3611e4fd76d0f86ee377e96ba21b568b9997576d538dafe56b7b",
            mask="9fe662eacca95ae2c9301cbc4c4134e55d58e903cb0cfb683771ffdd2d248eb5",
        ),
        N=16599,
        D=18,
        target="logarithm of the control signal of an aircraft's elevators, centered (column 18)",
        license="MIT",
        notes=f"{_CENTERED} The target takes 61 values: whole thousandths before the logarithm.",
    ),
    regression_entry(
        "airfoil",
        _folds(
            "airfoil",
            table="1cce82516ac9e564fba52f55d817eb147fc39085f5d7b958ad15b92f4207f23e",
            mask="dbba6121fb8f900350fe10d724b54faa2b67fcc7bfc3409cf7add717281609e4",
        ),
        N=1503,
        D=5,
        target="scaled sound pressure level, dB, centered (column 5)",
        license="MIT",
        notes=_CENTERED,
    ),
    regression_entry(
        "bike",
        _folds(
            "bike",
            table="411f76ae426c0e348a2629dcf6b3b29102c7db465eae780a3454c39db1dfac4f",
            mask="cf13dc25e80c03019cf2b01666f9cc29b03ea222f5c519536023ea56669bf337",
            dropped=(15, 16),
        ),
        N=17379,
        D=15,
        target="logarithm of the number of bicycles rented in an hour, centered (column 17)",
        license="MIT",
        notes=f"{_CENTERED} Columns 15 and 16 are left out: they add up to the number of bicycles.",
    ),
    regression_entry(
        "protein",
        _folds(
            "protein",
            table="f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b",
            mask="22afe05e8d17c428558d78a77efeecc08d58004b6c95741d1c533c3207c69fe9",
        ),
        N=45730,
        D=9,
        target="logarithm of 1 plus the size of the residue of a protein's structure, centered (column 9)",
        license="MIT",
        notes=f"{_CENTERED} 1712 rows repeat others, some across training and test part.",
    ),
    regression_entry(
        "diabetes",
        SeededSplits(read_diabetes),
        N=442,
        D=10,
        target="disease progression one year after the measurements, a score",
        license="BSD-3-Clause",
        notes="Comes with scikit-learn; read in its original units.",
    ),
    GP_DRAWS,
)
