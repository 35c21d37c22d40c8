"""Flat names of configuration entries."""

import pytest
from sacred import Ingredient
from sacred.utils import SacredError

from experiments.recording.experiment import RecordedExperiment


@pytest.fixture
def experiment():
    first = Ingredient("first")
    second = Ingredient("second")
    first.add_config(shared=1, mine=1, top=1)
    second.add_config(shared=2, yours=2)
    ex = RecordedExperiment("test", ingredients=[first, second])
    ex.add_config(top=0)

    @ex.main
    def main(_config):
        return dict(_config)

    return ex


def run(experiment, **updates):
    return experiment.run(config_updates=updates, options={"--unobserved": True}).result


def test_entry_goes_to_the_ingredient_that_has_it(experiment):
    config = run(experiment, mine=5, yours=6)
    assert config["first"]["mine"] == 5 and config["second"]["yours"] == 6


def test_experiments_own_entry_goes_before(experiment):
    config = run(experiment, top=7)
    assert config["top"] == 7 and config["first"]["top"] == 1


def test_full_names_and_nested_updates_are_left_alone(experiment):
    config = run(experiment, **{"second.shared": 8}, first={"shared": 9}, mine=5)
    assert config["second"]["shared"] == 8 and config["first"] == {"shared": 9, "mine": 5, "top": 1}


def test_a_file_of_settings_is_refused_before_it_is_read(experiment, tmp_path, monkeypatch):
    """Sacred would read it by jsonpickle, which makes any objects."""
    monkeypatch.chdir(tmp_path)
    for name in ("settings.json", str(tmp_path / "settings.pickle"), "."):
        if name != ".":
            (tmp_path / name).write_text('{"py/object": "builtins.object"}')
        with pytest.raises(SacredError, match=r"^with .* give each setting as NAME=VALUE\.$"):
            experiment.run(named_configs=[name], options={"--unobserved": True})


def test_ambiguous_name_is_refused(experiment):
    with pytest.raises(SacredError, match=r"first\.shared, second\.shared"):
        run(experiment, shared=3)
