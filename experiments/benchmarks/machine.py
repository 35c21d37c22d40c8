"""The machine of a benchmark: its description, and a limit to one core."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import tensorflow as tf
from threadpoolctl import threadpool_limits

PACKAGES = ("gpflow_pep", "gpflow", "tensorflow", "numpy", "scipy")


def use_one_core() -> None:
    """Run TensorFlow, BLAS and k-means in one thread; call it before TensorFlow computes anything."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threadpool_limits(1)
    tf.linalg.cholesky(tf.eye(2, dtype=tf.float64))  # TensorFlow initializes


def processor() -> str:
    """Describe processor and number of cores."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def machine() -> str:
    """Describe processor, load and versions in two lines."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{processor()}, of which one is used, load {psutil.getloadavg()[0]:.1f}; {platform.system()}\n"
        f"Python {platform.python_version()}, {versions}"
    )
