"""
Compare models on two virtual devices with one device, in a separate process; print results as JSON.
"""

import json
import sys
import tempfile
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Matern52
from model_values import as_numbers

from gpflow_pep import APEP, BTSGPR, PEP, PEPR, TSGPR, PEPClassifier, fit
from gpflow_pep.likelihoods import Probit
from gpflow_pep.runtime.devices import devices_of_strategy
from gpflow_pep.training.objectives import TrainingStep

tf.debugging.set_log_device_placement(True)
(CPU,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(65, 2))  # chunks of 10, the last one shorter: 3 and 4 for the devices
Y = np.sin(X[:, :1]) + 0.3 * _RNG.normal(size=(65, 1))
LABELS = (Y > 0.0).astype(float)
CLASSES = np.digitize(Y, [-0.4, 0.4]).astype(float)
Z = X[:6]


def _options():
    return {"kernel": Matern52(), "inducing_variable": Z, "chunk_size": 10}


MODELS = {
    "PEPR": lambda: PEPR((X, Y), **_options(), alpha=0.5),
    "VFE in one loop per device and pass": lambda: PEPR((X, Y), **_options(), alpha=0.0),
    "BTSGPR": lambda: BTSGPR((X, Y), **_options(), blocks=4),
    "PITC of a power for each block": lambda: PEPR(
        (X, Y), **_options(), blocks=3, alpha=np.linspace(0.0, 1.0, 22)
    ),
    "a learned scale for each block": lambda: PEPR(
        (X, Y), **_options(), blocks=3, scale=gpflow.Parameter(np.linspace(0.5, 1.5, 22))
    ),
    "TSGPR with a mean function": lambda: TSGPR(
        (X, Y), **_options(), mean_function=gpflow.functions.Linear(np.ones((2, 1)))
    ),
    "PEPClassifier": lambda: PEPClassifier((X, LABELS), likelihood=Probit(), **_options()),
    "PEPClassifier of robust-max": lambda: PEPClassifier(
        (X, CLASSES), likelihood=None, **_options()
    ),
    "fewer chunks than devices": lambda: PEPR(
        (X[:10], Y[:10]), **_options() | {"chunk_size": 9}, blocks=10
    ),
}


def numbers_of(name):
    """
    Objective and gradient, training, sites and predictions of a model, and the parameters on every
    device.
    """
    model = MODELS[name]()
    # Messages that TensorFlow logs stand between these two lines.
    devices = len(devices_of_strategy() or [None])
    print(f"\nstep of {name} on {devices}", file=sys.stderr, flush=True)
    step = TrainingStep(model)()
    print("\nend of step", file=sys.stderr, flush=True)
    found = {"loss": model.training_loss(), "step": step}
    start = gpflow.utilities.read_values(model)
    for optimizer in ("lbfgs", "adam"):
        gpflow.utilities.multiple_assign(model, start)
        found[optimizer] = fit(model, max_iterations=3, optimizer=optimizer).objective
    if isinstance(model, PEP):
        found["sites"] = model.update_sites().log_evidence, *model.surrogate()
    found["predictions"] = model.predict_f(X[:3] + 0.1)
    found["leave-one-out"] = model.loo_log_predictive_density()
    return found | {"parameters": _on_every_device(model)}


def _on_every_device(model):
    """The parameters on each device; with one device, one copy per device."""
    values = [
        STRATEGY.experimental_local_results(variable) for variable in model.trainable_variables
    ]
    return [[copies[device % len(copies)] for copies in values] for device in range(2)]


def without_data():
    """
    Training of a minibatch model by Adam, with natural gradients and without, and the parameters on
    all devices.
    """

    def numbers(natural_step):
        model = APEP(Matern52(), gpflow.likelihoods.Gaussian(), Z, num_data=len(X))
        options = {"optimizer": "adam", "batch_size": 20, "max_iterations": 5, "interval": 1}
        trained = fit(model, (X, Y), natural_step=natural_step, **options).objective
        return {
            "trained": trained,
            "predictions": model.predict_f(X[:3]),
            "parameters": _on_every_device(model),
        }

    with STRATEGY.scope():
        both = [numbers(0.1), numbers(None)]
    return list(zip(both, [numbers(0.1), numbers(None)], strict=True))


def checkpoint():
    """Continue a checkpoint of a training with two devices on one device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "training.npz"
        with STRATEGY.scope():
            fit(MODELS["PEPR"](), optimizer="adam", max_iterations=1, checkpoint=path)
        return fit(MODELS["PEPR"](), optimizer="adam", max_iterations=3, checkpoint=path).objective


def used_outside():
    """
    Training by Adam, with a parameter that is not trainable, of a model that was constructed in the
    scope.
    """

    def trained(model):
        gpflow.set_trainable(model.kernel.variance, False)
        result = fit(model, optimizer="adam", max_iterations=3)
        return [result.objective, model.kernel.variance.numpy()]

    with STRATEGY.scope():
        model = MODELS["PEPR"]()
    return [trained(model), trained(MODELS["PEPR"]())]


def constructed_outside():
    """Error for training by Adam in a scope in which the model was not constructed."""
    model = MODELS["PEPR"]()
    with STRATEGY.scope():
        try:
            fit(model, optimizer="adam", max_iterations=1)
        except ValueError as error:
            return str(error)
    return ""


def minibatches_of_rows_with_sites():
    """Training by minibatches of a model with sites."""

    def trained():
        return fit(
            MODELS["PEPClassifier"](), optimizer="adam", batch_size=30, max_iterations=4
        ).objective

    with STRATEGY.scope():
        found = trained()
    return [found, trained()]


def in_every_replica(name):
    """
    Loss and gradient where users call a step in all replicas, of each of these, and of one device.
    """

    def step(model):
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    with STRATEGY.scope():
        model = MODELS[name]()
        values = tf.function(lambda: STRATEGY.run(step, args=(model,)))()
    copies = [STRATEGY.experimental_local_results(value) for value in values]
    return [*(list(each) for each in zip(*copies, strict=True)), tf.function(step)(MODELS[name]())]


def xla():
    """Error for XLA."""
    with STRATEGY.scope():
        model = MODELS["PEPR"]()
        try:
            fit(model, max_iterations=1, jit_compile=True)
        except NotImplementedError as error:
            return str(error)
    return ""


def main(names):
    """Do the named tasks: models, with both devices and with one, or functions of this file."""
    found = {}
    for name in names:
        if name in MODELS:
            with STRATEGY.scope():
                both = numbers_of(name)
            found[name] = [both, numbers_of(name)]
        else:
            task, *arguments = name.split(" of ")
            found[name] = globals()[task](*arguments)
    print(json.dumps(found, default=as_numbers))


main(sys.argv[1:])
