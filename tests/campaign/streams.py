"""
Check that random streams of three batches end near a fit on all rows, and that nothing raises an
error.

A stream is an estimator or a streaming model with weak priors, one or two inputs, a function and
noise, and an order of rows: in the order of time, one cluster after another, with repeated rows,
with a scale of y that changes, or with a quiet first batch. All follow from the seed. The end is
judged at the inputs of all rows, by the root mean square error of f or the share of wrong labels,
against the estimator's fit on all rows with as many points (all rows are points by default).

The tolerance is twice the error of that fit, and a tenth of the standard deviation of f. An online
posterior of as many points as rows equals the batch posterior (on two streams the errors agreed to
5 %), but 15 points for each input that follow the batches forget some of what all rows tell at
once. Labels near the boundary are ambiguous: with n distinct rows the share of wrong ones may be
larger by 1/√n.

    python -m campaign.streams [--cases 500] [--minutes 60] [--seed 0]
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.running import Campaign, Outcome, judged
from gpflow_pep import StreamingPEP, StreamingSGPR, StreamingSVGP, fit
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training.priors import give_weak_priors

ORDERS = ("time", "clusters", "repeated rows", "changed scale", "quiet first batch")
LABELED = ("classifier", "StreamingPEP", "StreamingSVGP")
# Few: compiling takes most of the time of a stream, 3 to 20 s.
_BATCHES = 3
_ROWS = 32  # of a batch
_POINTS = 15  # for each input, of a stream whose points move
_REPEATS = 4  # of a row

Predict = Callable[[AnyNDArray], AnyNDArray]
StreamingModel = StreamingSGPR | StreamingPEP | StreamingSVGP


class Stream(NamedTuple):
    """One stream of the campaign; `F` are the values of the function without noise."""

    subject: str
    order: str
    X: AnyNDArray  # [N, D]
    F: AnyNDArray  # [N]
    y: AnyNDArray  # [N]

    @property
    def batches(self) -> list[tuple[AnyNDArray, AnyNDArray]]:
        """The batches (X, y)."""
        parts = np.split(np.arange(len(self.y)), _BATCHES)
        return [(self.X[part], self.y[part]) for part in parts]

    @property
    def num_points(self) -> int:
        """Return the number of points that move with the batches."""
        return _POINTS * self.X.shape[1]

    @property
    def has_labels(self) -> bool:
        """Return whether y are labels, True where f is positive."""
        return self.subject in LABELED


def _regressed(stream: Stream, n_inducing: int | str | None = None) -> Predict:
    estimator = SparseGPRegressor(n_inducing=n_inducing, random_state=0)
    for X, y in stream.batches:
        estimator.partial_fit(X, y)
    return estimator.predict


def _classified(stream: Stream) -> Predict:
    estimator = SparseGPClassifier(random_state=0)
    for X, y in stream.batches:
        estimator.partial_fit(X, y, classes=[False, True])
    return estimator.predict


def _kernel(stream: Stream) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.ones(stream.X.shape[1]))


def _points(stream: Stream) -> AnyNDArray:
    """Return initial inducing points, distinct rows of the first batch."""
    return np.unique(stream.X[:_ROWS], axis=0)[: stream.num_points]


def _columns(stream: Stream) -> list[tuple[AnyNDArray, AnyNDArray]]:
    return [(X, y[:, None].astype(float)) for X, y in stream.batches]


def _followed(model: StreamingModel, stream: Stream) -> Predict:
    """
    Train on one batch after the other, with weak priors in the units of all rows, the kernel once y
    varies: nearly equal y alone would drive lengthscales to infinity.
    """
    batches = _columns(stream)
    give_weak_priors(model, stream.X, stream.y[:, None].astype(float))
    for number, batch in enumerate(batches, start=1):
        if number > 1:
            model.update(batch, fraction_to_move=0.5)
        is_varied = np.std(stream.y[: number * _ROWS]) > 0.1 * np.std(stream.y)
        gpflow.set_trainable(model.kernel, is_varied)
        if isinstance(model, StreamingSVGP):
            fit(model, batch, optimizer="adam", max_iterations=600, train_inducing=False)
        elif is_varied:
            fit(model)
    return lambda X: model.predict_f(X)[0].numpy()[:, 0]


def _classes(model: StreamingModel, stream: Stream) -> Predict:
    predict = _followed(model, stream)
    return lambda X: predict(X) > 0.0


def _sgpr(stream: Stream) -> Predict:
    parts = _columns(stream)[0], _kernel(stream), _points(stream)
    # One noise variance, as of a fit on all rows.
    return _followed(StreamingSGPR(*parts, max_jitter=1e-3, shared_noise=True), stream)


def _pep(stream: Stream) -> Predict:
    parts = _columns(stream)[0], _kernel(stream), Probit(), _points(stream)
    return _classes(StreamingPEP(*parts, alpha=0.5, max_jitter=1e-3), stream)


def _svgp(stream: Stream) -> Predict:
    parts = _kernel(stream), Probit(), _points(stream)
    return _classes(StreamingSVGP(*parts, num_data=_ROWS), stream)


SUBJECTS: dict[str, Callable[[Stream], Predict]] = {
    "regressor": _regressed,
    "classifier": _classified,
    "few points": lambda stream: _regressed(stream, stream.num_points),
    "n_inducing=auto": lambda stream: _regressed(stream, "auto"),
    "StreamingSGPR": _sgpr,
    "StreamingPEP": _pep,
    "StreamingSVGP": _svgp,
}


def stream_of(seed: int) -> Stream:
    """Return the stream of a seed; subjects take turns."""
    rng = np.random.default_rng(seed)
    subject = list(SUBJECTS)[seed % len(SUBJECTS)]
    order = str(rng.choice(ORDERS))
    N = _BATCHES * _ROWS
    D = int(rng.integers(1, 3))
    if order == "clusters":
        centers = rng.uniform(0.0, 10.0, (_BATCHES, D))
        X = np.repeat(centers, _ROWS, axis=0) + 10.0 ** rng.uniform(-3.0, 0.0) * rng.normal(
            size=(N, D)
        )
    else:
        X = rng.uniform(0.0, 10.0, (N, D))
        X = X[np.argsort(X[:, 0])]
    if order == "repeated rows":
        X = np.repeat(X[::_REPEATS], _REPEATS, axis=0)[rng.permutation(N)]
    F = np.sin(X @ rng.uniform(0.5, 1.0, D)) + 0.3 * X[:, 0] * rng.normal()
    scale = np.ones(N)
    if order == "changed scale":
        scale = np.repeat(10.0 ** rng.uniform(-1.0, 1.0, _BATCHES), _ROWS)
    if order == "quiet first batch":
        scale[:_ROWS] = rng.choice([0.0, 1e-3, 0.1])
    F = scale * (F - F.mean())
    y = F + 0.1 * scale * rng.normal(size=N)
    units = 10.0 ** rng.uniform(-3.0, 3.0)
    stream = Stream(subject, order, X, F, y)
    if stream.has_labels:
        return stream._replace(y=y > 0.0)
    if subject == "StreamingSGPR":  # a model takes y as it is
        return stream
    return stream._replace(F=units * F, y=units * y)


def run(stream: Stream) -> Outcome:
    """Feed the batches one by one, and judge the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            predict = SUBJECTS[stream.subject](stream)
            found = predict(stream.X)
        except (ValueError, ArithmeticError, tf.errors.OpError) as error:
            return Outcome("raised", np.nan, str(error)[:300])
        at_once = fitted(stream)(stream.X)
    return judge(stream, found, at_once)


def fitted(stream: Stream) -> Predict:
    """Fit the estimator to all rows at once."""
    if not stream.has_labels:
        few = stream.subject in ("few points", "StreamingSGPR")
        estimator = SparseGPRegressor(n_inducing=stream.num_points if few else None, random_state=0)
        return estimator.fit(stream.X, stream.y).predict
    if stream.y.all() or not stream.y.any():
        return lambda X: np.full(len(X), stream.y[0])
    few = stream.subject != "classifier"
    estimator = SparseGPClassifier(n_inducing=stream.num_points if few else 100, random_state=0)
    return estimator.fit(stream.X, stream.y).predict


def judge(stream: Stream, found: AnyNDArray, at_once: AnyNDArray) -> Outcome:
    """Compare predictions of a stream and of a fit on all rows with the function."""
    if stream.has_labels:
        truth = stream.F > 0.0
        ambiguous = 1.0 / np.sqrt(len(np.unique(stream.X, axis=0)))
        return judged({"labels": np.mean(found != truth) / (np.mean(at_once != truth) + ambiguous)})
    error = np.sqrt(np.mean(np.square(found - stream.F)))
    least = np.sqrt(np.mean(np.square(at_once - stream.F)))
    return judged({"mean": error / (2.0 * least + 0.1 * np.std(stream.F))})


CAMPAIGN = Campaign(run, words=lambda stream: (stream.subject, stream.order), verdicts=("right",))

if __name__ == "__main__":
    CAMPAIGN.main(__doc__, stream_of, 500)
