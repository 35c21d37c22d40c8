"""
Data sets: a directory of local files, an empty cache, and a server on loopback in place of the
public one.

Only tests marked ``data`` read real files, from the directory ``GPFLOW_PEP_DATA``.
"""

import hashlib
import http.server
import os
import threading

import pooch
import pytest

from experiments.datasets import files
from experiments.datasets.files import PublishedFile


@pytest.fixture(autouse=True)
def _needs_published_files(request):
    if request.node.get_closest_marker("data") and not os.environ.get("GPFLOW_PEP_DATA"):
        pytest.skip("needs the published files: set GPFLOW_PEP_DATA to their directory")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty download cache, and no local directory of files."""
    directory = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda project: directory / project)
    monkeypatch.delenv("GPFLOW_PEP_DATA", raising=False)
    return directory / "gpflow_pep"


@pytest.fixture
def local(tmp_path, monkeypatch, cache):
    """A local directory of files."""
    directory = tmp_path / "local"
    directory.mkdir()
    monkeypatch.setenv("GPFLOW_PEP_DATA", str(directory))
    return directory


@pytest.fixture
def publish(local):
    """
    Write ``content`` in the local directory where a published file of this path lies, and describe
    that file.
    """

    def write(path, content):
        file = PublishedFile("someone/numbers", "c0ffee", path, hashlib.sha256(content).hexdigest())
        place = local / file.relative_path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return file

    return write


class Server:
    """Serves files by address on loopback, and notes the requests."""

    def __init__(self):
        self.content, self.asked = {}, []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                body = server.content.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *arguments):
                """Keep quiet."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self.thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch, cache):
    """A server on loopback in place of the public one."""
    running = Server()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(files, "HOST", running.address)
    yield running
    running.stop()
