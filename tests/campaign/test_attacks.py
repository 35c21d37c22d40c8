"""A small part of the attacks campaign; it finds wrong results."""

import numpy as np
import pytest
from quick import partly_slow

from campaign import attacks
from campaign.attacks import ATTACKS, Attack, run
from campaign.cases import found_by

SEEDS = range(len(ATTACKS))


@partly_slow("seed", SEEDS, quick=[0, 15, 19])
def test_a_small_share(seed):
    outcome = run(seed)
    assert outcome.verdict in ("right", "not converged"), outcome


@pytest.mark.parametrize("change", [1e-5, np.nan])
def test_wrong_numbers_are_found(monkeypatch, change):
    def act(case, model, rng):
        found = found_by(case, model)
        return found._replace(mean=found.mean + change), found

    monkeypatch.setitem(attacks.ATTACKS, "kernel replaced", Attack(act, ["PEPR"]))
    assert run(0).verdict == ("not finite" if np.isnan(change) else "wrong mean")


def test_errors_and_sites_that_have_not_converged_are_told_apart(monkeypatch):
    def failing(case, model, rng):
        raise AttributeError("'NoneType' has no attribute 'alpha'")

    def act(case, model, rng):
        model.max_sweeps = 1
        model.reset_sites()
        return found_by(case, model), found_by(case, model)

    for attack, verdict in ((failing, "raw error"), (act, "not converged")):
        monkeypatch.setitem(ATTACKS, "kernel replaced", Attack(attack, ["PEP"], ["Probit"]))
        assert run(0).verdict == verdict
