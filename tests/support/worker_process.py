"""A worker process: run the named tasks in turn and print the results as JSON."""

import copy
import functools
import json
import os
import signal
import sys
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from model_values import as_numbers, compiled_step
from worker_models import (
    MINIBATCH_MODELS,
    MINIBATCH_OPTIONS,
    MODELS,
    data_of,
    minibatch_model,
    mixed_model,
    model_of,
    numbers_of,
    rows_of,
)

from gpflow_pep import PEPR, PEPClassifier, StreamingSGPR, fit

INDEX = int(sys.argv[1])
COUNT = int(sys.argv[2])
FOLDER = Path(sys.argv[3])
SHARD = rows_of(INDEX, COUNT)
X, Y = data_of("PEPR")
Z = X[:6]
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()


def a_model(name):
    """
    Objective, gradient and predictions of a model, of this worker's rows; and training by Adam.
    """
    with STRATEGY.scope():
        model = model_of(name, SHARD)

    loss, gradient = compiled_step(model)()
    with STRATEGY.scope():
        copied = copy.deepcopy(model).training_loss()
        values = [*model.predict_f(X[:3] + 0.1), *numbers_of(model)]
        trained = fit(model, optimizer="adam", max_iterations=3, held_out=data_of(name))
        own = model.loo_log_predictive_density()
    return {
        "loss": loss,
        "loss of a copy": copied,
        "gradient": gradient,
        "values": values,
        "trained": trained.objective,
        "nlpd": trained.held_out["nlpd"],
        "leave-one-out": own,
    }


def mixed_precision():
    """Loss and gradient of a model that computes some of its chunks in single precision."""
    with STRATEGY.scope():
        model = mixed_model(SHARD)
    return compiled_step(model)()


def minibatch_models():
    """Models without data, trained on all of this worker's rows in each step."""
    found = {}
    for name in MINIBATCH_MODELS:
        for optimizer, options in MINIBATCH_OPTIONS.items():
            size = {"batch_size": len(SHARD)} if options["optimizer"] == "adam" else {}
            with STRATEGY.scope():
                model = minibatch_model(name)
                result = fit(
                    model, (X[SHARD], Y[SHARD]), max_iterations=3, interval=1, **options, **size
                )
            found[f"{name} {optimizer}"] = result.objective, (model.q_mu, model.q_sqrt)
    return found


def training(stop_after=None):
    """`fit` by L-BFGS with a checkpoint; a worker with the stop option kills itself."""

    def report(iteration, objective):
        if iteration == stop_after and INDEX == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with STRATEGY.scope():
        model = model_of("PEP", SHARD)
        options = {
            "max_iterations": 200,
            "checkpoint": FOLDER / "training.npz",
            "checkpoint_seconds": 0.0,
        }
        try:
            result = fit(model, callback=report, **options)
        except RuntimeError as error:
            return {"error": str(error)}
    return {
        "objective": result.objective,
        "parameters": model.variables[:3],
    }


def refused():
    """
    Errors of constructors and `fit` for overlapping shards, different settings and undivided
    models.
    """

    def overlapping():
        rows = slice(0, 25) if INDEX == 0 else slice(20, len(X))
        PEPR((X[rows], Y[rows]), SquaredExponential(), Z)

    def pepr(**options):
        return PEPR((X[SHARD], Y[SHARD]), SquaredExponential(), Z, **options)

    def another_checkpoint():
        for iterations in (2, 4):
            model = model_of("PEPR", SHARD)
            fit(model, max_iterations=iterations, checkpoint=FOLDER / f"{INDEX * iterations}.npz")

    def new_data():
        model_of("PEPR", SHARD).data = X, Y

    messages = {}
    for name, case in {
        "overlapping": overlapping,
        "the_same_dataset": lambda: PEPR(
            tf.data.Dataset.from_tensor_slices((X, Y)).batch(10), SquaredExponential(), Z
        ),
        "another_power": lambda: fit(pepr(alpha=0.1 * INDEX), max_iterations=1),
        "another_optimizer_setting": lambda: fit(pepr(), max_iterations=1, patience=1 + INDEX),
        "a_stream": lambda: StreamingSGPR((X[SHARD], Y[SHARD]), SquaredExponential(), Z),
        "updates_in_batches": lambda: model_of("PEP", SHARD).update_sites(batch_size=5),
        "of_gpflow": lambda: fit(
            gpflow.models.SGPR((X[SHARD], Y[SHARD]), SquaredExponential(), Z), max_iterations=1
        ),
        "another_checkpoint": another_checkpoint,
        "new_data": new_data,
        "labels_of_a_shard": lambda: PEPClassifier(
            (X[SHARD], data_of("PEP")[1][SHARD]), SquaredExponential(), inducing_variable=Z
        ),
    }.items():
        with STRATEGY.scope():
            try:
                case()
            except ValueError as error:
                messages[name] = str(error)
    return messages


def repeated_rows():
    """Duplicate rows within a worker are accepted."""
    with STRATEGY.scope():
        few = np.repeat(X[:5], 4, axis=0), np.repeat(Y[:5], 4, axis=0)
        return int(PEPR(few, SquaredExponential(), Z).num_data)


TASKS = {
    **{name: functools.partial(a_model, name) for name in MODELS},
    "mixed_precision": mixed_precision,
    "minibatch_models": minibatch_models,
    "training": training,
    "killed_training": lambda: training(stop_after=2),
    "refused": refused,
    "repeated_rows": repeated_rows,
}

print(json.dumps({name: TASKS[name]() for name in sys.argv[4:]}, default=as_numbers))
