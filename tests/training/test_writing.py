"""Unwritable paths are reported before training; later failures give a warning and the result."""

import errno
import math
import shutil
import warnings

import numpy as np
import pytest
import tensorflow as tf
from gpflow.monitor import ToTensorBoard
from quick import partly_slow
from refusals import refused
from small_models import X, Y, options_for

from gpflow_pep.saving import arrays_file
from gpflow_pep.training import checkpoints, fit, monitor

OPTIONS = {**options_for("TSVGP"), "max_iterations": 20, "interval": 5}


def unreachable(tmp_path, kind):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    places = {
        "below a file": "file/c",
        "name": "n" * 300,
        "file": "file",
        "folder": "folder",
        "no folder": "none/c",
    }
    return tmp_path / places[kind]


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        *(("checkpoint", kind) for kind in ("below a file", "name", "folder", "no folder")),
        *(("tensorboard", kind) for kind in ("below a file", "name", "file")),
    ],
)
def test_unwritable_paths_are_reported_before_training(as_new, tmp_path, argument, kind):
    path = unreachable(tmp_path, kind)
    steps = []
    with refused(f"^{argument} must be ") as caught:
        fit(
            as_new("TSVGP"),
            (X, Y),
            callback=lambda *step: steps.append(step),
            **{**OPTIONS, argument: path},
        )
    assert str(path) in str(caught.value) and not steps
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder"}  # nothing is left there


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_checkpoint_that_cannot_be_written_any_more(as_new, tmp_path, monkeypatch):
    """One warning; the result is that without checkpoints, and the file before stays."""
    path = tmp_path / "c.npz"
    writes = []
    save = arrays_file.save_arrays

    def first_only(*arguments):
        writes.append(arguments)
        (save if len(writes) == 1 else full)(*arguments)

    monkeypatch.setattr(checkpoints, "save_arrays", first_only)
    expected = fit(as_new("TSVGP"), (X, Y), **OPTIONS)
    with pytest.warns(UserWarning, match="could not be written.*No space left") as told:
        result = fit(as_new("TSVGP"), (X, Y), checkpoint=path, checkpoint_seconds=0.0, **OPTIONS)
    assert len(told) == 1 and len(writes) > 3
    assert result.objective == expected.objective and result.status == expected.status
    monkeypatch.undo()
    again = fit(as_new("TSVGP"), (X, Y), checkpoint=path, **OPTIONS)
    assert again.objective == expected.objective


@partly_slow(
    "error",
    [full, lambda *_: (_ for _ in ()).throw(tf.errors.NotFoundError(None, None, "gone"))],
    1,
)
def test_a_tensorboard_that_cannot_be_written_any_more(as_new, tmp_path, monkeypatch, error):
    expected = fit(as_new("TSVGP"), (X, Y), **OPTIONS)
    asked = []

    def broken(step):
        asked.append(step)
        error()

    monkeypatch.setattr(monitor, "Monitor", lambda *_: broken)
    with pytest.warns(
        UserWarning,
        match="tensorboard '.*t' could not be written: .*; training continues without it",
    ) as told:
        result = fit(as_new("TSVGP"), (X, Y), tensorboard=tmp_path / "t", **OPTIONS)
    assert len(told) == 1 and asked == [5]
    assert result.objective == expected.objective


def test_a_run_closes_its_events(as_new, tmp_path):
    """A later run writes to a folder that was removed."""
    folder = tmp_path / "events"
    for _ in range(2):
        fit(as_new("TSVGP"), (X, Y), **{**OPTIONS, "max_iterations": 5}, tensorboard=folder)
        assert str(folder) not in ToTensorBoard.writers
        assert list(folder.iterdir())
        shutil.rmtree(folder)


@partly_slow(("seconds", "count"), [(math.inf, 1), (np.float32(0.0), 5)], 1)
def test_accepts_valid_checkpoint_seconds(as_new, tmp_path, monkeypatch, seconds, count):
    """With a minimum time of 0 there is one checkpoint per record and one at the end."""
    writes = []
    save = arrays_file.save_arrays
    monkeypatch.setattr(
        checkpoints, "save_arrays", lambda *each: (writes.append(each), save(*each))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(
            as_new("TSVGP"),
            (X, Y),
            checkpoint=tmp_path / "c.npz",
            checkpoint_seconds=seconds,
            **OPTIONS,
        )
    assert len(writes) == count
