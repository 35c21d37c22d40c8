"""A setting that an experiment cannot use is refused by its name, with the accepted values."""

import pytest
from refusals import refused

REFUSED = {
    "regression": [
        ({"model": "GP"}, "model is 'GP'; accepted are GPR, SGPR"),
        ({"kernel": "Linear"}, "kernel is 'Linear'"),
        ({"optimizer": "sgd"}, "optimizer must be .*lbfgs.* got 'sgd'"),
        ({"dataset": "diabets"}, "Did you mean 'diabetes'"),
        ({"dataset": "breast-cancer"}, "dataset 'breast-cancer' is for classification"),
        ({"M": 61}, "M is 61"),
        ({"model": "BTSGPR", "block_size": None}, "blocks must be"),
        ({"block_size": 0}, "size must be a whole number from 1"),
        ({"block_size": 5, "blocks": "rows"}, "blocks is 'rows'; accepted are neighbors"),
    ],
    "classification": [
        ({"model": "SGPR"}, "model is 'SGPR'; accepted are PEP, QP, SVGP"),
        ({"likelihood": "cauchit"}, "likelihood is 'cauchit'; accepted are probit, logit"),
        ({"kernel": "Linear"}, "kernel is 'Linear'"),
        ({"batch_size": 10}, "batch_size is 10; with optimizer=lbfgs"),
        ({"dataset": "diabetes"}, "for regression .* accepted for .* and multiclass are"),
        ({"M": 41}, "M is 41"),
        ({"alpha": 1.5}, "alpha"),
        ({"dataset": "iris", "likelihood": "probit"}, "accepted are robust-max for 3 classes"),
        ({"dataset": "iris", "model": "QP"}, "projection"),
        ({"dataset": "iris", "epsilon": 1.0}, "epsilon"),
        ({"likelihood": "robust-max"}, "accepted are probit, logit for 2 classes"),
    ],
    "streaming": [
        ({"model": "PEPR"}, "accepted are STREAM, STREAM-SVGP, VANILLA, BATCH, GPR"),
        ({"dataset": "breast-cancer", "model": "GPR"}, "accepted are STREAM, STREAM-SVGP, BATCH"),
        ({"dataset": "diabetes"}, "dataset 'diabetes' is for regression"),
        ({"order": "sideways"}, "accepted are forward, backward, shuffled"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"M": 41}, "M is 41"),
        ({"max_train": 0}, "max_train must be None or at least 1"),
        ({"max_test": 0}, "max_test must be None or at least 1"),
    ],
    "labeling": [
        ({"rule": "variance"}, "rule is 'variance'; accepted are entropy, random"),
        ({"per_round": 200}, "per_round is 200; whole numbers from 1 to additions, 100"),
        ({"dataset": "iris"}, "initial is 100, additions 100, num_test 500; .* at most 150"),
        ({"dataset": "diabetes"}, "dataset 'diabetes' is for regression"),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_settings_are_refused(run_experiment, name):
    for updates, message in REFUSED[name]:
        with refused(message):
            run_experiment(name, **updates)
