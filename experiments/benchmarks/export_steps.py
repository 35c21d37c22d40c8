"""Export steps (loss and all gradients, float64) as StableHLO, to time them on a machine without TensorFlow.

`python -m experiments.benchmarks.stablehlo_step` reads the files. Models with sites or blocks of rows are left out: XLA
cannot compile them. Minibatch models get `--rows` rows.

    python -m experiments.benchmarks.export_steps steps.npz [--rows 50000] [--inducing 256] [--chunk-size 50000]
        [--models SGPR "PEPR 0.5" SVGP]
"""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.benchmarks import structured_step
from experiments.benchmarks.collapsed_step import KERNELS, build, compiled_step, data
from experiments.benchmarks.printing import parser_of
from experiments.protocols.arguments import count


def main() -> None:
    """Write modules, inputs and results of the steps to a file."""
    parser = parser_of(__doc__)
    parser.add_argument("to", type=Path)
    parser.add_argument("--rows", type=count, default=50_000)
    parser.add_argument("--inducing", type=count, default=256)
    parser.add_argument("--chunk-size", type=count, help="rows of a chunk (all)")
    parser.add_argument(
        "--models", nargs="+", default=["SGPR", "GPRFITC", "PEPR 0", "PEPR 0.5", "PEPR 1", "TSGPR"]
    )
    arguments = parser.parse_args()
    X, Y, Z = data(arguments.rows, arguments.inducing)
    chunk_size = arguments.chunk_size or arguments.rows
    models = build(X, Y, Z, KERNELS["SquaredExponential"], chunk_size)
    arrays: dict[str, Any] = {
        "X": X,
        "Y": Y,
        "size": [arguments.rows, arguments.inducing, chunk_size],
    }
    for name in arguments.models:
        if name in models:
            step = compiled_step(models[name])
        else:
            step = structured_step.step(name, arguments.rows, arguments.inducing)
        arrays |= {f"{name}/{key}": value for key, value in exported(step, arrays).items()}
    np.savez(arguments.to, **arrays)


def exported(step: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the module, its inputs (X and Y by their names) and its results on this machine."""
    compiled = tf.function(step.python_function, autograph=False, jit_compile=True)
    graph = compiled.get_concrete_function()
    variables = {id(variable.handle): variable for variable in graph.graph.variables}
    inputs = [variables.get(id(tensor), tensor).numpy() for tensor in graph.captured_inputs]
    found = {f"input{place}": _shared(value, shared) for place, value in enumerate(inputs)}
    found |= {
        f"output{place}": value.numpy() for place, value in enumerate(tf.nest.flatten(step()))
    }
    return found | {"module": np.array(compiled.experimental_get_compiler_ir()(stage="stablehlo"))}


def _shared(value: Any, shared: dict[str, Any]) -> Any:
    return next((name for name in ("X", "Y") if np.array_equal(shared[name], value)), value)


if __name__ == "__main__":
    main()
