"""A small part of the attacks campaign, and tests of its judgments."""

import numpy as np
import pytest
from quick import some_slow

from campaign import attacks
from campaign.attack_subjects import KINDS, Attack, Model, Rows
from campaign.attacks import ATTACKS, CAMPAIGN, NAMES, case_of, judge, run
from gpflow_pep.models.sparse import InducingVariableGP

QUICK = [
    ("models", "data"),
    ("predictions", "inputs"),
    ("streams", "points that stay"),
]


@pytest.mark.parametrize(("kind", "name"), some_slow(NAMES, quick=QUICK))
def test_a_small_share(kind, name, capsys):
    case = next(case for case in map(case_of, range(len(NAMES))) if case[1:] == (kind, name))
    outcome = run(case)
    expected = "right" if ATTACKS[kind][name].names is None else "refused"
    assert outcome.verdict in (expected, "not converged"), outcome
    CAMPAIGN.print_table([(case, outcome)])
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == len(ATTACKS) + 2 and lines[-1].split()[:2] == ["all", "1"]


@pytest.mark.slow
def test_every_kind_of_model_is_drawn():
    drawn = {Model(np.random.default_rng(seed)).kind for seed in range(150)}
    assert drawn == set(KINDS)


class Subject(Rows):
    """A subject whose numbers an attack can change."""

    value = 1.0

    def numbers(self):
        return {"value": np.array(self.value)}


def verdict(act, names=None):
    return judge(Attack(Subject, act, names), np.random.default_rng(0)).verdict


def raising(error, change=0.0):
    def act(subject):
        subject.value += change
        raise error

    return act


def test_refusals_are_judged():
    assert verdict(raising(ValueError("alpha must be in [0, 1], got 2.")), "alpha") == "refused"
    assert verdict(lambda subject: None, "alpha") == "accepted"
    assert verdict(raising(ValueError("out of range")), "alpha") == "refused obscurely"
    assert verdict(raising(ValueError(f"{'x' * 400} alpha")), "alpha") == "refused obscurely"
    assert (
        verdict(raising(AttributeError("'NoneType' has no attribute 'alpha'")), "alpha")
        == "raw error"
    )
    assert (
        verdict(raising(ValueError("alpha must be in [0, 1]"), change=1e-3), "alpha")
        == "model changed"
    )
    assert (
        verdict(raising(ValueError("alpha must be in [0, 1]"), change=np.nan), "alpha")
        == "model changed"
    )


def test_numbers_are_judged():
    assert verdict(lambda subject: (subject.numbers(), {"value": np.array(1.0 + 1e-8)})) == "right"
    assert (
        verdict(lambda subject: (subject.numbers(), {"value": np.array(1.0001)})) == "wrong numbers"
    )
    assert (
        verdict(lambda subject: (subject.numbers(), {"value": np.array([1.0])})) == "wrong numbers"
    )
    assert (
        verdict(lambda subject: (subject.numbers(), {"value": np.array(1.0), "other": 2.0}))
        == "wrong numbers"
    )
    assert verdict(lambda subject: ({"value": np.nan}, {"value": np.nan})) == "wrong numbers"
    assert verdict(raising(ValueError("alpha"))) == "raw error"


def test_a_model_without_checks_is_found(monkeypatch):
    """It accepts a wrong number of latent functions, or fails at another place."""
    monkeypatch.delattr(InducingVariableGP, "num_latent_gps")
    seed = NAMES.index(("models", "num_latent_gps"))
    assert run(case_of(seed)).verdict not in ("right", "refused")


def test_sites_that_do_not_converge_are_no_error(monkeypatch):
    def act(subject):
        raise attacks.NotConverged

    monkeypatch.setitem(ATTACKS["models"], "kernel replaced", Attack(Subject, act))
    assert run(case_of(NAMES.index(("models", "kernel replaced")))).verdict == "not converged"
