"""
The models under test: one entry per class, with the settings of the tests. Add an entry for each
new class.

Tests of `contracts` run for each setting in `regression` or `classes`, tests of `training` for the
last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gpflow
import numpy as np
from model_values import positive_parameter
from quick import partly_slow

import gpflow_pep

COLLAPSED = "collapsed"
SITES = "sites"
OWN_Q = "own q"


@dataclass(frozen=True)
class Setting:
    """Arguments with which a test constructs a model."""

    labels: bool
    """Whether its observations are labels; otherwise numbers with Gaussian noise."""

    given: Mapping[str, Any]
    """Arguments of its own; functions are called for each model."""

    @property
    def options(self):
        return {name: value() if callable(value) else value for name, value in self.given.items()}


def of_noise(**options):
    return Setting(False, options)


def of_labels(**options):
    return Setting(True, options)


def learned_scale():
    return positive_parameter(0.8)


@dataclass(frozen=True)
class Entry:
    """A class of models."""

    constructor: Any

    family: str
    """
    The first arguments of its constructor: data, kernel, Z ("collapsed"); data, kernel, likelihood,
    Z ("sites"); kernel, likelihood, Z ("own q", with data from outside).
    """

    regression: Mapping[str, Setting] = field(default_factory=dict)
    """Settings of the contract for one or two outputs with Gaussian noise, by name."""

    classes: Mapping[str, Setting] = field(default_factory=dict)
    """Settings of the contract for three classes, or a column for each with Gaussian noise."""

    training: Setting | None = None
    """That in which it is trained, under the name of the class."""

    @property
    def is_stream(self):
        return hasattr(self.constructor, "update")


ENTRIES = (
    Entry(
        gpflow_pep.PEPR,
        COLLAPSED,
        regression={
            "PEPR alpha 0": of_noise(alpha=0.0),
            "PEPR alpha 0.5": of_noise(alpha=0.5, chunk_size=5),
            "PEPR alpha per block": of_noise(
                alpha=[0.0, 0.3, 1.0], blocks=np.repeat([2, 0, 1], [3, 4, 5])
            ),
            "T-PEP learned": of_noise(scale=learned_scale, blocks=5),
            "T-PEP learned per block": of_noise(
                scale=lambda: positive_parameter([0.5, 0.8, 1.3]),
                blocks=np.repeat([2, 0, 1], [3, 4, 5]),
            ),
            "spherical": of_noise(alpha=0.0, scale="optimal"),
            "spherical per block": of_noise(alpha=0.0, scale="optimal per block", blocks=5),
        },
        training=of_noise(),
    ),
    Entry(gpflow_pep.TSGPR, COLLAPSED, regression={"TSGPR": of_noise()}, training=of_noise()),
    Entry(
        gpflow_pep.BTSGPR,
        COLLAPSED,
        regression={"BTSGPR": of_noise(blocks=5), "BTSGPR shared": of_noise(blocks=4, shared=True)},
        training=of_noise(blocks=10),
    ),
    Entry(
        gpflow_pep.PEP,
        SITES,
        regression={"PEP scale learned": of_noise(alpha=0.7, scale=learned_scale)},
    ),
    Entry(gpflow_pep.BlockPEP, SITES, regression={"BlockPEP": of_noise(alpha=0.7, blocks=5)}),
    Entry(
        gpflow_pep.StreamingPEP,
        SITES,
        regression={"StreamingPEP": of_noise(alpha=0.7)},
        training=of_labels(),
    ),
    Entry(
        gpflow_pep.StreamingSGPR,
        COLLAPSED,
        regression={"StreamingSGPR": of_noise(alpha=0.5)},
        training=of_noise(),
    ),
    Entry(gpflow.models.SGPR, COLLAPSED, training=of_noise()),
    Entry(
        gpflow_pep.PEPClassifier,
        SITES,
        classes={
            "PEPClassifier of classes": of_labels(alpha=0.7),
            "PEPClassifier separate": of_labels(alpha=0.7, separate=True),
        },
        training=of_labels(),
    ),
    Entry(gpflow_pep.ARPEP, OWN_Q, classes={"ARPEP": of_labels(alpha=0.7)}, training=of_labels()),
    Entry(
        gpflow_pep.APEP,
        OWN_Q,
        classes={"APEP": of_labels(alpha=0.7, scale=learned_scale)},
        training=of_labels(),
    ),
    Entry(
        gpflow_pep.RPAPEP,
        OWN_Q,
        classes={"RPAPEP": of_labels(alpha=0.7, whiten=False)},
        training=of_labels(),
    ),
    Entry(
        gpflow_pep.StreamingSVGP, OWN_Q, classes={"StreamingSVGP": of_labels()}, training=of_noise()
    ),
    Entry(gpflow_pep.TSVGP, OWN_Q, classes={"TSVGP": of_noise()}, training=of_noise()),
    Entry(
        gpflow_pep.BTSVGP, OWN_Q, classes={"BTSVGP": of_noise(whiten=False)}, training=of_noise()
    ),
    Entry(
        gpflow_pep.PEPSVGP,
        OWN_Q,
        classes={"PEPSVGP": of_noise(alpha=0.7, scale=learned_scale)},
        training=of_noise(alpha=0.5),
    ),
    Entry(gpflow.models.SVGP, OWN_Q, training=of_noise()),
)

REGRESSION = {
    name: (entry, setting) for entry in ENTRIES for name, setting in entry.regression.items()
}
CLASSES = {name: (entry, setting) for entry in ENTRIES for name, setting in entry.classes.items()}
QUICK = ("PEPR alpha 0.5", "PEPClassifier of classes", "ARPEP")
"""Settings for which `make test` runs the contract; `make test-slow` runs the others."""

IN_REGRESSION = partly_slow(
    "subject", REGRESSION, quick=["BTSGPR", "PEP scale learned"], indirect=True
)
"""Runs a test of the contract for models of regression only."""

ONE_IN_REGRESSION = partly_slow("subject", REGRESSION, quick=["BTSGPR"], indirect=True)
"""The same, but `make test` runs it for one of them only."""

ONE_OF_ALL = partly_slow(
    "subject", [*REGRESSION, *CLASSES], quick=["PEPR alpha 0.5"], indirect=True
)
"""Runs a test of the contract for all models, of which `make test` takes one."""

TRAINED = {
    entry.constructor.__name__: (entry, entry.training)
    for entry in ENTRIES
    if entry.training is not None
}
