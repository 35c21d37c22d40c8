"""Steps exported as StableHLO: inputs, results and module."""

import re
import sys

import numpy as np
import pytest

from experiments.benchmarks import stablehlo_step
from experiments.benchmarks.collapsed_step import KERNELS, build, data


@pytest.mark.slow
def test_exported_steps(tmp_path, monkeypatch):
    """The file holds what a step reads and returns."""
    path = tmp_path / "steps.npz"
    sizes = ["--rows", "40", "--inducing", "5"]
    models = ["PEPR 0.5", "PEPR 0.5 by solves", "TSVGP"]
    monkeypatch.setattr(
        sys, "argv", ["stablehlo_step", "--export", str(path), *sizes, "--models", *models]
    )
    stablehlo_step.main()
    with np.load(path) as arrays:
        assert str(arrays["PEPR 0.5/module"]).count("stablehlo.cholesky") == 2
        solves = r"stablehlo.triangular_solve.*-> tensor<5x40xf64>"
        counts = [len(re.findall(solves, str(arrays[f"{name}/module"]))) for name in models[:2]]
        assert counts == [0, 2]
        inputs = [arrays[key] for key in arrays if key.startswith("PEPR 0.5/input")]
        assert {str(value) for value in inputs if value.dtype.kind == "U"} == {"X", "Y"}
        loss = build(*data(40, 5), KERNELS["SquaredExponential"])["PEPR 0.5"].training_loss()
        assert arrays["PEPR 0.5/output0"] == pytest.approx(float(loss), rel=1e-12)
