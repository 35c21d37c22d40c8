"""Demonstrations of each task: data set, sizes and methods. This module imports quickly."""

from dataclasses import dataclass, field
from typing import Any


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

    settings: dict[str, Any]
    """Settings that all runs share; ``block_size`` is for BTSGPR alone."""

    of_sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other settings for particular data sets."""

    def configurations(
        self, dataset: str, *, split: int, short: bool
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the common settings of the runs on a data set, and the settings of each run."""
        common = {
            "dataset": dataset,
            "split": split,
            "seed": 0,
            **self.settings,
            **self.of_sets.get(dataset, {}),
        }
        if short:
            common["maxiter"] = _SHORT_MAXITER
        block_size = common.pop("block_size", None)
        blocks = {"block_size": block_size}
        return common, [
            method | (blocks if method["model"] == "BTSGPR" else {}) for method in self.methods
        ]


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
            "One split: differences of the scores this small mean little. α = 1 (FITC) is known to "
            "overestimate the\nevidence and to underestimate the noise; bounds can be compared "
            "with each other."
        ),
        settings={"M": 50, "block_size": 50, "max_train": 2000, "maxiter": 200},
        of_sets={
            "diabetes": {"M": 5, "block_size": 40},  # few enough for the methods to differ
            "snelson": {"M": 5, "block_size": 18},  # as Bui and Titsias (2025): 5 points, 10 blocks
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
            "One split: differences of the scores this small mean little. PEP with α = 0 has the "
            "bound that SVGP\napproaches; with α > 0 the objective approximates the evidence and "
            "is not a bound. LOO NLPD needs no\ntest points: it comes with the sites, which SVGP "
            "does not have."
        ),
        settings={"M": 30, "max_train": 2000, "maxiter": 100},
        of_sets={"breast-cancer": {"M": 10, "maxiter": 40}, "banana": {"M": 20}},
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
            "One split: differences of the scores this small mean little. Each class has a latent "
            "function; they\nshare kernel and inducing points. PEP's objective approximates the "
            "evidence and is not a bound. LOO NLPD\nneeds no test points: it comes with the sites, "
            "which SVGP does not have. Few iterations leave SVGP near\nits initial values, since "
            "it must learn q(u) too."
        ),
        settings={"M": 20, "max_train": 400, "maxiter": 60, "separate": False},
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
            "Terrain, from west to east. A window forgets earlier rows; a stream keeps their "
            "posterior in the memory\nof its inducing points. All methods have the same number of "
            "inducing points and of iterations after a\nbatch; SVGP has five steps of Adam for "
            "each, and initial inducing points all over the map."
        ),
        settings={
            **{"M": 100, "maxiter": 20, "first_maxiter": 30, "max_train": None, "progress": True},
            **{"batch_size": 500, "window": 1500},
        },
        of_sets={"jacksboro": {"max_train": 4000, "maxiter": 15}},
    ),
}
