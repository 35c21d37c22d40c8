"""
Write the inventories of names that Sphinx links to in other documentation:
`python docs/inventories.py`.

They are made from the installed packages, since no network is needed to build the site; renew them
with the versions.
"""

import builtins
import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import gpflow
import tensorflow as tf

FOLDER = Path(__file__).parent / "inventories"
# Name, role of Sphinx's domain "py", address below the base of intersphinx_mapping.
Entry = tuple[str, str, str]


def role(value: Any) -> str | None:
    """Return the role of a class or function; None for other values."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) else None


def of_gpflow() -> Iterator[Entry]:
    """Yield public names of all modules, and public methods, as GPflow's site lists them."""
    modules = [
        info.name
        for info in pkgutil.walk_packages(gpflow.__path__, "gpflow.")
        if "._" not in info.name
    ]
    for name in ["gpflow", *modules]:
        module = importlib.import_module(name)
        page = f"{name.replace('.', '/')}/index.html"
        yield name, "module", f"{page}#module-{name}"
        for own, value in vars(module).items():
            kind, full = role(value), f"{name}.{own}"
            if (
                own.startswith("_")
                or kind is None
                or not getattr(value, "__module__", "").startswith("gpflow")
            ):
                continue
            yield full, kind, f"{page}#{full}"
            for method in vars(value) if inspect.isclass(value) else ():
                if not method.startswith("_"):
                    yield f"{full}.{method}", "method", f"{page}#{full}.{method}"


def of_tensorflow(module: ModuleType = tf, name: str = "tf") -> Iterator[Entry]:
    """
    Yield the public names of TensorFlow, a page each, without Keras, version 1 and raw operations.
    """
    for own, value in vars(module).items():
        full = f"{name}.{own}"
        if own.startswith("_") or own in ("keras", "compat", "raw_ops"):
            continue
        if inspect.ismodule(value):
            if value.__name__.startswith("tensorflow._api"):
                yield full, "module", full[3:].replace(".", "/")
                yield from of_tensorflow(value, full)
        elif (kind := role(value)) is not None:
            yield full, kind, full[3:].replace(".", "/")


def of_python() -> Iterator[Entry]:
    """Yield the builtin classes, exceptions and functions."""
    for name, value in vars(builtins).items():
        if not name.startswith("_") and (kind := role(value)) is not None:
            page = "exceptions" if kind == "exception" else "functions"
            yield name, kind, f"library/{page}.html#{name}"


def write(name: str, entries: Iterator[Entry]) -> None:
    """Write an inventory of version 2 (Sphinx's `InventoryFile`)."""
    lines = sorted(
        {f"{entry} py:{kind} 1 {address} -\n" for entry, kind, address in entries}
    )
    about = (
        f"# Project: {name}\n# Version: {version(name) if name != 'python' else '3'}\n"
    )
    header = (
        f"# Sphinx inventory version 2\n{about}# The remainder of this file is compressed using "
        "zlib.\n"
    )
    (FOLDER / f"{name}.inv").write_bytes(
        header.encode() + zlib.compress("".join(lines).encode(), 9)
    )


if __name__ == "__main__":
    write("gpflow", of_gpflow())
    write("tensorflow", of_tensorflow())
    write("python", of_python())
