"""Time exported steps by JAX on its first device, and compare their results with TensorFlow's on the exporting machine.

Needs only JAX and the files of `python -m experiments.benchmarks.export_steps`. Units and share are those of
`collapsed_step`, for an M x M by M x N product on the device; "temporary" is memory besides inputs and results.

    python -m experiments.benchmarks.stablehlo_step steps.npz ... [--rounds 50]
"""

import argparse
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

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
    """Print a table for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    print(f"{device.device_kind}, JAX {jax.__version__}")
    for path in arguments.files:
        with np.load(path) as arrays:
            time_steps(dict(arrays), device, arguments.rounds)


def time_steps(arrays: Mapping[str, Any], device: Any, rounds: int) -> None:
    """Compile, compare and time the steps of a file."""
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
        share = f"{_LEAST[name] * unit / taken:.0%}" if name in _LEAST else ""
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
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


if __name__ == "__main__":
    main()
