"""The data sets of images of digits."""

from functools import partial

from experiments.datasets.files import PublishedFile
from experiments.datasets.info import binary_entry
from experiments.datasets.sources import SeededFolds, TrainAndTest
from experiments.datasets.tables import TwoClasses, read_csv, read_parity, stack

_usps = partial(
    PublishedFile,
    repository="dgkim5360/the-elements-of-statistical-learning-notebooks",
    commit="2c13a4818379451bcce802bcd7917f4878e12977",
)
_USPS_TRAIN = _usps(
    path="data/zipcode/zip.train.gz", sha256="66ebf231ab51f2cf6ac1a892d0f98ccffee1079d7a5db638c1f11f366046ca16"
)
_USPS_TEST = _usps(
    path="data/zipcode/zip.test.gz", sha256="8dacc3c6e136af6c3488de9e5113a7daf140c8c2f1f0b61c54ee02f03f1a962f"
)

_mnist = partial(PublishedFile, repository="unixpickle/mnistlite", commit="7e77ce183b42950baacbe6de3986dbdc6ae771e8")
MNIST_TRAIN = (
    _mnist(
        path="data/train-images-idx3-ubyte.gz",
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        packed=True,
        elsewhere="mnist-rebuilt/train-images-idx3-ubyte.gz",
    ),
    _mnist(
        path="data/train-labels-idx1-ubyte.gz",
        sha256="e867c6895efbe4af17eefa0d68f5a582082c6bab63cf2ed41e4f3b232b29abf4",
    ),
)
MNIST_TEST = (
    _mnist(
        path="data/t10k-images-idx3-ubyte.gz", sha256="ba05d2d6e06f59dd97d2d5378250478bb5c9b64296a5c2681700569121e3a2d7"
    ),
    _mnist(
        path="data/t10k-labels-idx1-ubyte.gz", sha256="94088eab8a64f51a9b34cc9716f54b6548ef8b2fd16ada6d1575091b933dbf4b"
    ),
)


def _threes_and_fives(file: PublishedFile) -> TwoClasses:
    return TwoClasses(partial(read_csv, file, delimiter=None), (3.0, 5.0), target=0)


_usps_3_5 = partial(
    binary_entry,
    N=1540,
    D=256,
    target="which of the digits 3 and 5 is written (column 0)",
    classes=("3", "5"),
    license="none stated",
)
DIGITS = (
    _usps_3_5(
        "usps-3-5",
        TrainAndTest(_threes_and_fives(_USPS_TRAIN), _threes_and_fives(_USPS_TEST), files=(_USPS_TRAIN, _USPS_TEST)),
        notes=(
            "Images of 16 x 16 gray values from -1 to 1. Trains on 1214 and tests on 326 images, as published; the "
            "test images are harder. The much-used split of the same images in 767 and 773 is different."
        ),
    ),
    _usps_3_5(
        "qp-usps-3-5",
        SeededFolds(
            partial(stack, _threes_and_fives(_USPS_TRAIN), _threes_and_fives(_USPS_TEST)),
            files=(_USPS_TRAIN, _USPS_TEST),
        ),
        notes="The images of usps-3-5, training and test part together, 16 x 16 gray values from -1 to 1.",
    ),
    binary_entry(
        "mnist-even-odd",
        TrainAndTest(
            partial(read_parity, *MNIST_TRAIN), partial(read_parity, *MNIST_TEST), files=(*MNIST_TRAIN, *MNIST_TEST)
        ),
        N=70000,
        D=784,
        target="whether a written digit is even or odd",
        classes=("even", "odd"),
        license="none stated",
        notes=(
            "Images of 28 x 28 gray values, divided by 255: from 0 to 1. Trains on 60,000 and tests on 10,000, as "
            "published. Many pixels are blank in nearly all images: standardized they reach hundreds, so that "
            "standardize=False is usual. The training images are checked after unpacking."
        ),
    ),
)
