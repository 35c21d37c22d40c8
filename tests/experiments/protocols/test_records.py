"""Records that are damaged, deep or huge: one sentence with the path."""

import json
import re
import tracemalloc

import pytest
from refusals import refused

from experiments.protocols.records import read_json, read_toml
from experiments.report.recorded import read_run


def test_values(tmp_path):
    toml = tmp_path / "a.toml"
    record = tmp_path / "a.json"
    toml.write_text('a.b = [1.5, 2.5]\n[c]\nd = "é"\n', encoding="utf-8")
    record.write_text('{"a": {"b": [1.5]}}')
    assert read_toml(toml) == {"a": {"b": [1.5, 2.5]}, "c": {"d": "é"}}
    assert read_json(record) == {"a": {"b": [1.5]}}


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_toml, "a = " + "[" * 100_000, "is nested too deeply to be read as TOML"),
        (read_toml, "a" + ".a" * 20_000 + " = 1", "is not TOML: a key has more than 100 dots"),
        (read_toml, "[a" + " . a" * 20_000 + "]", "is not TOML: a key has more than 100 dots"),
        (
            read_toml,
            "b = {a" + ".a" * 20_000 + " = 1}",
            "is not TOML: a key has more than 100 dots",
        ),
        (read_toml, "a = ", "is not TOML: Invalid value"),
        (read_json, '{"a": ' + "[" * 100_000, "is nested too deeply to be read as JSON"),
        (read_json, "{", "is not JSON"),
        (read_json, "1" * 5000, "is not JSON: .*limit"),
        (read_json, "[1]", "is not a record: it holds a list"),
        (read_json, "\udcff", "is not JSON: .*utf-8"),
        (read_json, None, "is a folder, not a file in JSON"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(tmp_path, read, text, message):
    path = tmp_path / "record"
    if text is None:
        path.mkdir()
    else:
        path.write_bytes(text.encode(errors="surrogateescape"))
    tracemalloc.start()
    with refused(f"^{re.escape(str(path))} {message}"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 2**25  # bytes; a file has at most 80 kB
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "status None; only a completed run"),
        ({"status": "COMPLETED"}, "is not the record of a run: KeyError"),
        ({"status": "COMPLETED", "experiment": []}, "is not the record of a run: TypeError"),
        ({"status": "COMPLETED", "experiment": {"name": "cooking"}}, "KeyError.'cooking'"),
        (
            {"status": "COMPLETED", "experiment": {"name": "regression"}, "result": {}},
            "is not the record of a run: KeyError.'gp'",
        ),
    ],
)
def test_a_run_that_lacks_entries_is_named(tmp_path, entry, message):
    (tmp_path / "run.json").write_text(json.dumps(entry))
    (tmp_path / "config.json").write_text("{}")
    with refused(f"^{re.escape(str(tmp_path))} .*{message}"):
        read_run(tmp_path)
