"""The machine of a benchmark: its description, a limit to one core, and fresh processes."""

import os
import platform
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import psutil
import tensorflow as tf
from threadpoolctl import threadpool_limits

T = TypeVar("T")
PACKAGES = ("gpflow_pep", "gpflow", "tensorflow", "numpy", "scipy")


def use_one_core() -> None:
    """
    Run TensorFlow, BLAS and k-means in one thread; call it before TensorFlow computes anything.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threadpool_limits(1)
    tf.linalg.cholesky(tf.eye(2, dtype=tf.float64))  # TensorFlow initializes


def in_process(function: Callable[..., T], *arguments: Any, one_core: bool = False) -> T:
    """Call a function in a process of its own, on one core or as many as TensorFlow takes."""
    begin = use_one_core if one_core else None
    with ProcessPoolExecutor(1, get_context("spawn"), begin) as pool:
        return pool.submit(function, *arguments).result()


def machine() -> str:
    """Describe processor, load and versions in two lines."""
    known = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", known.read_text() if known.is_file() else "")
    processor = named[1] if named else platform.processor() or platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{processor}, {os.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}; "
        f"{platform.system()}\nPython {platform.python_version()}, {versions}"
    )
