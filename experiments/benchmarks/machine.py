"""The machine of a benchmark: its description, and a limit to one core."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import tensorflow as tf
from threadpoolctl import threadpool_limits

PACKAGES = ("gpflow_pep", "gpflow", "tensorflow", "numpy", "scipy")


def use_one_core() -> None:
    """Run TensorFlow, BLAS and k-means in one thread; call it before TensorFlow computes anything."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threadpool_limits(1)
    tf.linalg.cholesky(tf.eye(2, dtype=tf.float64))  # TensorFlow initializes


def machine() -> str:
    """Describe processor, number of cores, load and versions in two lines."""
    names = [
        line.split(":", 1)[1].strip()
        for path in [Path("/proc/cpuinfo")]
        if path.is_file()
        for line in path.read_text().splitlines()
        if line.startswith("model name")
    ]
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    processor = names[0] if names else platform.processor() or platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{processor}, {os.cpu_count()} cores, of which one is used{load}; {platform.system()}\n"
        f"Python {platform.python_version()}, {versions}"
    )
