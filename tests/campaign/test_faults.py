"""A small part of the faults campaign; it finds wrong results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from campaign import damage, judging
from campaign.calls import Outcome
from campaign.children import Child, Trained, Undisturbed
from campaign.faults import KINDS, SUBJECTS, case_of
from campaign.judging import compared, refusal, whole
from gpflow_pep.saving.arrays_file import DIGEST, save_arrays

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "which"),
    [
        ("3", "--seed 18"),
        ("1", "--seed 16 --only killed"),
        ("1", "--seed 23 --only killed"),
        ("1", "--seed 4 --only disk"),
    ],
    ids=["StreamingPEP", "TSVGP", "PEPR", "StreamingSGPR"],
)
def test_a_small_share(tmp_path, number, which):
    """
    In a process of its own, which forks before it runs TensorFlow: kills, a full disk, damages.
    """
    path = tmp_path / "wrong.json"
    arguments = f"-m campaign.faults {which} --cases {number} --output {path}"
    command = [sys.executable, *arguments.split()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(path.read_text()) == []
    lines = ended.stdout.strip().splitlines()
    assert len(lines) == len(KINDS) + 2 and lines[-1].split()[:2] == ["all", number]


def test_cases_follow_from_the_seed():
    some = [case_of(seed) for seed in range(500)]
    assert some == [case_of(seed) for seed in range(500)]
    assert {case.kind for case in some} == set(KINDS)
    for kind in KINDS:
        assert {case.subject for case in some if case.kind == kind} == set(SUBJECTS)
        assert {case_of(seed, kind).kind for seed in range(5)} == {kind}


# --- what is wrong is found -----------------------------------------------------------------------

VALUES = {"a": np.ones(2)}
TRAINED = Trained(VALUES, (-3.0, -2.0), "limit", [], -2.0)


def test_trainings_are_compared(monkeypatch):
    monkeypatch.setattr(judging, "undisturbed", lambda name: Undisturbed(TRAINED, b"", b""))
    for name, trained, least, verdict in [
        ("TSVGP", TRAINED, -np.inf, "right"),
        (
            "TSVGP",
            TRAINED._replace(values={"a": np.array([1.0, 1.0 + 1e-15])}),
            -np.inf,
            "wrong numbers",
        ),
        ("TSVGP", TRAINED._replace(objective=(-3.0, -2.1)), -np.inf, "wrong numbers"),
        ("TSVGP", TRAINED._replace(status="failed"), -np.inf, "other status"),
        ("PEPR, L-BFGS", TRAINED._replace(values={"a": np.zeros(2)}), -2.1, "right"),
        ("PEPR, L-BFGS", TRAINED._replace(evaluated=-2.1), -np.inf, "wrong numbers"),
        ("PEPR, L-BFGS", TRAINED._replace(objective=(-3.0, -1.9)), -np.inf, "wrong numbers"),
        ("PEPR, L-BFGS", TRAINED, -1.9, "wrong numbers"),
    ]:
        assert compared(name, trained, least).verdict == verdict


def test_errors_are_judged():
    for error, verdict in [
        (ValueError("the state '/a/b' cannot be used: it is empty."), "refused"),
        (OSError(28, "No space left on device", "/a/b"), "refused"),
        (OSError(28, "No space left on device"), "refused obscurely"),
        (ValueError("'/a/b':\nmany lines"), "refused obscurely"),
        (KeyError("/a/b"), "raw error"),
        (UnicodeDecodeError("utf-8", b"/a/b", 0, 1, "/a/b"), "raw error"),
    ]:
        assert refusal(error, "/a/b").verdict == verdict


def test_damaged_files_are_found(tmp_path):
    path, rng = tmp_path / "a.npz", np.random.default_rng(3)
    assert whole(path) is None
    save_arrays(path, {"one": np.arange(300.0), "two": np.ones(300), "text": np.array("1, 2")})
    content = path.read_bytes()
    assert whole(path) is None
    for way in sorted(damage.BYTES.keys() - {"lengthened"}):  # which leaves the arrays as they are
        path.write_bytes(damage.BYTES[way](content, rng))
        outcome = whole(path)
        assert outcome is not None and outcome.verdict == "torn file", way
    for way in damage.MEMBERS:
        path.write_bytes(
            damage.rewritten(
                content, lambda arrays, way=way: damage.changed(way, arrays, rng), DIGEST
            )
        )
        assert whole(path) is not None, way


def test_detects_children_that_die_or_hang():
    """They run nothing of TensorFlow, which this process may have run."""
    assert Child(lambda: 3).ended()[:2] == (0, 3)
    assert Child(damage.die).ended().code == -9
    failed = Child(lambda: 1 // 0).ended()
    assert failed.code == 1 and "ZeroDivisionError" in failed.said
    hung = Child(lambda: __import__("time").sleep(60)).ended(seconds=0.05)
    assert judging.of_ended(hung, lambda _: Outcome("right", 0.0, "")).verdict == "hung"
