"""
Cells that end well, fail, die or are interrupted: the records, and the cells that run then and the
next time.
"""

import os

import acting
import pytest
from quick import some_slow
from refusals import refused

from experiments.cells import processes, running
from experiments.cells.cell import Cell, not_completed
from experiments.cells.outcomes import read_outcome
from experiments.cells.running import run_cells

BOTH = some_slow([1, 2], quick=[2])


@pytest.fixture(autouse=True)
def _acting_on_two_cores(monkeypatch):
    monkeypatch.setattr(processes, "perform", acting.perform)
    monkeypatch.setattr(running, "cpu_count", lambda: 2)


def cell(name, act="return"):
    return Cell("none", {"name": name, "act": act})


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


def begun(runs):
    """Names of the cells that have begun so far, in alphabetical order."""
    return "".join(sorted((runs.parent / "begun").read_text().split()))


@pytest.mark.parametrize("jobs", BOTH)
def test_completed_cells_do_not_run_again(runs, jobs):
    cells = [cell(name) for name in "abc"]
    first = run_cells(cells[:2], runs, jobs=jobs)
    assert [outcome.result["name"] for outcome in first] == ["a", "b"]
    assert run_cells(cells[:2], runs, jobs=jobs) == first and begun(runs) == "ab"
    assert run_cells(cells, runs, jobs=jobs)[:2] == first and begun(runs) == "abc"


@pytest.mark.parametrize("jobs", BOTH)
def test_a_failing_and_a_dying_cell_are_recorded_and_take_no_other_with_them(runs, jobs):
    cells = [cell("a"), cell("b", "die"), cell("c", "fail"), cell("d", "leave"), cell("e")]
    outcomes = run_cells(cells, runs, jobs=jobs)
    assert statuses(outcomes) == ["completed", "killed", "failed", "killed", "completed"]
    assert [outcome.reason for outcome in outcomes[1:4]] == [
        "its process ended with {SIGKILL(-9)}, perhaps for lack of memory",
        "ValueError: M is 500;\nwhole numbers are accepted.",
        "its process ended with {EXIT(3)}",
    ]
    assert [read_outcome(runs, each) for each in cells] == outcomes
    text = not_completed(outcomes)
    assert text.startswith("3 of 5 runs have no result")
    assert "killed: none with name=b act=die: its process" in text
    before = begun(runs)
    assert set(before) == set("abcde") and (jobs == 2 or before == "abcde")
    run_cells(cells, runs, jobs=jobs)  # these three, again
    again = {name for name in "abcde" if begun(runs).count(name) > before.count(name)}
    assert again == set("bcd")


def test_of_two_cells_in_progress_the_one_whose_process_dies_is_found(runs):
    cells = [cell("a", "linger"), cell("b", "die"), cell("c")]
    assert statuses(run_cells(cells, runs, jobs=2)) == ["completed", "killed", "completed"]
    # b once beside a, and once alone.
    assert begun(runs).count("b") == 2 and begun(runs).count("c") == 1


def test_a_process_runs_several_cells_and_ends(runs):
    outcomes = run_cells([cell(name) for name in "abc"], runs, jobs=1)
    (number,) = {outcome.result["process"] for outcome in outcomes}
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.parametrize("jobs", BOTH)
def test_an_interrupt_leaves_what_has_completed_and_no_process(runs, jobs):
    cells = [cell("a"), cell("b", "interrupt"), *(cell(name) for name in "cdef")]
    run_cells(cells[:1], runs)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, runs, jobs=jobs)
    assert (runs.parent / "interrupted").exists()  # Sacred had time to record it
    assert read_outcome(runs, cells[0]).status == "completed"
    assert read_outcome(runs, cells[1]) is None
    assert statuses(run_cells([cells[0], *cells[2:]], runs)) == ["completed"] * 5
    assert set(begun(runs)) == set("abcdef")  # c may have been interrupted too
    if jobs == 1:
        assert begun(runs) == "abcdef"


def test_threads_times_jobs_are_at_most_the_cores(runs, monkeypatch):
    monkeypatch.setattr(running, "cpu_count", lambda: 5)
    (outcome,) = run_cells([cell("a")], runs, jobs=2)
    threads = outcome.result["threads"]
    assert {
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
    } <= threads.keys()
    assert set(threads.values()) == {"2"}
    with refused("jobs must take no more than the 5 cores of this machine, got 6 jobs"):
        run_cells([cell("b")], runs, jobs=6)
    with refused("got 2 jobs of 3 threads"):
        run_cells([cell("b")], runs, jobs=2, threads=3)
    assert begun(runs) == "a"


@pytest.mark.skipif(
    "not os.path.exists('/proc/self/task')", reason="counts the threads that Linux lists"
)
def test_tensorflow_is_given_its_threads(runs, monkeypatch):
    monkeypatch.setattr(running, "cpu_count", lambda: 9)
    one, nine = (
        run_cells([cell(str(k), "compute")], runs, threads=k)[0].result["tasks"] for k in (1, 9)
    )
    # By each of TensorFlow's two pools and of the linear algebra libraries, at least once.
    assert nine >= one + 8


def test_a_cell_runs_once(runs):
    first, second = run_cells([cell("a"), cell("a")], runs)
    assert first == second and begun(runs) == "a"


def test_places_that_do_not_find_the_experiments_are_named():
    class Client:
        def run_on_scheduler(self, function, *arguments):
            return function(*arguments)

        def run(self, function, *arguments):
            return {"tcp://1": function(*arguments), "tcp://2": None}

    with refused("must find the package experiments, but tcp://2 does not"):
        running._check_experiments_are_found(Client())


def test_workers_of_dask(runs):
    distributed = pytest.importorskip("distributed", reason="an extra: pip install distributed")
    cells = [cell("a"), cell("b", "die"), cell("c", "fail"), *(cell(name) for name in "def")]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        outcomes = run_cells(cells, runs, scheduler=address)
        assert statuses(outcomes) == ["completed", "killed", "failed", *["completed"] * 3]
        assert outcomes[0].result["threads"]["OMP_NUM_THREADS"] == "1"
        run_cells(cells[3:], runs)  # nothing
        run_cells([*cells, cell("g")], runs, scheduler=address)
    assert set(begun(runs)) == set("abcdefg")
