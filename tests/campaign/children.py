"""
Processes that may be killed, and what they do: trainings with a checkpoint, streams that are saved,
downloads.

All are forked from one process that has imported TensorFlow and must not have run any operation of
it.
"""

import hashlib
import http.server
import os
import pickle
import signal
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pooch
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import SquaredExponential

from experiments.datasets import files
from experiments.datasets.files import PublishedFile, local_copy
from gpflow_pep import APEP, PEPR, TSVGP, PEPClassifier, StreamingPEP, StreamingSGPR, StreamState
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import fit

SECONDS = 120.0  # that a child may take
BATCH = 10  # rows of one batch of a stream
NUM_BATCHES = 6


class Ended(NamedTuple):
    """The outcome of a child process."""

    code: int
    """Its exit code, or minus the signal that ended it."""
    value: Any
    """The return value of its task, if any."""
    said: str
    """The end of what it wrote to standard error."""


class Child:
    """
    A process that performs a task. It does not share memory, so it tells by its return value what
    it found.
    """

    def __init__(self, task: Callable[..., Any], *arguments: Any):
        self._answer, self._said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._began = time.monotonic()
        self.number = os.fork()
        if self.number == 0:
            self._perform(task, *arguments)

    def _perform(self, task: Callable[..., Any], *arguments: Any) -> None:
        code = 1
        try:
            for place in (1, 2):
                os.dup2(self._said.fileno(), place)
            pickle.dump(task(*arguments), self._answer)
            self._answer.flush()
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def kill(self) -> None:
        """Send SIGKILL, whatever it is doing."""
        os.kill(self.number, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Return whether the process has ended, without waiting."""
        return os.waitid(os.P_PID, self.number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ended(self, seconds: float = SECONDS) -> Ended:
        """
        Wait for the end. A child that takes longer is killed: its exit code is that of SIGALRM.
        """
        hung = False
        while not self.has_ended():
            if time.monotonic() - self._began > seconds:
                self.kill()
                hung = True
            time.sleep(0.002)
        code = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        for file in (self._answer, self._said):
            file.seek(0)
        value = pickle.load(self._answer) if code == 0 else None
        said = self._said.read().decode(errors="replace")[-300:]
        self._answer.close()
        self._said.close()
        return Ended(-signal.SIGALRM if hung else code, value, said)


def apart(task: Callable[..., Any], *arguments: Any) -> Any:
    """
    What a task returns in a process of its own.

    :raises RuntimeError: where it ended otherwise.
    """
    ended = Child(task, *arguments).ended()
    if ended.code != 0:
        raise RuntimeError(f"A child ended with {ended.code}: {ended.said}")
    return ended.value


# --- trainings ------------------------------------------------------------------------------------

_rng = np.random.default_rng(3)
X = _rng.uniform(-2.0, 2.0, (40, 1))
Y = np.sin(2.5 * X) + 0.2 * _rng.normal(size=X.shape)
LABELS = np.where(Y > 0.0, 1.0, 0.0)
Z = np.linspace(-1.8, 1.8, 5)[:, None]


def kernel() -> gpflow.kernels.Kernel:
    return SquaredExponential(1.0, lengthscales=0.9)


def regression(alpha: float = 0.5) -> PEPR:
    return PEPR((X, Y), kernel(), Z.copy(), noise_variance=0.3, alpha=alpha)


def classifier(**options: Any) -> PEPClassifier:
    model = PEPClassifier((X, LABELS), kernel(), Probit(), Z.copy(), **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


class Training(NamedTuple):
    """A training to disturb."""

    make: Callable[[], Any]
    rows: tuple[AnyNDArray, AnyNDArray] | None
    options: dict[str, Any]
    exact: bool
    """
    True if a resumed run ends bit for bit like an undisturbed run; False: with the same objective.
    """


_IN_MINIBATCHES = {"max_iterations": 120, "interval": 5, "batch_size": 7, "learning_rate": 0.05}
TRAININGS = {
    "PEPR, L-BFGS": Training(regression, None, {"max_iterations": 100}, False),
    "PEPClassifier, L-BFGS": Training(classifier, None, {"max_iterations": 100}, False),
    "PEPR, Adam": Training(regression, None, {"optimizer": "adam", "max_iterations": 40}, True),
    "PEPClassifier, Adam": Training(classifier, None, {"optimizer": "adam", "max_iterations": 15}, True),
    "PEPClassifier, minibatches": Training(
        classifier, None, {"optimizer": "adam", "max_iterations": 18, "batch_size": 16}, True
    ),
    "TSVGP": Training(
        lambda: TSVGP(kernel(), gpflow.likelihoods.Gaussian(0.3), Z.copy(), num_data=len(X)),
        (X, Y),
        _IN_MINIBATCHES,
        True,
    ),
    "APEP": Training(
        lambda: APEP(kernel(), Probit(), Z.copy(), num_data=len(X)), (X, LABELS), _IN_MINIBATCHES, True
    ),
}  # fmt: skip


class Trained(NamedTuple):
    """Results of a training run."""

    values: dict[str, AnyNDArray]
    objective: tuple[float, ...]
    status: str
    warned: list[str]
    evaluated: float
    """The objective of the model afterwards, on all rows."""


def train(
    name: str,
    path: Path,
    report: Callable[[int, float], None] | None = None,
) -> Trained:
    """Train a new model, with a checkpoint at every record."""
    training = TRAININGS[name]
    model = training.make()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = fit(
            model,
            training.rows,
            checkpoint=path,
            checkpoint_seconds=0.0,
            callback=report,
            **training.options,
        )
    rows = [] if training.rows is None else [training.rows]
    evaluated = float(model.maximum_log_likelihood_objective(*rows))
    warned = [str(each.message) for each in told if issubclass(each.category, UserWarning)]
    return Trained(values_of(model), result.objective, result.status, warned, evaluated)


def values_of(model: Any) -> dict[str, AnyNDArray]:
    """All that a training changes, by name."""
    values = {name: np.array(value) for name, value in gpflow.utilities.read_values(model).items()}
    sites = getattr(model, "sites", None)
    if sites is not None:
        values |= {name: getattr(sites, name).numpy() for name in ("precision", "linear")}
    return values


class Undisturbed(NamedTuple):
    """A training that nothing happened to, and its checkpoints."""

    trained: Trained
    midway: bytes
    last: bytes


@cache
def undisturbed(name: str) -> Undisturbed:
    """Return the training of this name, done in a child once."""
    found: Undisturbed = apart(_undisturbed, name)
    return found


def _undisturbed(name: str) -> Undisturbed:
    with tempfile.TemporaryDirectory() as folder:
        path, midway = Path(folder) / "c.npz", [b""]

        def report(iteration: int, objective: float) -> None:
            if path.exists() and (
                not midway[0] or iteration <= TRAININGS[name].options["max_iterations"] // 3
            ):
                midway[0] = path.read_bytes()

        trained = train(name, path, report)
        return Undisturbed(trained, midway[0], path.read_bytes())


# --- streams --------------------------------------------------------------------------------------

_rng = np.random.default_rng(8)
X_STREAM = _rng.uniform(0.0, 5.0, (BATCH * NUM_BATCHES, 2))
_values = np.sin(2.0 * X_STREAM[:, :1]) + 0.1 * _rng.normal(size=(len(X_STREAM), 1))


def _batch(name: str, number: int) -> tuple[AnyNDArray, AnyNDArray]:
    rows = slice(BATCH * number, BATCH * (number + 1))
    return X_STREAM[rows], _values[rows] if name == "StreamingSGPR" else (_values[rows] > 0.0) * 1.0


def stream_parts(name: str) -> list[Any]:
    """Parts of a model that its state does not contain."""
    ours = SquaredExponential(1.1, [0.9, 1.2])
    return [ours] if name == "StreamingSGPR" else [ours, Probit()]


def new_stream(name: str, **options: Any) -> Any:
    return STREAMS[name](
        _batch(name, 0), *stream_parts(name), X_STREAM[:4].copy(), alpha=0.5, **options
    )


STREAMS: dict[str, Any] = {"StreamingSGPR": StreamingSGPR, "StreamingPEP": StreamingPEP}


def restored(name: str, path: Path) -> Any:
    """The stream that was saved there."""
    return STREAMS[name].from_state(StreamState.load(path), *stream_parts(name))


def _go_on(model: Any, name: str, number: int) -> None:
    """The next batch, and a step of gradient descent."""
    model.update(_batch(name, number), fraction_to_move=0.5)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    variables = model.trainable_variables
    for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(1e-3 * slope)


def follow(
    name: str,
    path: Path,
    begin: Callable[[int], None] | None = None,
    failed: list[str] | None = None,
) -> dict[str, AnyNDArray]:
    """
    Follow a stream, from where it was saved, to its end, and save it after each batch.

    :param begin: called before each save with the batch's number.
    :param failed: takes errors of saving, which are raised where it is None.
    """
    if path.exists():
        model = restored(name, path)
        held = model.data[0].numpy()
        number = next(n for n in range(NUM_BATCHES) if np.array_equal(_batch(name, n)[0], held))
    else:
        model, number = new_stream(name), 0
    for following in range(number + 1, NUM_BATCHES):
        _go_on(model, name, following)
        if begin is not None:
            begin(following)
        try:
            model.state.save(path)
        except OSError as error:
            if failed is None:
                raise
            failed.append(str(error))
    return dict(model.state.as_dict())


@cache
def undisturbed_stream(name: str) -> tuple[dict[str, AnyNDArray], bytes]:
    """The final state of a stream, and its file half way."""
    found: tuple[dict[str, AnyNDArray], bytes] = apart(_undisturbed_stream, name)
    return found


def _undisturbed_stream(name: str) -> tuple[dict[str, AnyNDArray], bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path, midway = Path(folder) / "s.npz", [b""]

        def begin(number: int) -> None:
            if number == NUM_BATCHES // 2:
                midway[0] = path.read_bytes()

        return follow(name, path, begin), midway[0]


# --- downloads ------------------------------------------------------------------------------------

CONTENT = "".join(f"{number},{number**2}\n" for number in range(20000)).encode()
PUBLISHED = PublishedFile(
    "someone/numbers", "c0ffee", "some/numbers.csv", hashlib.sha256(CONTENT).hexdigest()
)


class Half(http.server.BaseHTTPRequestHandler):
    """Serves the file in two halves, with a pause."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        half = len(CONTENT) // 2
        self.wfile.write(CONTENT[:half])
        self.wfile.flush()
        time.sleep(0.1)
        self.wfile.write(CONTENT[half:])

    def log_message(self, *arguments: Any) -> None:
        """Keep quiet."""


@contextmanager
def served() -> Iterator[str]:
    """Address of a process that serves the published file."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            server = http.server.ThreadingHTTPServer(
                ("127.0.0.1", port), Half, bind_and_activate=False
            )
            server.socket = listening
            server.serve_forever()

        child = Child(serve)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.kill()
            child.ended()


def download(folder: Path, address: str) -> bytes:
    """
    The published file, by way of the cache in a folder; GPFLOW_PEP_DATA is the folder `local` in
    it.
    """
    os.environ |= {"NO_PROXY": "127.0.0.1", files.DIRECTORY_VARIABLE: str(folder / "local")}
    files.HOST = address
    pooch.os_cache = lambda project: folder / "cache" / project
    return local_copy(PUBLISHED).read_bytes()


def cached_path(folder: Path) -> Path:
    """The path at which :func:`download` stores the file."""
    return folder / "cache" / "gpflow_pep" / PUBLISHED.relative_path
