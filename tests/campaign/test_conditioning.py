"""Entries of the table of accuracy, and that it would show what is wrong."""

import functools

import pytest
from support.products import preferring_products

from campaign import conditioning
from campaign.conditioning import CONDITIONS, NOISES, error_of
from gpflow_pep import PEPR


@pytest.mark.parametrize("products", [False, True], ids=["by solves", "by products"])
@pytest.mark.parametrize("model", ["PEPR 0.5", "TSGPR"])
def test_errors_follow_the_condition_number(model, products):
    """Errors are at most rounding times the condition number, and at most 1e-4."""
    for condition, noise in ((1.0, 1e-2), (1e6, 1e-8), (1e10, 1e-4), (1e14, 1.0)):
        with preferring_products(products):
            error = error_of(model, condition, noise, seed=3)
        assert error is not None and error <= min(1e-15 * condition + 1e-13, 1e-4)


def test_a_matrix_that_is_singular_is_refused():
    assert error_of("PEPR 0.5", 1e18, 1e-2, seed=0) is None


def test_errors_of_a_wrong_model_show(monkeypatch):
    wrong = functools.partial(PEPR, alpha=0.6), {"alpha": 0.5}
    monkeypatch.setitem(conditioning.MODELS, "PEPR 0.5", wrong)
    error = error_of("PEPR 0.5", 1.0, 1e-2, seed=3)
    assert error is not None and error > 1e-4


def test_the_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["conditioning", "--cases", "1", "--models", "TSGPR"])
    monkeypatch.setattr(conditioning, "CONDITIONS", CONDITIONS[:2])
    conditioning.main()
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 3
    assert lines[0].split()[0] == "TSGPR"
    assert len(lines[-1].split()) == 2 + len(NOISES)
