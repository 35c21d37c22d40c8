"""Compare the alpha that `gpflow_pep.select_alpha` chooses from training rows with the best alpha on held-out rows.

`select_alpha` scores PEPR for each alpha on the training rows of some splits, by leave-one-out or cross-validation. A
model of all training rows is scored on the test rows. The table has means over the splits: both log densities of each
alpha in nats per row, and the alpha that each of them chooses.

    python -m experiments.alpha_choice [--sets boston concrete ...] [--alphas 0 0.5 1] [--folds 5] [--inducing 50]
"""

import argparse

import gpflow
import numpy as np
from gpflow.base import RegressionData

from experiments import datasets
from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats, cluster_centers, median_distance
from experiments.protocols.arguments import count, power
from gpflow_pep import PEPR, select_alpha
from gpflow_pep.training import fit, uninterrupted

SETS = ("boston", "concrete", "energy", "wine-red", "yacht", "airfoil")


def main() -> None:
    """Print a row for each set, and the number of sets on which the choices agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=datasets.names(task="regression"), metavar="SET", default=SETS)
    parser.add_argument("--alphas", nargs="+", type=power, default=[0.0, 0.5, 1.0])
    parser.add_argument("--folds", type=count, help="folds of cross-validation; by default leave-one-out")
    parser.add_argument("--splits", type=count, default=3, help="splits of each set (%(default)s)")
    parser.add_argument("--inducing", type=count, default=50, help="number of inducing points (%(default)s)")
    parser.add_argument("--maxiter", type=count, default=100, help="iterations of L-BFGS, at most (%(default)s)")
    arguments = parser.parse_args()
    columns = "".join(f"{f'alpha {alpha:g}':>16}" for alpha in arguments.alphas)
    print(f"{'set':11}{'N':>6}{'D':>4}{columns}{'chosen':>16}   (selection / held-out)")
    agreeing = 0
    for name in arguments.sets:
        found = [scores(datasets.load(name, split), arguments) for split in range(arguments.splits)]
        selection, held_out = np.mean(found, axis=0)
        chosen = [arguments.alphas[int(np.argmax(each))] for each in (selection, held_out)]
        agreeing += chosen[0] == chosen[1]
        dataset = datasets.load(name)
        N, D = dataset.X_train.shape
        pairs = "".join(f"{f'{a:.3f} / {b:.3f}':>16}" for a, b in zip(selection, held_out, strict=True))
        print(f"{name:11}{N:6}{D:4}{pairs}{f'{chosen[0]:g} / {chosen[1]:g}':>16}", flush=True)
    print(f"\nThe two agree on {agreeing} of {len(arguments.sets)} sets.")


def scores(dataset: Dataset, arguments: argparse.Namespace) -> tuple[Floats, Floats]:
    """Return the mean log densities of the selection and of held-out rows for each alpha, [A] each."""
    data = dataset.X_train, dataset.Y_train

    def train(model: PEPR) -> None:
        uninterrupted(fit(model, max_iterations=arguments.maxiter))

    def make(data: RegressionData, alpha: float) -> PEPR:
        X, Y = (np.asarray(values) for values in data)
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], median_distance(X, 0)))
        Z = cluster_centers(X, arguments.inducing, 0)
        return PEPR((X, Y), kernel, Z, alpha=alpha, noise_variance=0.1, max_jitter=1e-3)

    def held_out(alpha: float) -> float:
        model = make(data, alpha)
        train(model)
        return float(np.mean(model.predict_log_density((dataset.X_test, dataset.Y_test))))

    selection = select_alpha(make, data, arguments.alphas, folds=arguments.folds, train=train)
    return selection.scores, np.array([held_out(alpha) for alpha in arguments.alphas])


if __name__ == "__main__":
    main()
