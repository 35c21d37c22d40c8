"""Options of a training run: the keyword arguments of `fit`, and the identity they give the run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gpflow.base import RegressionData
from gpflow.models import GPModel

from .. import validation
from ..models import PEP
from ..models.sparse import SparseGP
from ..saving.arrays_file import FilePath
from ..saving.run_identity import fingerprint
from .objectives import has_own_data

Callback = Callable[[int, float], None]
"""Called at every record with the iteration, from 1, and the objective in nats."""

_POSITIVE_INTEGERS = ("max_iterations", "first_rows", "batch_size", "patience", "interval")
# Options that do not affect the numbers of a run: they may differ when it is resumed.
_WITHOUT_EFFECT = (
    "max_iterations",
    "checkpoint",
    "checkpoint_seconds",
    "tensorboard",
    "callback",
    "progress",
    "jit_compile",
)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The keyword arguments of :func:`gpflow_pep.fit`, which describes them."""

    optimizer: str | None = None
    max_iterations: int | None = None
    learning_rate: float = 0.01
    natural_step: float | None = 0.1
    train_inducing: bool | None = None
    tolerance: float = 5e-4
    first_rows: int | None = None
    n_restarts: int | None = 0
    batch_size: int | None = None
    held_out: RegressionData | None = None
    patience: int | None = None
    interval: int | None = None
    checkpoint: FilePath | None = None
    checkpoint_seconds: float = 10.0
    tensorboard: FilePath | None = None
    seed: int = 0
    callback: Callback | None = None
    progress: bool = False
    jit_compile: bool = False

    @property
    def steps(self) -> int:
        """The largest number of iterations."""
        return self.max_iterations or (2000 if self.optimizer == "lbfgs" else 5000)

    def identity(self) -> dict[str, object]:
        """Return the options on which the numbers of a run depend, as JSON data by name."""
        named = {name: value for name, value in vars(self).items() if name not in _WITHOUT_EFFECT}
        return named | {"held_out": fingerprint(*map(np.asarray, self.held_out or ()))}

    def checked(self, model: GPModel, *, is_dataset: bool) -> "FitOptions":
        """
        Return the options with the optimizer and numbers of Python's types.

        :param is_dataset: whether the data given to `fit` are a dataset.
        :raises ValueError: naming an option that this model does not accept.
        """
        optimizer = self.optimizer
        if optimizer is None:
            optimizer = "lbfgs" if has_own_data(model) else "adam"
        check_optimizer(optimizer)
        if not isinstance(self.train_inducing, bool | np.bool_ | None):
            raise ValueError(
                f"train_inducing must be True, False or None, got {self.train_inducing!r}."
            )
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be a function or None, got {self.callback!r}.")
        checked: dict[str, Any] = {
            name: validation.positive_integer(getattr(self, name), name)
            for name in _POSITIVE_INTEGERS
            if getattr(self, name) is not None
        }
        if self.n_restarts is not None:
            checked["n_restarts"] = validation.whole_number(self.n_restarts, "n_restarts", 0, 100)
        if self.natural_step is not None:
            checked["natural_step"] = validation.fraction(self.natural_step, "natural_step")
        if self.train_inducing is not None:
            checked["train_inducing"] = bool(self.train_inducing)
        options = replace(
            self,
            optimizer=optimizer,
            learning_rate=validation.positive_number(self.learning_rate, "learning_rate"),
            tolerance=validation.positive_number(self.tolerance, "tolerance"),
            checkpoint_seconds=validation.checkpoint_seconds(self.checkpoint_seconds),
            seed=validation.seed(self.seed),
            progress=validation.boolean(self.progress, "progress"),
            jit_compile=validation.boolean(self.jit_compile, "jit_compile"),
            **checked,
        )
        options._check_for(model, is_dataset)
        return options

    def _check_for(self, model: GPModel, is_dataset: bool) -> None:
        """Check the optimizer, and that the other options are for this optimizer and model."""
        name = type(model).__name__
        has_rows = isinstance(model, SparseGP) and isinstance(model.data, tuple)
        if self.first_rows is not None and not has_rows:
            raise ValueError(
                f"first_rows must be None for {name}, got {self.first_rows}: "
                "it needs a model of gpflow_pep that stores X and Y as arrays."
            )
        reason = ""  # for which there must be no batch size
        if self.optimizer == "lbfgs":
            reason = ' with optimizer="lbfgs"'
            if getattr(model, "minibatch_is_block", False):
                raise ValueError(
                    f'optimizer must be "adam" for {name}, whose minibatches are its blocks.'
                )
            if is_dataset:
                raise ValueError("""optimizer must be "adam" with a dataset, got 'lbfgs'.""")
        elif self.n_restarts != 0:
            raise ValueError(f'n_restarts must be 0 with optimizer="adam", got {self.n_restarts}.')
        elif self.first_rows is not None:
            raise ValueError(
                f'first_rows must be None with optimizer="adam", got {self.first_rows}.'
            )
        elif is_dataset:
            reason = " with a dataset, whose batches are the minibatches"
        elif has_own_data(model) and not isinstance(model, PEP):
            reason = f", since {name} needs all rows"
        if self.batch_size is None:
            return
        if reason:
            raise ValueError(f"batch_size must be None{reason}, got {self.batch_size}.")
        if self.jit_compile and isinstance(model, PEP):
            raise ValueError(f"jit_compile must be False with batch_size for {name}, got True.")


def check_optimizer(optimizer: object) -> None:
    """Check that this is the name of an optimizer; the error names the nearest one."""
    found = repr(optimizer)
    if not isinstance(optimizer, str):
        found = f"an object, {type(optimizer).__name__}"
    elif optimizer in ("lbfgs", "adam"):
        return
    nearest = "adam" if "adam" in found.lower() else "lbfgs"
    raise ValueError(
        f'optimizer must be "lbfgs", "adam" or None, got {found}: give optimizer="{nearest}".'
    )
