"""
A small share of the campaign that counts which sites converge, and that its problems follow from
the seed alone.
"""

import json

import numpy as np

from campaign import convergence
from campaign.convergence import KINDS, Models, data, problems, solve

# Its tilted distributions have two modes; EP need not have a fixed point there.
NO_FIXED_POINT = "Poisson, square"
RANDOM_LABELS = ("robust-max", "at random")


def test_problems_follow_from_the_seed():
    some = problems(40, 3)
    again = problems(40, 3)
    others = problems(40, 4)
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


def test_a_small_share():
    """
    Each ends with a true status, or with the error that says what is not finite; nearly all
    converge.
    """
    models = Models()
    found = []
    for problem in problems(2 * len(KINDS), 0):
        model = models(problem)
        outcome = solve(model)
        found.append((problem, outcome))
        if outcome.verdict in ("converged", "not converged"):
            assert (outcome.verdict == "converged") == (outcome.change <= model.tol), problem
            assert np.isfinite(outcome.log_evidence) and np.isfinite(outcome.change), problem
        else:
            assert "tilted distributions are not finite" in outcome.message, problem
    hard = [(problem, outcome) for problem, outcome in found if outcome.verdict != "converged"]
    certain = [
        problem
        for problem, _ in hard
        if problem.kind != NO_FIXED_POINT and (problem.kind, problem.observations) != RANDOM_LABELS
    ]
    assert not certain


def test_the_command(monkeypatch, capsys, tmp_path):
    """One problem of a kind is solved; one of the others does not converge, and is written."""
    output = tmp_path / "found.json"
    options = ["--problems", "4", "--only", "probit", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["convergence", *options])
    convergence.main()
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["all", "1", "100.0%"]
    assert json.loads(output.read_text()) == []
    ended = convergence.Outcome("not converged", 9, 1.0, 0.0, 0.0, "")
    monkeypatch.setattr(convergence, "solve", lambda model: ended)
    convergence.main()
    assert "not converged" in capsys.readouterr().out
    assert json.loads(output.read_text())[0][:2] == [0, "probit"]
