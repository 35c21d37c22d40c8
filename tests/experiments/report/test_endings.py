"""How many runs ended without converging."""

from experiments.report.endings import endings


def test_endings():
    runs = [(True, 5), (False, 5), (False, 3), (False, 4)]
    results = [{"converged": converged, "iterations": iterations} for converged, iterations in runs]
    assert endings(results, 5) == ("1/4", "2/4")
