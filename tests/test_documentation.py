"""The documentation's scripts run: the Python blocks of a page, in their order, are one script."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import gpflow
import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def pages():
    return [path for path in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_page(path, tmp_path, monkeypatch):
    text = path.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec("\n".join(BLOCK.findall(text)), {"__name__": "__main__"})
    for name, script in FILE.findall(text):  # the only one: that of a worker
        (tmp_path / name).write_text(script)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        subprocess.run([sys.executable, name, "0", address], check=True, cwd=tmp_path, timeout=300)
