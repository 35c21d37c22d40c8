"""Attacks on streams: new batches, new points, states and parts."""

import pickle
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, Multiscale
from gpflow.utilities import multiple_assign, parameter_dict

from campaign.attack_subjects import BINARY, Attack, Attacks, Model, Pair, drawn, masked
from gpflow_pep import StreamState

STREAMS = ("StreamingSGPR", "StreamingPEP", "StreamingSVGP")


class RunningStream(Model):
    """A stream after its second batch, and a third batch."""

    def __init__(
        self,
        rng: np.random.Generator,
        kinds: tuple[str, ...] = STREAMS,
        likelihoods: tuple[str, ...] = (),
    ):
        super().__init__(rng, kinds, likelihoods)
        self.first, self.second, self.third = (
            (self.X[part::3], self.Y[part::3]) for part in range(3)
        )
        if self.kind == "StreamingSVGP":
            self.arguments["num_data"] = None  # each batch is a whole one
        else:
            self.arguments["data"] = self.first
        self.model = self.started()

    def started(self) -> Any:
        """Construct the stream anew, and give it the second batch."""
        model = self.make()
        if self.kind == "StreamingSVGP":
            model.update(self.first)
        model.update(self.second)
        return model

    @property
    def batch(self) -> tuple[Any, ...]:
        """A batch for the model that takes its data from outside."""
        return (tuple(map(tf.constant, self.third)),) if self.kind == "StreamingSVGP" else ()

    def from_state(self, state: Any, **parts: Any) -> Any:
        """Construct a stream from a state and parts of new values."""
        given = deepcopy(self.arguments | parts)
        names = ["kernel"] if self.kind == "StreamingSGPR" else ["kernel", "likelihood"]
        options = {name: given[name] for name in ("tol",) if name in given}
        return type(self.model).from_state(state, *(given[name] for name in names), **options)


def of(*kinds: str, likelihoods: tuple[str, ...] = ()) -> Callable[..., RunningStream]:
    """Return a function that draws a stream of one of these kinds and likelihoods."""
    return lambda rng: RunningStream(rng, kinds or STREAMS, likelihoods)


def _updating(*batches: Any) -> Callable[[RunningStream], None]:
    """Update with one of these batches."""

    def act(s: RunningStream) -> None:
        s.model.update(drawn(s, batches))

    return act


def _moving(**options: Any) -> Callable[[RunningStream], None]:
    def act(s: RunningStream) -> None:
        name = drawn(s, list(options))
        s.model.update(s.third, **{name: drawn(s, options[name])})

    return act


def _after_refusal(s: RunningStream) -> Pair:
    """A refused batch leaves no trace in what comes later."""
    wrong = [(s.X * np.nan, s.Y), (s.X, s.Y[:1]), (np.hstack([s.X, s.X]), s.Y), (s.X[:0], s.Y[:0])]
    for batch in wrong:
        try:
            s.model.update(batch)
        except ValueError:
            continue
        raise AssertionError("the batch was accepted")
    s.model.update(s.third)
    other = s.started()
    other.update(s.third)
    return s.numbers(), s.numbers(other)


def _copied(s: RunningStream) -> Pair:
    """A copied or pickled stream continues as the stream does, which stays unchanged."""
    before = s.numbers()
    copied = drawn(
        s, [lambda _: deepcopy, lambda _: lambda model: pickle.loads(pickle.dumps(model))]
    )(s.model)
    copied.update(s.third)
    unnoticed, found = s.numbers(), s.numbers(copied)
    s.model.update(s.third)
    expected = s.numbers()
    return {**found, "unnoticed": unnoticed["mean"]}, {**expected, "unnoticed": before["mean"]}


def _restored(s: RunningStream) -> Pair:
    with tempfile.TemporaryDirectory() as folder:
        s.model.state.save(Path(folder) / "state.npz")
        other = s.from_state(StreamState.load(Path(folder) / "state.npz"))
    other.update(s.third)
    s.model.update(s.third)
    return s.numbers(other), s.numbers()


def _kernel_replaced(s: RunningStream) -> Pair:
    """
    A new kernel acts as its values assigned to the old one: the old posterior, a factor on the old
    points, stays.
    """
    kernel = deepcopy(s.arguments["kernel"])
    for parameter in kernel.trainable_parameters:
        parameter.assign(parameter * s.rng.uniform(0.5, 2.0))
    s.model.kernel = kernel
    other = s.started()
    multiple_assign(other.kernel, parameter_dict(kernel))
    return s.numbers(), s.numbers(other)


def _same_points(s: RunningStream) -> Pair:
    """New points that are the old points, in any form, are an update without points."""
    Z = s.model.inducing_variable.Z.numpy()
    s.model.update(
        s.third,
        drawn(
            s,
            [
                lambda _: Z,
                lambda _: Z.tolist(),
                lambda _: tf.constant(Z),
                lambda _: InducingPoints(Z),
            ],
        ),
    )
    other = s.started()
    other.update(s.third)
    return s.numbers(), s.numbers(other)


def _damaged(s: RunningStream) -> None:
    """Load a state with an array that is missing, of another shape, or another text."""
    arrays = s.model.state.as_dict()
    name = drawn(s, sorted(arrays.keys() - {"version"}))
    change = drawn(s, ["missing", "shape", "text"])
    if change == "missing":
        del arrays[name]
    elif change == "shape":
        arrays[name] = np.zeros([7, *np.shape(arrays[name]), 3])
    else:
        arrays[name] = np.array("{" * 50)
    s.from_state(StreamState.from_dict(arrays))


def _damaged_file(s: RunningStream) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        s.model.state.save(path)
        content = bytearray(path.read_bytes())
        if s.rng.uniform() < 0.5:
            content = content[: int(s.rng.integers(len(content)))]
        else:
            content[int(s.rng.integers(len(content) // 2))] ^= 255
        path.write_bytes(bytes(content))
        restored = StreamState.load(path)
        if all(
            np.array_equal(restored.arrays[name], value)
            for name, value in s.model.state.arrays.items()
        ):
            raise ValueError("state.npz: a byte without meaning was changed")


ATTACKS: Attacks = {
    "batches refused before": Attack(of(), _after_refusal),
    "copied between batches": Attack(of(), _copied),
    "restored from a file": Attack(of(), _restored),
    "kernel replaced between batches": Attack(of(), _kernel_replaced),
    "points that stay": Attack(of(), _same_points),
    "batch": Attack(
        of(),
        _updating(
            None,
            lambda s: (s.X, s.Y, s.Y),
            lambda s: tf.data.Dataset.from_tensors((s.X, s.Y)),
            lambda s: (np.hstack([s.X, s.X]), s.Y),
            lambda s: (s.X, np.hstack([s.Y, s.Y])),
            lambda s: (s.X, s.Y[:1]),
            lambda s: (s.X * np.nan, s.Y),
            lambda s: (s.X, s.Y.astype("M8[s]")),
            lambda s: (s.X, masked(s.Y)),
        ),
        "data",
    ),
    "batch of other labels": Attack(
        of(*STREAMS[1:], likelihoods=(*BINARY, "robust-max", "Poisson")),
        _updating(lambda s: (s.X, s.Y + 0.5), lambda s: (s.X, -1.0 - s.Y)),
        r"\(Y\)",
    ),
    "new points": Attack(
        of(),
        _moving(
            inducing_variable=(
                5,
                "kmeans",
                lambda s: s.X[:0],
                lambda s: s.X * np.nan,
                np.ones((4, 3)),
                lambda s: masked(s.X),
                lambda s: Multiscale(s.X, np.ones_like(s.X)),
            ),
            fraction_to_move=(2, "a", np.nan, None, [0.5]),
        ),
        "inducing_variable|fraction_to_move",
    ),
    "damaged array of a state": Attack(of(), _damaged, "state"),
    "damaged file of a state": Attack(of(), _damaged_file, r"state\.npz"),
}
