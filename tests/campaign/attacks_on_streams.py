"""Attacks on streams: new batches, new points, states and parts."""

import pickle
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import gpflow
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


def _far_away(s: RunningStream) -> None:
    """Distances, or squares of Y over the noise variance, overflow."""
    s.model.kernel = gpflow.kernels.Matern52()
    far = [(1e200 * (3.0 + s.X), s.Y)]
    if s.likelihood == "Gaussian":
        far.append((s.X, 1e200 * (3.0 + s.Y)))
    try:
        s.model.update(far[int(s.rng.integers(len(far)))])
    finally:
        s.model.kernel = deepcopy(s.arguments["kernel"])


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


def _other_number(s: RunningStream) -> None:
    s.model.inducing_variable = np.concatenate([s.model.inducing_variable.Z.numpy(), s.X[:1]])


def _in_graph(s: RunningStream) -> None:
    tf.function(lambda: s.model.update(s.third), autograph=False)()


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


def _version(s: RunningStream) -> None:
    arrays = s.model.state.as_dict() | {
        "version": drawn(s, [np.array(2), np.array("1"), np.array([1]), np.array(1.5)])
    }
    StreamState.from_dict(arrays)


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


def _other_parts(s: RunningStream) -> None:
    kernel: Any = drawn(
        s,
        [gpflow.kernels.Cosine(), gpflow.kernels.Matern12() + gpflow.kernels.White(), None, "rbf"],
    )
    s.from_state(s.model.state, kernel=kernel)


def _numbers_of_old(s: RunningStream) -> None:
    """Fewer old points in one of the arrays than in the others."""
    arrays: dict[str, Any] = s.model.state.as_dict()
    name = drawn(s, ["old.Z", "old.linear"])
    arrays[name] = arrays[name][..., :-1, :]
    s.from_state(StreamState.from_dict(arrays))


def _power_of_state(s: RunningStream) -> None:
    arrays: dict[str, Any] = s.model.state.as_dict()
    arrays["alpha"] = np.asarray(drawn(s, [2.0, -0.5, np.nan, [0.5, 0.5]]), dtype=float)
    s.from_state(StreamState.from_dict(arrays))


def _sites_of_state(s: RunningStream) -> None:
    """Sites of another number of rows, in one or both arrays."""
    arrays: dict[str, Any] = s.model.state.as_dict()
    names = ("sites.precision", "sites.linear")
    for name in drawn(s, [names, names[:1], names[1:]]):
        arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])
    s.from_state(StreamState.from_dict(arrays))


ATTACKS: Attacks = {
    "batches refused before": Attack(of(), _after_refusal),
    "copied between batches": Attack(of(), _copied),
    "restored from a file": Attack(of(), _restored),
    "kernel replaced between batches": Attack(of(), _kernel_replaced),
    "points that stay": Attack(of(), _same_points),
    "batch that is no pair": Attack(
        of(),
        _updating(
            None,
            "ab",
            lambda s: s.X,
            lambda s: (s.X,),
            lambda s: (s.X, s.Y, s.Y),
            lambda s: {"X": s.X},
            lambda s: tf.data.Dataset.from_tensors((s.X, s.Y)),
        ),
        "data",
    ),
    "batch of other columns": Attack(
        of(),
        _updating(lambda s: (np.hstack([s.X, s.X]), s.Y), lambda s: (s.X, np.hstack([s.Y, s.Y]))),
        "data.*columns?",
    ),
    "batch of other shapes": Attack(
        of(),
        _updating(
            lambda s: (s.X[:, 0], s.Y[:, 0]), lambda s: (s.X, s.Y[:1]), lambda s: (s.X[:0], s.Y[:0])
        ),
        r"\(X\)|\(Y\)",
    ),
    "batch that is not finite": Attack(
        of(),
        _updating(lambda s: (s.X * np.nan, s.Y), lambda s: (s.X, s.Y + np.inf)),
        r"\(X\)|\(Y\)",
    ),
    "batch that is no numbers": Attack(
        of(),
        _updating(
            lambda s: (s.X.astype(str), s.Y),
            lambda s: (s.X, s.Y + 1j),
            lambda s: (s.X, s.Y.astype("M8[s]")),
        ),
        r"\(X\)|\(Y\)",
    ),
    "batch of a mask": Attack(
        of(), _updating(lambda s: (masked(s.X), s.Y), lambda s: (s.X, masked(s.Y))), r"\(X\)|\(Y\)"
    ),
    "batch of other labels": Attack(
        of(*STREAMS[1:], likelihoods=(*BINARY, "robust-max", "Poisson")),
        _updating(lambda s: (s.X, s.Y + 0.5), lambda s: (s.X, -1.0 - s.Y)),
        r"\(Y\)",
    ),
    "batch out of range": Attack(
        of("StreamingSGPR", "StreamingPEP"),
        _far_away,
        r"\(X\) must have finite covariances|\(Y\) has a value of",
    ),
    "new points": Attack(
        of(),
        _moving(
            inducing_variable=(
                3.0,
                5,
                "kmeans",
                lambda s: s.X[:, 0],
                lambda s: s.X[:0],
                lambda s: s.X * np.nan,
                np.ones((4, 3)),
                lambda s: masked(s.X),
                lambda s: object(),
                lambda s: Multiscale(s.X, np.ones_like(s.X)),
            )
        ),
        "inducing_variable",
    ),
    "fraction of points": Attack(
        of(), _moving(fraction_to_move=(2, -0.1, "a", np.nan, None, [0.5])), "fraction_to_move"
    ),
    "points and a fraction": Attack(
        of(),
        lambda s: s.model.update(s.third, s.X[:2], fraction_to_move=0.5),
        "inducing_variable and fraction_to_move",
    ),
    "another number of points": Attack(of(), _other_number, "inducing_variable.*update"),
    "update in a graph": Attack(of(), _in_graph, "update.*tf.function"),
    "damaged array of a state": Attack(of(), _damaged, "state"),
    "state of another version": Attack(of(), _version, "version"),
    "damaged file of a state": Attack(of(), _damaged_file, r"state\.npz"),
    "state for other parts": Attack(of(), _other_parts, "state|kernel"),
    "state of fewer old points": Attack(of(), _numbers_of_old, "state"),
    "power of a state": Attack(of(*STREAMS[:2]), _power_of_state, "state.*alpha"),
    "sites of a state": Attack(of("StreamingPEP"), _sites_of_state, r"state.*sites\."),
    "state that is none": Attack(
        of(), lambda s: s.from_state(drawn(s, [None, "state.npz", {}])), "state"
    ),
}
