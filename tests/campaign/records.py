"""
Faults of what records a training: TensorBoard on a disk that is full, Sacred's folder of runs with
many writers.
"""

import json
import time
from pathlib import Path
from typing import Any

from campaign import damage
from campaign.children import TRAININGS, Child, train
from campaign.judging import Case, compared, of_ended, right, small_disk, wrong
from campaign.running import Outcome
from experiments import regression
from experiments.recording.experiment import run_directory

SUBJECTS = ("TensorBoard", "Sacred")
_RUN = {"dataset": "diabetes", "M": 4, "max_train": 60, "maxiter": 8, "log_interval": 2, "seed": 1}


def records(case: Case, folder: Path) -> list[Outcome]:
    """Check that records are complete or a warning was given, and that training is unaffected."""
    return (_watched if case.subject == "TensorBoard" else _recorded)(case, folder)


# --- TensorBoard: the disk is full from some record on --------------------------------------------


def _watched(case: Case, folder: Path) -> list[Outcome]:
    name = str(case.rng.choice(list(TRAININGS)))
    ended = Child(_watched_on_disk, name, folder, case).ended()
    if ended.code != 0:
        return [of_ended(ended, lambda _: right())]
    trained, is_full = ended.value
    told = [
        message
        for message in trained.warned
        if repr(str(folder)) in message and "\n" not in message
    ]
    as_meant = len(told) == len(trained.warned) == int(is_full)
    return [
        compared(name, trained),
        right() if as_meant else wrong("not told once", trained.warned),
    ]


def _watched_on_disk(name: str, folder: Path, case: Case) -> Any:
    """
    Return the trained values, and whether the disk was full at a record (the training run may have
    fewer).
    """
    space = small_disk(folder, case.rng)
    full = damage.Disturbed("record", int(case.rng.integers(1, 15)), space.fill)
    trained = train(name, None, lambda *_: full.act(), tensorboard=folder)
    return trained, bool(full.times)


# --- Sacred: several runs in one folder, some of which are killed ---------------------------------


def _recorded(case: Case, folder: Path) -> list[Outcome]:
    rng = case.rng
    killed = [bool(each) for each in rng.integers(2, size=int(rng.integers(2, 4)))] + [False]
    children = [Child(_run, folder) for _ in killed]
    time.sleep(float(rng.uniform(0.0, 4.0)))
    for child, dies in zip(children, killed, strict=True):
        if dies:
            child.kill()
    ends = [child.ended() for child in children]
    ends.append(Child(_run, folder).ended())  # and one more beside what is left
    results = [ended.value[0] for ended in ends if ended.code == 0]
    found = [
        of_ended(ended, lambda _: right())
        for ended, dies in zip(ends, [*killed, False], strict=True)
        if not dies
    ]
    found.append(right() if len(set(results)) == 1 else wrong("wrong numbers", results))
    folders = [ended.value[1] for ended in ends if ended.code == 0]
    found.append(
        right() if len(set(folders)) == len(folders) else wrong("one folder for two runs", folders)
    )
    return found + [_entry(Path(each)) for each in folders]


def _run(folder: Path) -> tuple[float, str]:
    """Return the error of the predictions, and where the run is recorded."""
    options = {"--file_storage": str(folder / "runs"), "--loglevel": "ERROR"}
    run: Any = regression.ex.run(config_updates=_RUN, options=options)
    return float(run.result["rmse"]), str(run_directory(run))


def _entry(folder: Path) -> Outcome:
    """Judge the record of a run that was not killed."""
    try:
        status = json.loads((folder / "run.json").read_text())["status"]
        (
            json.loads((folder / "config.json").read_text()),
            json.loads((folder / "metrics.json").read_text()),
        )
    except (OSError, ValueError, KeyError) as error:
        return wrong("torn file", f"{type(error).__name__}: {error}")
    return right() if status == "COMPLETED" else wrong("other status", status)
