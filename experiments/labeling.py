"""
Run active learning once: train a classifier on few labeled rows, add labels of further rows, train
again.

    python -m experiments.labeling with rule=entropy model=PEP alpha=0.5
    python -m experiments.labeling print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The settings are from
Villacampa-Calvo and Hernández-Lobato (2020), except for the number of labels per round, which is 1
there. The run is recorded in runs/. Protocol M6 of `experiments.papers` compares such runs.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from typing import Any

import numpy as np
from gpflow.utilities import multiple_assign, parameter_dict
from sacred.run import Run
from scipy.special import entr

from experiments import datasets
from experiments.datasets import Dataset, Floats, loading
from experiments.datasets.sources import Rows, SplitTable
from experiments.ingredients.classifier import build_classifier, gp
from experiments.ingredients.data import check_task
from experiments.ingredients.training import train, training
from experiments.recording.experiment import RecordedExperiment
from experiments.recording.scalars import scalar_log
from experiments.recording.scores import classification_scores
from gpflow_pep.estimators.calibration import of_all_classes

RULES = ("entropy", "random")

ex = RecordedExperiment("labeling", ingredients=[gp, training])


@ex.config
def _config() -> None:
    # name of a classification data set; its rows are divided again
    dataset = "waveform"

    # number of the division, from 0
    repetition = 0

    # initially labeled rows, and test rows; the rest is the pool
    initial = 100
    num_test = 500

    # new labels in total, and per round
    additions = 100
    per_round = 20

    # rule that selects rows of the pool: entropy (highest predictive entropy) or random
    rule = "entropy"

    # model and training; every round starts from the parameters of the one before
    gp = {"M": 20, "max_jitter": 1e-2}
    training = {"maxiter": 20}


def divided(
    name: str, repetition: int, initial: int, num_test: int, additions: int
) -> tuple[Dataset, Rows, Rows]:
    """
    Return a data set with all rows but the test rows for training, standardized by their inputs,
    and the indices of the initially labeled rows and of the pool.
    """
    data = datasets.load(name, standardize=False).trained_on_all()
    X, Y = data.X_train, data.Y_train
    if initial < 1 or num_test < 1 or initial + additions + num_test > len(X):
        raise ValueError(
            f"initial is {initial}, additions {additions}, num_test {num_test}; they must be "
            f"positive with a sum of at most {len(X)}, the number of rows."
        )
    test, train = np.split(np.random.RandomState(repetition).permutation(len(X)), [num_test])
    rows = np.arange(len(train))
    found = loading.divided(name, SplitTable(X, Y, train, test))
    return found, rows[:initial], rows[initial:]


def entropy(probability: Floats) -> Floats:
    """
    Return the entropy in nats [n], given probabilities of label 1 [n, 1] or of C > 2 labels [n, C].
    """
    return np.sum(entr(of_all_classes(probability)), axis=1)


@ex.automain
def labeling(
    dataset: str,
    repetition: int,
    initial: int,
    num_test: int,
    additions: int,
    per_round: int,
    rule: str,
    _run: Run,
) -> dict[str, Any]:
    """
    Train, score and label, round by round; the result has lists of scores by the number of labels.
    """
    check_task(dataset, "classification", "multiclass")
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; accepted are {', '.join(RULES)}.")
    if not 1 <= per_round <= additions:
        raise ValueError(
            f"per_round is {per_round}; whole numbers from 1 to additions, {additions}, are "
            "accepted."
        )
    data, rows, pool = divided(dataset, repetition, initial, num_test, additions)
    num_classes = len(datasets.describe(dataset).classes)
    rng = np.random.RandomState(repetition)
    parameters: dict[str, Any] = {}
    result: dict[str, list[float]] = {name: [] for name in ("labels", "error", "nlpd", "seconds")}
    with scalar_log(_run) as write:
        while True:
            labeled = data.X_train[rows], data.Y_train[rows]
            model = build_classifier(*labeled, num_classes)
            multiple_assign(model, parameters)  # of the last model
            status = train(model, labeled, lambda iteration, seconds: None, progress=False)
            parameters = parameter_dict(model)
            scores = classification_scores(model, data)
            write(len(rows), scores, "test/")
            entries = {"labels": len(rows), "seconds": status.seconds, **scores}
            for name, values in result.items():
                values.append(entries[name])
            wanted = min(per_round, initial + additions - len(rows))
            if not wanted:
                return result
            probability = model.predict_y(data.X_train[pool])[0].numpy()  # [pool, 1 or C]
            preference = entropy(probability) if rule == "entropy" else rng.uniform(size=len(pool))
            chosen = np.argsort(-preference, kind="stable")[:wanted]
            rows, pool = np.append(rows, pool[chosen]), np.delete(pool, chosen)
