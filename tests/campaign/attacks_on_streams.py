"""Attacks on streams: new batches, new points, states and parts."""

import pickle
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.utilities import multiple_assign, parameter_dict

from campaign.attack_subjects import Attack, Attacks, Model, Pair, drawn
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


ATTACKS: Attacks = {
    "batches refused before": Attack(of(), _after_refusal),
    "copied between batches": Attack(of(), _copied),
    "restored from a file": Attack(of(), _restored),
    "kernel replaced between batches": Attack(of(), _kernel_replaced),
    "points that stay": Attack(of(), _same_points),
}
