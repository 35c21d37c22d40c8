"""Export steps (loss and all gradients, float64) as StableHLO, and time them on a machine with JAX but no TensorFlow.

With `--export`, TensorFlow compiles the steps and writes them to a file, with its own results for comparison. They are
compiled as for GPUs, with products by inverses of Cholesky factors in place of triangular solves; a name that ends in
"by solves" keeps the solves. Models with sites or blocks of rows are left out: XLA cannot compile them. Minibatch
models get `--rows` rows. Without `--export`, JAX runs the steps of the files on its first device. Units and share are
as in `collapsed_step`, for an M x M by M x N product on the device; "temporary" is memory besides inputs and results.

    python -m experiments.benchmarks.stablehlo_step --export steps.npz [--rows 50000] [--inducing 256]
        [--chunk-size 50000] [--models SGPR "PEPR 0.5" "PEPR 0.5 by solves" SVGP]
    python -m experiments.benchmarks.stablehlo_step steps.npz ... [--rounds 50]
"""

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_BY_SOLVES = " by solves"
_MODELS = ("SGPR", "PEPR 0", "PEPR 0 by solves", "GPRFITC", "PEPR 0.5", "PEPR 0.5 by solves")
_COLUMNS = ("ms", "units", "share", "loss differs", "gradient", "temporary, MB", "compiling, s")
_LEAST = {
    "SGPR": 1.5,
    "PEPR 0": 1.5,
    "GPRFITC": 3.0,
    "PEPR 1": 3.0,
    "PEPR 0.5": 3.0,
    "TSGPR": 3.0,
}  # units
_CHOLESKY = re.compile(r"stablehlo\.cholesky (%\w+), lower = true : (tensor<(\d+)x\d+xf64>)")


def main() -> None:
    """Write a file, or print a table for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--inducing", type=int, default=256)
    parser.add_argument("--chunk-size", type=int, help="rows of a chunk (all)")
    parser.add_argument("--models", nargs="+", default=_MODELS)
    arguments = parser.parse_args()
    if arguments.export is not None:
        chunk_size = arguments.chunk_size or arguments.rows
        arrays = exported(arguments.models, arguments.rows, arguments.inducing, chunk_size)
        np.savez_compressed(arguments.export, **arrays)
    for path in arguments.files:
        with np.load(path) as arrays:
            time_steps(dict(arrays), arguments.rounds)


def exported(
    names: Sequence[str], num_data: int, num_inducing: int, chunk_size: int
) -> dict[str, Any]:
    """Return modules, inputs (X and Y once, by their names) and results of steps on this machine."""
    from experiments.benchmarks.collapsed_step import KERNELS, build, compiled_step, data
    from experiments.benchmarks.structured_step import step as minibatch_step
    from gpflow_pep.runtime.devices import preferring_products

    X, Y, Z = data(num_data, num_inducing)
    arrays: dict[str, Any] = {"X": X, "Y": Y, "size": [num_data, num_inducing, chunk_size]}
    for name in names:
        models = build(X, Y, Z, KERNELS["SquaredExponential"], chunk_size)
        model = models.get(name.removesuffix(_BY_SOLVES))
        with preferring_products(not name.endswith(_BY_SOLVES)):
            if model is None:
                found = _of_step(minibatch_step(name, num_data, num_inducing), arrays)
            else:
                found = _of_step(compiled_step(model), arrays)
        arrays |= {f"{name}/{key}": value for key, value in found.items()}
    return arrays


def _of_step(step: Any, shared: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    compiled = tf.function(step.python_function, autograph=False, jit_compile=True)
    graph = compiled.get_concrete_function()
    variables = {id(variable.handle): variable for variable in graph.graph.variables}
    found = {}
    for place, tensor in enumerate(graph.captured_inputs):
        value = variables.get(id(tensor), tensor).numpy()
        same = (name for name in ("X", "Y") if np.array_equal(shared[name], value))
        found[f"input{place}"] = next(same, value)
    for place, result in enumerate(tf.nest.flatten(step())):
        found[f"output{place}"] = result.numpy()
    module = compiled.experimental_get_compiler_ir()(stage="stablehlo")
    return found | {"module": np.array(module)}


def time_steps(arrays: Mapping[str, Any], rounds: int) -> None:
    """Compile, compare and time the steps of a file."""
    import jax
    from jaxlib import xla_client

    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    print(f"{device.device_kind}, JAX {jax.__version__}")
    rows, inducing, chunk_size = map(int, arrays["size"])
    shapes, product = ((inducing, inducing), (inducing, rows)), jax.jit(jax.numpy.dot)
    factors = [
        jax.device_put(np.random.default_rng(0).normal(size=shape), device) for shape in shapes
    ]
    unit = seconds(lambda: product(*factors), rounds)
    rate = 2e-12 * inducing**2 * rows / unit
    print(f"\nN = {rows}, M = {inducing}, chunks of {chunk_size}, products {rate:.1f} TFLOP/s")
    print(f"{'step':<18}", *(f"{column:>13}" for column in _COLUMNS))
    for name in dict.fromkeys(key.partition("/")[0] for key in arrays if "/" in key):
        module = str(arrays[f"{name}/module"])
        began = time.perf_counter()
        step = device.client.compile_and_load(
            with_cusolver(module) if device.platform == "gpu" else module,
            xla_client.DeviceList((device,)),
            xla_client.CompileOptions(),
        )
        compiling = time.perf_counter() - began
        inputs = [
            jax.device_put(arrays.get(str(value), value), device)
            for value in values(arrays, f"{name}/input")
        ]
        results = zip(step.execute(inputs), values(arrays, f"{name}/output"), strict=True)
        errors = [
            float(np.max(np.abs(ours - theirs)) / (np.max(np.abs(theirs)) or 1.0))
            for ours, theirs in results
        ]
        taken = seconds(partial(step.execute, inputs), rounds)
        least = _LEAST.get(name.removesuffix(_BY_SOLVES))
        share = "" if least is None else f"{least * unit / taken:.0%}"
        memory = step.get_compiled_memory_stats().temp_size_in_bytes / 1e6
        of_columns = (
            f"{1e3 * taken:.3f}",
            f"{taken / unit:.1f}",
            share,
            f"{errors[0]:.0e}",
            f"{max(errors[1:]):.0e}",
        )
        shown = (*of_columns, f"{memory:.0f}", f"{compiling:.1f}")
        print(f"{name:<18}", *(f"{value:>13}" for value in shown), flush=True)


def with_cusolver(module: str) -> str:
    """Call cuSOLVER's Cholesky, as TensorFlow's kernel does: XLA's own takes twenty times as long on GPUs."""
    sizes = {int(found[3]) for found in _CHOLESKY.finditer(module)}
    calls = _CHOLESKY.sub(r"func.call @cholesky_\3(\1) : (\2) -> \2", module)
    heading, rest = re.split(r"(?<=\{)\n(?=\s*func\.func)", calls, maxsplit=1)
    return "\n".join([heading, *map(cholesky_function, sizes), rest])


def cholesky_function(size: int) -> str:
    """Return JAX's Cholesky factorization of a matrix of this size on GPUs, as a function in StableHLO."""
    import jax

    cholesky = jax.jit(partial(jax.lax.linalg.cholesky, symmetrize_input=False))
    traced = cholesky.trace(jax.ShapeDtypeStruct((size, size), np.float64))
    module = traced.lower(lowering_platforms=("cuda",)).as_text()
    function = re.sub(
        r" \{jax\.result_info[^}]*\}", "", module[module.index("func.func") : module.rindex("}")]
    )
    return function.replace("public @main", f"private @cholesky_{size}")


def values(arrays: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the arrays prefix0, prefix1, ... in this order."""
    return [
        arrays[f"{prefix}{place}"] for place in range(sum(key.startswith(prefix) for key in arrays))
    ]


def seconds(function: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call, without the first."""
    import jax

    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


if __name__ == "__main__":
    main()
