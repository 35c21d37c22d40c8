"""Run all benchmarks, each in a process of its own, and write their tables as JSON and as Markdown.

The files name the machine and the versions; the tables of collapsed_step have the rate of matrix
products. If a benchmark fails, the end of its message is recorded, the rest go on, and the exit
status is 1. Files are written after each benchmark.

    python -m experiments.benchmarks.all [--quick] [--only collapsed_step memory] [--to
    runs/benchmarks]
"""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks.machine import machine
from experiments.benchmarks.printing import markdown
from experiments.protocols.arguments import parser_of

_ALWAYS = {"collapsed_step": "--kernel SquaredExponential Matern32 Matern52 sum product"}
"""Arguments of some benchmarks."""
BENCHMARKS = {  # name -> further arguments of --quick
    "collapsed_step": "--rounds 3 --rows 10000 --inducing 128",
    "structured_step": "--rounds 5",
    "ep_step": "--rounds 1 --repeats 3 --sizes 400x30",
    "ep_training": "--short --sets breast-cancer --methods 'PEP 0.5' 'SVGP L-BFGS'",
    "streaming": "--rounds 3",
    "estimators": "--sets diabetes iris --rows 100 --inducing 10",
    "tables": "iris --methods default linear",
    "memory": "--rows 20000 100000 --inducing 64",
    "large": "--rows 20000 50000 --inducing 64 --fit 2 --classify 10000",
}
_LAST_LINES = 5  # recorded lines of an error message


def main() -> None:
    """Run them and write benchmarks.json and benchmarks.md."""
    parser = parser_of(__doc__)
    parser.option("--quick", False, "small sizes and few rounds, as a test")
    parser.add_argument("--only", nargs="+", action="extend", choices=BENCHMARKS, help="these")
    parser.option("--to", Path("runs/benchmarks"), "folder of the files (%(default)s)")
    asked = parser.parse_args()
    commands = {}
    for name in asked.only or BENCHMARKS:
        further = BENCHMARKS[name] if asked.quick else ""
        commands[name] = shlex.split(f"{_ALWAYS.get(name, '')} {further}")
    found = run(commands, asked.to)
    if any("error" in result for result in found["benchmarks"].values()):
        raise SystemExit(1)


def run(commands: Mapping[str, Sequence[str]], folder: Path) -> dict[str, Any]:
    """Run benchmarks with these arguments, and write the results after each."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(), "benchmarks": {}}
    for name, options in commands.items():
        print(f"\n# {name}", flush=True)
        found["benchmarks"][name] = measure(name, options)
        (folder / "benchmarks.json").write_text(
            json.dumps(found, indent=1) + "\n", encoding="utf-8"
        )
        (folder / "benchmarks.md").write_text(as_markdown(found), encoding="utf-8")
    print(f"\n{folder / 'benchmarks.json'}, {folder / 'benchmarks.md'}")
    return found


def measure(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Run one benchmark; return its arguments, seconds, and tables or error."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "tables.json"
        module = f"experiments.benchmarks.{name}"
        command = [sys.executable, "-m", module, *options, "--json", str(path)]
        began = time.perf_counter()
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.perf_counter() - began
        result = {"arguments": list(options), "seconds": seconds}
        if done.returncode:
            lines = done.stderr.strip().splitlines()[-_LAST_LINES:]
            error = "\n".join([f"exit status {done.returncode}", *lines])
            print(error, flush=True)
            return result | {"error": error}
        return result | {"tables": json.loads(path.read_text(encoding="utf-8"))}


def as_markdown(found: Mapping[str, Any]) -> str:
    """Format all results, with a heading for each benchmark."""
    parts = ["# Benchmarks", found["machine"]]
    for name, result in found["benchmarks"].items():
        command = shlex.join(
            ["python", "-m", f"experiments.benchmarks.{name}", *result["arguments"]]
        )
        parts += [f"## {name}", f"`{command}`, {result['seconds']:.0f} s"]
        if "error" in result:
            parts.append(f"```\n{result['error']}\n```")
        else:
            parts += list(map(markdown, result["tables"])) or ["No table."]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
