"""Demonstrations of each task: data set, sizes and methods. This module imports quickly."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Size:
    """Size of a demonstration."""

    M: int = 50
    """Inducing points."""

    block_size: int = 50
    """Rows per block of BT-SGPR."""

    max_train: int | None = 2000
    """Training rows at most; None: all."""

    maxiter: int = 200
    """Iterations of L-BFGS at most."""


@dataclass(frozen=True)
class Demonstration:
    """Demonstration of a task."""

    title: str
    """Title: task and models."""

    experiment: str
    """Name of the module in `experiments` that runs each method."""

    dataset: str
    """Default data set, which needs no network."""

    methods: tuple[dict[str, Any], ...]
    """Configuration of each method."""

    example: dict[str, Any]
    """Method that is suggested as a single run."""

    how_to_read: str
    """Explanation of the table."""

    size: Size
    """Default size."""

    sizes: dict[str, Size] = field(default_factory=dict)
    """Sizes for particular data sets."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings that all runs share."""

    def configurations(self, dataset: str, *, split: int, short: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the common settings of the runs on a data set, and the settings of each run."""
        size = self.sizes.get(dataset, self.size)
        common = {
            "dataset": dataset,
            "split": split,
            "max_train": size.max_train,
            "M": size.M,
            "maxiter": _SHORT_MAXITER if short else size.maxiter,
            "seed": _SEED,
            **self.settings,
        }
        blocks = {"block_size": size.block_size}
        return common, [method | (blocks if method["model"] == "BTSGPR" else {}) for method in self.methods]


_SEED = 0
_SHORT_MAXITER = 5

DEMONSTRATIONS = {
    "regression": Demonstration(
        title="sparse GP regression with GPflow's SGPR and the models of gpflow_pep",
        experiment="regression",
        dataset="diabetes",
        methods=(
            {"model": "SGPR"},
            {"model": "TSGPR"},
            {"model": "BTSGPR"},
            {"model": "PEPR", "alpha": 0.5},
            {"model": "TPEP", "alpha": 0.5},
            {"model": "PEPR", "alpha": 1.0},
        ),
        example={"model": "PEPR", "alpha": 0.5},
        how_to_read=(
            "One split: differences of the scores this small mean little. α = 1 (FITC) is known to overestimate the\n"
            "evidence and to underestimate the noise; bounds can be compared with each other."
        ),
        size=Size(),
        sizes={
            "diabetes": Size(M=5, block_size=40, max_train=None),  # few enough for the methods to differ
            "snelson": Size(M=5, block_size=18, max_train=None),  # as Bui and Titsias (2025): 5 points, 10 blocks
        },
    ),
    "classification": Demonstration(
        title="sparse GP classification with GPflow's SVGP, power EP and quantile propagation",
        experiment="classification",
        dataset="breast-cancer",
        methods=(
            {"model": "SVGP"},
            {"model": "PEP", "alpha": 0.0},
            {"model": "PEP", "alpha": 0.5},
            {"model": "PEP", "alpha": 1.0},
            {"model": "QP", "alpha": 1.0},
        ),
        example={"model": "PEP", "alpha": 0.5},
        how_to_read=(
            "One split: differences of the scores this small mean little. PEP with α = 0 has the bound that SVGP\n"
            "approaches; with α > 0 the objective approximates the evidence and is not a bound. LOO NLPD needs no\n"
            "test points: it comes with the sites, which SVGP does not have."
        ),
        size=Size(M=30, maxiter=100),
        sizes={
            "breast-cancer": Size(M=10, max_train=None, maxiter=40),
            "banana": Size(M=20, max_train=None, maxiter=100),
        },
    ),
    "multiclass": Demonstration(
        title="sparse GP classification of several classes with GPflow's SVGP and power EP",
        experiment="classification",
        dataset="digits",
        methods=(
            {"model": "SVGP"},
            {"model": "PEP", "alpha": 0.5},
            {"model": "PEP", "alpha": 1.0},
        ),
        example={"model": "PEP", "alpha": 0.5},
        how_to_read=(
            "One split: differences of the scores this small mean little. Each class has a latent function; they\n"
            "share kernel and inducing points. PEP's objective approximates the evidence and is not a bound. LOO NLPD\n"
            "needs no test points: it comes with the sites, which SVGP does not have. Few iterations leave SVGP near\n"
            "its initial values, since it must learn q(u) too."
        ),
        size=Size(M=20, max_train=400, maxiter=60),
        settings={"separate": False},
    ),
    "streaming": Demonstration(
        title="sparse GP regression of data that arrive in batches, with StreamingSGPR and models of GPflow",
        experiment="streaming",
        dataset="jacksboro",
        methods=(
            {"model": "STREAM", "alpha": 0.0},
            {"model": "STREAM", "alpha": 0.5},
            {"model": "SGPR"},
            {"model": "SVGP"},
        ),
        example={"model": "STREAM", "alpha": 0.5},
        how_to_read=(
            "Terrain, from west to east. A window forgets earlier rows; a stream keeps their posterior in the memory\n"
            "of its inducing points. All methods have the same number of inducing points and of iterations after a\n"
            "batch; SVGP has five steps of Adam for each, and initial inducing points all over the map."
        ),
        size=Size(M=100, max_train=None, maxiter=20),
        sizes={"jacksboro": Size(M=100, max_train=4000, maxiter=15)},
        settings={"batch_size": 500, "window": 1500, "first_maxiter": 30, "progress": True},
    ),
}
