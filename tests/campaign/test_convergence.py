"""
A small share of the campaign that counts which sites converge, and that its problems follow from
the seed alone.
"""

import numpy as np
import pytest

from campaign import convergence
from campaign.convergence import KINDS, Models, data, print_table, problems, solve

# Its tilted distributions have two modes; EP need not have a fixed point there.
NO_FIXED_POINT = "Poisson, square"
RANDOM_LABELS = ("robust-max", "at random")


def test_problems_follow_from_the_seed():
    some, again, others = problems(40, 3), problems(40, 3), problems(40, 4)
    assert some == again and some != others
    assert [problem.kind for problem in some[: len(KINDS)]] == list(KINDS)
    assert problems(40, 3, only="probit") == [
        problem for problem in some if problem.kind == "probit"
    ]
    for problem in some:
        (X, Y, Z), once_more = data(problem), data(problem)
        assert len(X) == len(Y) == problem.num_data and len(Z) == min(
            problem.num_inducing, problem.num_data
        )
        assert all(np.array_equal(one, two) for one, two in zip((X, Y, Z), once_more, strict=True))


@pytest.mark.slow
def test_a_small_share(capsys):
    """
    Each ends with a true status, or with the error that says what is not finite; nearly all
    converge.
    """
    models, found = Models(), []
    for problem in problems(2 * len(KINDS), 0):
        model = models(problem)
        outcome = solve(model)
        found.append((problem, outcome))
        if outcome.status in ("converged", "not converged"):
            assert (outcome.status == "converged") == (outcome.change <= model.tol), problem
            assert np.isfinite(outcome.log_evidence) and np.isfinite(outcome.change), problem
        else:
            assert "tilted distributions are not finite" in outcome.message, problem
    hard = [(problem, outcome) for problem, outcome in found if outcome.status != "converged"]
    certain = [
        problem
        for problem, _ in hard
        if problem.kind != NO_FIXED_POINT and (problem.kind, problem.observations) != RANDOM_LABELS
    ]
    assert not certain
    print_table(found)
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1].split()[:2] == ["all", f"{len(found)}"] and len(lines) == len(KINDS) + 2


def test_the_command(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        "sys.argv",
        ["convergence", "--problems", "4", "--only", "probit", "--output", f"{tmp_path}/a"],
    )
    convergence.main()
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["all", "1", "100.0%"]
    assert '"status": "converged"' in (tmp_path / "a").read_text()
