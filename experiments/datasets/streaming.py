"""The data sets with ordered rows, for streams."""

from collections.abc import Callable
from functools import partial

from experiments.datasets.files import PublishedFile
from experiments.datasets.info import streaming_entry
from experiments.datasets.series import (
    alternate,
    every_second_place,
    periodic,
    pseudo_periodic,
    read_audio,
    read_grid,
    read_jacksboro,
    read_toy,
)
from experiments.datasets.sources import Draws, TrainAndTest
from experiments.datasets.tables import Floats

_toy = partial(
    PublishedFile, repository="thangbui/streaming_sparse_gp", commit="d95081b8a67316981088172124bc44e3c2235e49"
)
_TOY = (
    _toy(path="data/reg_toy_x.txt", sha256="858d8bb74bd9833b3b10bb4f099cd91d9abedcc9847f36b39f8c635c914c58ef"),
    _toy(path="data/reg_toy_y.txt", sha256="407179953c1a035c0a37d8476c3263872e4ec0dd1ee54a7f4a5340498f89d0e9"),
)
_AUDIO = PublishedFile(
    repository="thangbui/tsgp",
    commit="9a4be48705bdd445754f42d408c2e174363dfe9c",
    path="exps/audio_subband.mat",
    sha256="f9b2e920107753c52cbf890a33260cff2191b712a4e66a4192ef8fa3415b9265",
)
_TERRAIN = PublishedFile(
    repository="snodnipper/terrain50-java",
    commit="c9787c6ee0244ea47ff8c51a1d413ebd65bea77b",
    path="data/nn/nn27.zip",
    sha256="d403491efc4751c3ca1f570c071eb8298e89b4f099001e5ef1e42bba027a7131",
)


def _series(read_table: Callable[[], Floats], files: tuple[PublishedFile, ...] = (), period: int = 2) -> TrainAndTest:
    train, test = (partial(alternate, read_table, part, period) for part in (0, 1))
    return TrainAndTest(train, test, files)


def _map(read_table: Callable[[], Floats], files: tuple[PublishedFile, ...] = ()) -> TrainAndTest:
    train, test = (partial(every_second_place, read_table, part) for part in (0, 1))
    return TrainAndTest(train, test, files)


_MAP = (
    "Trains on every second place in either direction, tests on the places in between; both in columns from the west, "
    "each from the south."
)
STREAMING = (
    streaming_entry(
        "toy-stream",
        _series(partial(read_toy, *_TOY), _TOY, period=5),
        N=150,
        D=1,
        target="a toy function with noise, no unit",
        license="Apache-2.0",
        notes="In three parts with gaps between them. Tests on every fifth point; papers plot all 150.",
    ),
    streaming_entry(
        "audio-subband",
        _series(partial(read_audio, _AUDIO), (_AUDIO,)),
        N=18000,
        D=1,
        target="a band of sound, moved from its center frequency of 152 Hz to 0, no unit",
        license="MIT",
        notes=(
            "Samples 8,000 to 25,999 of 352,672, at 16 kHz; the input is the time in seconds. Tests on every second "
            "sample. Noise with standard deviation 0.02 is added, as in Bui and Turner (2014)."
        ),
    ),
    streaming_entry(
        "terrain-nn27",
        _map(partial(read_grid, _TERRAIN, "NN27.asc"), (_TERRAIN,)),
        N=40000,
        D=2,
        target="height of a cell of 50 m x 50 m in the Scottish Highlands, m",
        license="Open Government Licence",
        notes=f"OS Terrain 50, tile NN27: contains OS data © Crown copyright and database right. {_MAP}",
    ),
    streaming_entry(
        "jacksboro",
        _map(read_jacksboro),
        N=34744,
        D=2,
        target="elevation around Jacksboro in Tennessee, m",
        license="PSF-based (Matplotlib)",
        notes=(
            "Comes with Matplotlib; every second row and column of its 344 x 403, inputs in steps of the full grid (3 "
            f"seconds of arc). {_MAP}"
        ),
    ),
    streaming_entry(
        "pseudo-periodic",
        Draws(pseudo_periodic, lambda place: place % 2 == 1, num_splits=4),
        N=24000,
        D=1,
        target="a sum of five waves with a little noise, no unit",
        license="Apache-2.0",
        notes=(
            "Generated like a set of Keogh and Pazzani (1999), with noise of standard deviation 0.005; split k is "
            "draw k. Tests on every second step."
        ),
    ),
    streaming_entry(
        "periodic",
        _series(periodic),
        N=2000,
        D=1,
        target="a sum of two waves with noise, no unit",
        license="Apache-2.0",
        notes="Generated; the noise has standard deviation 0.2. Tests on every second step.",
    ),
)
