"""The ingredients of learners from a stream: ``gp``, the initial model, and ``training``, after every batch."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Mapping
from functools import partial
from typing import Any

import gpflow
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPR, SGPR, SVGP, GPModel

from experiments.ingredients.initialization import cluster_centers
from experiments.ingredients.kernel import kernel_of
from experiments.ingredients.stream import Batches
from experiments.learners.learner import STEPS_OF_ADAM, Learner, Train
from experiments.learners.online import Online
from experiments.learners.stochastic import Stochastic
from experiments.learners.vanilla import VanillaStreamingSGPR
from experiments.learners.window import SlidingWindow
from experiments.recording.experiment import ingredient_of
from gpflow_pep import StreamingPEP, StreamingSGPR, StreamingSVGP
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import check_optimizer, fit, uninterrupted

learner_gp = ingredient_of("gp")
stream_training = ingredient_of("training")

MODELS = ("STREAM", "STREAM-SVGP", "VANILLA", "BATCH", "GPR", "SGPR", "SVGP")
OF_LABELS = ("STREAM", "STREAM-SVGP", "BATCH")


@learner_gp.config
def _model_config() -> None:
    # STREAM, STREAM-SVGP, VANILLA (VB), BATCH (all rows), GPR or SGPR (last rows), SVGP
    model = "STREAM"

    # the power of STREAM and BATCH, from 0 (variational) to 1
    alpha = 0.0

    # number of inducing points, initially k-means centers of the first batch (SVGP: of the whole stream)
    M = 100

    # rows that GPR and SGPR keep
    window = 3000

    # the share of STREAM's inducing points that may move to inputs of a new batch, before training
    fraction_to_move = 0.2

    # train inducing points
    train_inducing = True

    # initial noise variance
    noise_variance = 0.1

    # gpflow_pep's models: largest jitter of Kuu if it cannot be factorized; None: raise an error
    max_jitter = 1e-3


_stationary_kernel = kernel_of(learner_gp)


@stream_training.config
def _training_config() -> None:
    # lbfgs or adam; SVGP and STREAM-SVGP always use adam
    optimizer = "lbfgs"

    # iterations of L-BFGS on the first batch, at most (Adam: five times as many steps)
    first_maxiter = 100

    # iterations of L-BFGS after each later batch, at most (Adam: five times as many steps)
    maxiter = 20

    # Adam's learning rate
    learning_rate = 0.01


def learner_title(config: Mapping[str, Any]) -> str:
    """Return the learner's name in tables and figures for a ``gp`` configuration."""
    power = "VFE" if config["alpha"] == 0.0 else f"PEP α={config['alpha']:g}"
    names = {
        "STREAM": f"streaming {power}",
        "STREAM-SVGP": "streaming SVGP",
        "VANILLA": "vanilla streaming VB",
        "BATCH": f"all at once, {power}",
        "GPR": f"GPR, last {config['window']}",
        "SGPR": f"SGPR, last {config['window']}",
        "SVGP": "SVGP, stochastic",
    }
    return names[config["model"]]


@stream_training.capture
def begin(learner: Learner, first_maxiter: int) -> None:
    """Train on the first batch."""
    learner.begin(first_maxiter)


@stream_training.capture
def _training(optimizer: str, maxiter: int, learning_rate: float) -> tuple[Train, int, float]:
    """Return the training function of models that hold data, iterations after the first batch, and Adam's rate."""
    check_optimizer(optimizer)

    def train(model: GPModel, iterations: int, data: RegressionData | None = None) -> object:
        chosen = optimizer if data is None else "adam"
        steps = STEPS_OF_ADAM * iterations if chosen == "adam" else iterations
        return uninterrupted(
            fit(model, data, optimizer=chosen, max_iterations=steps, learning_rate=learning_rate)
        )

    return train, maxiter, learning_rate


@learner_gp.capture
def build_learner(
    batches: Batches,
    labels: bool,
    model: str,
    alpha: float,
    M: int,
    window: int,
    fraction_to_move: float,
    train_inducing: bool,
    noise_variance: float,
    max_jitter: float | None,
    _seed: int,
) -> Learner:
    """
    Build the untrained learner of the configuration with the first batch (BATCH: all rows).

    :param labels: True if targets are labels 0 and 1.
    :raises ValueError: if an entry of the configuration is invalid.
    """
    accepted = OF_LABELS if labels else MODELS
    if model not in accepted:
        raise ValueError(f"model is {model!r}; accepted are {', '.join(accepted)}.")
    train, iterations, learning_rate = _training()
    X, Y = batches.dataset.X_train, batches.dataset.Y_train
    if model != "BATCH":
        X, Y = X[batches.first], Y[batches.first]
    covariance = _stationary_kernel(X)
    Z = InducingPoints(cluster_centers(batches.dataset.X_train if model == "SVGP" else X, M, _seed))
    gpflow.set_trainable(Z, train_inducing)
    online = partial(Online, fraction_to_move=fraction_to_move)
    noise = Probit() if labels else gpflow.likelihoods.Gaussian(noise_variance)
    if model == "STREAM-SVGP":
        stochastic = StreamingSVGP(covariance, noise, Z, num_data=len(X))
        return online(stochastic, train, iterations, (X, Y))
    if labels:
        pep = StreamingPEP((X, Y), covariance, noise, Z, alpha=alpha, max_jitter=max_jitter)
        return online(pep, train, iterations)
    if model in ("STREAM", "BATCH", "VANILLA"):
        stream: Any = partial(StreamingSGPR, alpha=alpha)
        if model == "VANILLA":
            stream = VanillaStreamingSGPR
        sgpr = stream((X, Y), covariance, Z, noise_variance=noise_variance, max_jitter=max_jitter)
        return online(sgpr, train, iterations)
    if model == "SVGP":
        svgp = partial(SVGP, covariance, noise, Z)
        return Stochastic(svgp, X, Y, iterations=iterations, learning_rate=learning_rate)
    windowed: Any = GPR
    if model == "SGPR":
        windowed = partial(SGPR, inducing_variable=Z)
    windowed = partial(windowed, kernel=covariance, noise_variance=noise_variance)
    return SlidingWindow(windowed, train, X, Y, iterations=iterations, window=window)
