"""References and values of models that several test modules use."""

import json
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "data"


def recorded(group):
    """The recorded cases of a file, each with its data among its inputs."""
    content = json.loads((DATA / f"{group}.json").read_text())
    return [
        {**case, "inputs": {**content["datasets"][case["dataset"]], **case["inputs"]}}
        for case in content["cases"]
    ]


def linear_mean(P):
    return gpflow.functions.Linear(np.linspace(-0.4, 0.6, 2 * P).reshape(2, P), np.full(P, 0.3))


def loss_and_gradient(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return loss, tape.gradient(loss, model.trainable_variables)
