"""A small part of the faults campaign; it finds wrong results."""

import numpy as np
import pytest

from campaign import faults
from campaign.faults import KINDS, TRAININGS, Trained, case_of, compared, damage, run

VALUES = {"a": np.ones(2)}
TRAINED = Trained(VALUES, (-3.0, -2.0), "limit")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_small_share(seed):
    """Kills in processes of their own, a full disk, damages."""
    outcome = run(case_of(seed))
    assert outcome.verdict in ("right", "refused"), outcome


def test_every_kind_and_training_is_drawn():
    some = [case_of(seed) for seed in range(200)]
    assert {case[1:] for case in some} == {(kind, name) for kind in KINDS for name in TRAININGS}


@pytest.mark.parametrize(
    ("subject", "changes", "verdict"),
    [
        ("TSVGP", {}, "right"),
        ("TSVGP", {"values": {"a": np.array([1.0, 1.0 + 1e-15])}}, "wrong values"),
        ("TSVGP", {"objective": (-3.0, -2.1)}, "wrong values"),
        ("TSVGP", {"status": "failed"}, "other status"),
        ("PEPR", {"values": {"a": np.zeros(2)}, "objective": (-2.0,)}, "right"),
        ("PEPR", {"objective": (-3.0, -2.1)}, "wrong objective"),
    ],
)
def test_trainings_are_compared(monkeypatch, subject, changes, verdict):
    monkeypatch.setattr(faults, "undisturbed", lambda name: (TRAINED, b""))
    assert compared(subject, TRAINED._replace(**changes)).verdict == verdict


def test_a_refusal_that_names_no_file_or_changes_the_model_is_found(monkeypatch):
    """The checkpoint cannot be read, and an error of another kind is no refusal."""
    model = faults.new("PEPR")
    monkeypatch.setattr(faults, "undisturbed", lambda name: (TRAINED, bytes(500)))
    monkeypatch.setattr(faults, "new", lambda name: model)
    case = faults.Case(0, "damaged", "PEPR")
    assert run(case).verdict == "refused"

    def failing(error, change):
        def train(subject, model, path):
            model.kernel.variance.assign(model.kernel.variance + change)
            raise error

        return train

    for error, change, verdict in (
        (ValueError("no file"), 0.0, "refused obscurely"),
        (ValueError("no file"), 1.0, "changed"),
        (KeyError("c.npz"), 0.0, "raw error"),
    ):
        monkeypatch.setattr(faults, "train", failing(error, change))
        assert run(case).verdict == verdict


def test_damages_differ_from_the_content():
    content = bytes(range(256)) * 4
    rng = np.random.default_rng(0)
    assert all(damage(content, rng) != content for _ in range(50))
