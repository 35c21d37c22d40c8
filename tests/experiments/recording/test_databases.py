"""
A run is recorded in a database beside its folder, as completed, failed or interrupted, with its
metrics.
"""

import json
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import sqlalchemy
from recorded_runs import TINY
from refusals import refused
from sacred.utils import SacredError

from experiments import regression
from experiments.regression import ex


def recorded(url):
    """The runs in the database, in their order: status, and their results and metrics."""
    with sqlalchemy.create_engine(url).connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT status, info FROM run ORDER BY id")).all()
    return [(status, json.loads(info)) for status, info in rows]


def test_sqlite(runs, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/runs.db"
    run = partial(
        ex.run, options={"--file_storage": str(runs), "--loglevel": "ERROR", "--sql": url}
    )
    result = run(config_updates=TINY).result
    calls = []

    def interrupted(model):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr(regression, "noise_sd", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(config_updates=TINY | {"log_interval": 1})
    with refused("M is 0"):
        run(config_updates=TINY | {"M": 0})
    (completed, scores), (stopped, partly), (failed, _) = recorded(url)
    assert (completed, stopped, failed) == ("COMPLETED", "INTERRUPTED", "FAILED")
    assert scores["result"]["rmse"] == result["rmse"]
    assert scores["metrics"]["noise_sd"]["steps"] == [0, 2, 3]
    assert partly["metrics"]["noise_sd"] == {"steps": [0], "values": [1.0]}
    assert {path.name for path in runs.iterdir()} >= {"1", "2", "3"}


def test_a_locked_database_is_named(runs, tmp_path):
    path = tmp_path / "runs.db"
    options = {"--file_storage": str(runs), "--sql": f"sqlite:///{path}?timeout=0"}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            SacredError, match=r"^--sql sqlite:///.*runs\.db.*: database is locked\.$"
        ):
            ex.run(config_updates=TINY, options=options)
