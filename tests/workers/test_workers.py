"""
Several workers, in processes of their own: as one process with all rows, or an error in each of
them.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from comparisons import assert_all_close, assert_all_near, assert_near
from model_values import loss_and_gradient
from numpy.testing import assert_allclose
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

from experiments.distributed import free_ports
from gpflow_pep import fit

TOLERANCE = 1e-11  # sums over rows in another order, amplified by the condition of Kuu + jitter
SCRIPT = Path(__file__).parents[1] / "support" / "worker_process.py"
COUNT = 2
TASKS = ("refused", "repeated_rows")
SLOW_TASKS = ("mixed_precision", "minibatch_models")
X, Y = data_of("PEPR")


def started(folder, *tasks):
    """The processes of all workers."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(COUNT)]
    processes = []
    for index in range(COUNT):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        paths = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[2])])
        environment = os.environ | {"TF_CONFIG": json.dumps(config), "PYTHONPATH": paths}
        command = [sys.executable, str(SCRIPT), str(index), str(COUNT), str(folder), *tasks]
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    return processes


def results(processes):
    """Return the output of each worker; None if it was killed."""
    printed = [process.communicate(timeout=500) for process in processes]
    for process, (_, errors) in zip(processes, printed, strict=True):
        assert process.returncode in (0, -9), errors[-3000:]
    return [json.loads(text.splitlines()[-1]) if text else None for text, _ in printed]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return results(started(tmp_path_factory.mktemp("workers"), *TASKS))


@pytest.fixture(scope="module")
def found_of_others(tmp_path_factory):
    return results(started(tmp_path_factory.mktemp("workers"), *MODELS, *SLOW_TASKS))


@pytest.mark.parametrize("name", MODELS)
def test_every_worker_has_the_numbers_of_all_rows(found_of_others, name):
    workers = [each[name] for each in found_of_others]
    whole = {key: value for key, value in workers[0].items() if key != "leave-one-out"}
    for other in workers[1:]:
        # Equal to the last digit.
        assert {key: value for key, value in other.items() if key != "leave-one-out"} == whole
    model = model_of(name, shards=[rows_of(index, COUNT) for index in range(COUNT)])
    loss, gradient = loss_and_gradient(model)
    assert_allclose([whole["loss"], whole["loss of a copy"]], loss, rtol=TOLERANCE)
    scale = max(np.abs(part).max() for part in gradient)
    assert_all_near(whole["gradient"], gradient, TOLERANCE * scale)
    values = [*model.predict_f(X[:3] + 0.1), *numbers_of(model)]
    assert_all_close(whole["values"], values, rtol=1e3 * TOLERANCE)
    trained = fit(model, optimizer="adam", max_iterations=3, held_out=data_of(name))
    assert_allclose(whole["trained"], trained.objective, rtol=1e3 * TOLERANCE)
    assert_allclose(whole["nlpd"], trained.held_out["nlpd"], rtol=1e3 * TOLERANCE)
    densities = np.concatenate([worker["leave-one-out"] for worker in workers])
    assert_allclose(densities, model.loo_log_predictive_density(), rtol=1e3 * TOLERANCE)


def test_mixed_precision(found_of_others):
    """
    One worker has a chunk in double precision, the other has none; accuracy as promised by the
    model.
    """
    first, second = (worker["mixed_precision"] for worker in found_of_others)
    assert first == second  # to the last digit
    exact = loss_and_gradient(mixed_model(np.arange(len(X)), mixed_precision=False))
    (loss, gradient), (near, near_gradient) = (
        (value, np.concatenate([np.ravel(part) for part in parts]))
        for value, parts in (exact, first)
    )
    assert 0.0 < abs(near - loss) < 2e-6 * (len(X) + abs(loss))
    assert 0.0 < np.linalg.norm(near_gradient - gradient) < 2e-3 * np.linalg.norm(gradient)


@pytest.mark.parametrize("optimizer", MINIBATCH_OPTIONS)
@pytest.mark.parametrize("name", MINIBATCH_MODELS)
def test_minibatch_models_are_trained_on_the_rows_of_all(found_of_others, name, optimizer):
    options = MINIBATCH_OPTIONS[optimizer]
    model = minibatch_model(name)
    size = {"batch_size": len(X)} if options["optimizer"] == "adam" else {}
    expected = fit(model, (X, Y), max_iterations=3, interval=1, **options, **size)
    first, second = (
        worker["minibatch_models"][f"{name} {optimizer}"] for worker in found_of_others
    )
    assert first == second
    objective, q = first
    assert_allclose(objective, expected.objective, rtol=1e-9)
    assert_all_close(q, (model.q_mu, model.q_sqrt), rtol=1e-7, atol=1e-9)


REFUSED = {
    "overlapping": r"data must be different rows on each worker, got 5 of \d+ sampled rows of worker 1 also",
    "the_same_dataset": r"data must be different rows on each worker, got 46 of 46 sampled rows",
    "another_power": r"all workers must run the same training, but worker 1 differs from worker 0 in model\.alpha\.",
    "another_optimizer_setting": r"worker 1 differs from worker 0 in patience\.",
    "a_stream": r"StreamingSGPR does not support several workers: construct it outside the scope",
    "another_checkpoint": r"checkpoint must be the same file for all workers, but worker 1 resumes after",
    "new_data": r"data of a model of several workers cannot be replaced",
    "labels_of_a_shard": r"likelihood must be given with several workers",
    "of_gpflow": r"the data of SGPR are not divided",
    "updates_in_batches": r"data must be arrays in one process if sites are updated in batches, got 2 workers",
}


@pytest.mark.parametrize("case", REFUSED)
def test_every_worker_refuses(found, case):
    for worker in found:
        assert re.search(REFUSED[case], worker["refused"][case])


def test_rows_that_a_worker_has_several_times_prove_nothing(found):
    assert [worker["repeated_rows"] for worker in found] == [40, 40]


def test_training_resumes_where_a_worker_was_killed(tmp_path):
    """The other worker ends with an error; started again, they end as if nothing had happened."""
    killed = results(started(tmp_path, "killed_training"))
    assert killed[1] is None
    assert "a worker has stopped" in killed[0]["killed_training"]["error"]
    assert (tmp_path / "training.npz").exists()
    resumed = [worker["training"] for worker in results(started(tmp_path, "training"))]
    assert resumed[0] == resumed[1]
    expected = fit(model_of("PEP"), max_iterations=200).objective[-1]
    # In nats; a search from elsewhere.
    assert_near(resumed[0]["objective"][-1], expected, 0.02)
