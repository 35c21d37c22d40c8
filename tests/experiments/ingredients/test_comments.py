"""
Comments of settings, which `print_config` shows: Sacred takes the line before the setting only.
"""

import inspect
import itertools

import pytest

from experiments.ingredients import classifier, data, kernel, learner, model, stream, training


@pytest.mark.parametrize("module", [classifier, data, kernel, learner, model, stream, training])
def test_one_line_describes_a_setting(module):
    lines = [
        line.strip() for line in inspect.getsource(module).split("\n") if line.startswith("    ")
    ]
    settings = [before for before, line in itertools.pairwise(lines) if not line.startswith("#")]
    assert [line for line in lines if line.startswith("#") and line not in settings] == []


def test_the_models_are_listed():
    configuration = model.gp.configurations[0]()
    assert all(name in configuration.docs["model"] for name in model.MODELS)
