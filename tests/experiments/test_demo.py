"""The demonstration, shortened: two runs, one table, one figure."""

import dataclasses
import json

import pytest
from matplotlib.image import imread

from experiments import demo
from experiments.protocols import demonstrations

DEMONSTRATIONS = {  # numbers of the methods, their names, the experiment, the set and its size
    "regression": ((0, 3), ["SGPR", "PEP α=0.5"], "regression", "diabetes", "398 training and 44"),
    "classification": (
        (0, 4),
        ["SVGP", "QP α=1"],
        "classification",
        "breast-cancer",
        "512 training and 57",
    ),
    "multiclass": (
        (0, 1),
        ["SVGP", "PEP α=0.5"],
        "classification",
        "digits",
        "400 training and 180",
    ),
    "streaming": (
        (1, 2),
        ["streaming PEP α=0.5", "SGPR, last 150"],
        "streaming",
        "jacksboro",
        "300 training",
    ),
}
SMALL_STREAM = {
    "M": 10,
    "max_train": 300,
    "maxiter": 2,
    "batch_size": 100,
    "window": 150,
    "first_maxiter": 3,
}


@pytest.mark.parametrize("task", DEMONSTRATIONS)
def test_short_demonstration(task, runs, capfd, monkeypatch):
    """Two of the methods; each is compiled anew, which takes most of its time."""
    numbers, names, experiment, dataset, size = DEMONSTRATIONS[task]
    whole = demonstrations.DEMONSTRATIONS[task]
    some = dataclasses.replace(whole, methods=tuple(whole.methods[number] for number in numbers))
    if task == "streaming":
        some = dataclasses.replace(some, of_sets={dataset: SMALL_STREAM})
    monkeypatch.setitem(demonstrations.DEMONSTRATIONS, task, some)
    demo.main(["--task", task, "--short", "--runs", str(runs)])
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("| method"))
    body = lines[start + 2 : start + 4]
    assert [line.split("|")[1].strip() for line in body] == names
    assert len({len(line) for line in [lines[start], *body]}) == 1
    (about,) = (line for line in lines if line.startswith(dataset))
    assert size in about
    assert f"experiments.{experiment} with dataset={dataset}" in printed.out
    assert imread(runs / f"demo-{dataset}.png").shape[2] == 4
    statuses = [
        json.loads((runs / str(number) / "run.json").read_text())["status"] for number in (1, 2)
    ]
    assert statuses == ["COMPLETED"] * 2


@pytest.mark.parametrize(
    ("task", "dataset", "message"),
    [
        ("regression", "breast-cancer", "dataset 'breast-cancer' is for classification"),
        ("classification", "diabetes", "dataset 'diabetes' is for regression"),
        ("regression", "diabets", "Did you mean 'diabetes'"),
    ],
)
def test_unusable_data_set_ends_the_demonstration(runs, task, dataset, message):
    with pytest.raises(SystemExit, match=message):
        demo.main(["--task", task, "--dataset", dataset, "--runs", str(runs)])
    assert not runs.exists()
