"""A run is recorded in a database beside its folder, as completed, failed or interrupted, with its metrics."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy
from sacred.utils import SacredError

from experiments import regression
from experiments.regression import ex

TINY = {"dataset": "diabetes", "M": 4, "max_train": 60, "maxiter": 3, "log_interval": 2, "seed": 1}


def recorded(url):
    """The runs in the database, in their order: status, and their results and metrics."""
    with sqlalchemy.create_engine(url).connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT status, info FROM run ORDER BY id")).all()
    return [(status, json.loads(info)) for status, info in rows]


def assert_records_runs(url, runs, monkeypatch):
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
    with pytest.raises(ValueError, match="M is 0"):
        run(config_updates=TINY | {"M": 0})
    (completed, scores), (stopped, partly), (failed, _) = recorded(url)
    assert (completed, stopped, failed) == ("COMPLETED", "INTERRUPTED", "FAILED")
    assert scores["result"]["rmse"] == result["rmse"]
    assert scores["metrics"]["noise_sd"]["steps"] == [0, 2, 3]
    assert partly["metrics"]["noise_sd"] == {"steps": [0], "values": [1.0]}
    assert {path.name for path in runs.iterdir()} >= {"1", "2", "3"}


def test_sqlite(runs, tmp_path, monkeypatch):
    assert_records_runs(f"sqlite:///{tmp_path}/runs.db", runs, monkeypatch)


def test_a_locked_database_is_named(runs, tmp_path):
    path = tmp_path / "runs.db"
    options = {"--file_storage": str(runs), "--sql": f"sqlite:///{path}?timeout=0"}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            SacredError, match=r"^--sql sqlite:///.*runs\.db.*: database is locked\.$"
        ):
            ex.run(config_updates=TINY, options=options)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def folder():
    """A folder of a user who may run a server; root may not."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            shutil.chown(name, "nobody")
        yield Path(name)


def as_user(*command):
    return subprocess.run(
        command, user="nobody" if os.geteuid() == 0 else None, check=True, capture_output=True
    )


@pytest.fixture
def postgres(folder):
    """The URL of a PostgreSQL server, which ends with the test."""
    pytest.importorskip("psycopg")
    found = [*Path("/usr/lib/postgresql").glob("*/bin"), *filter(None, [shutil.which("initdb")])]
    if not found:
        pytest.skip("PostgreSQL is not installed")
    programs, data, port = (
        (found[0] if found[0].is_dir() else Path(found[0]).parent),
        str(folder / "data"),
        free_port(),
    )
    as_user(programs / "initdb", "-D", data, "-U", "tester", "--auth=trust")
    control = programs / "pg_ctl", "-D", data
    as_user(
        *control, "-w", "-l", f"{folder}/log", "-o", f"-p {port} -h 127.0.0.1 -k {folder}", "start"
    )
    yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    as_user(*control, "-m", "immediate", "stop")


@pytest.mark.slow
def test_postgres(postgres, runs, monkeypatch):
    assert_records_runs(postgres, runs, monkeypatch)


@pytest.fixture
def mongo(folder):
    """The address of a MongoDB server, which ends with the test."""
    pymongo = pytest.importorskip("pymongo")
    program = shutil.which("mongod") or pytest.skip("MongoDB is not installed")
    port = free_port()
    with subprocess.Popen(
        [program, "--dbpath", str(folder), "--port", str(port)], stdout=subprocess.DEVNULL
    ) as server:
        yield pymongo.MongoClient("127.0.0.1", port), f"127.0.0.1:{port}:runs"
        server.terminate()


@pytest.mark.slow
def test_mongo(mongo, runs):
    client, address = mongo
    options = {"--file_storage": str(runs), "--loglevel": "ERROR", "--mongo_db": address}
    result = ex.run(config_updates=TINY, options=options).result
    (run,) = client.runs.runs.find()
    assert run["status"] == "COMPLETED" and run["result"]["rmse"] == result["rmse"]
    assert client.runs.metrics.find_one({"name": "noise_sd"})["steps"] == [0, 2, 3]
