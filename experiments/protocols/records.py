"""Files in TOML and JSON."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MOST_DOTS = 100  # of a key; the memory that a key takes grows with the square of their number


def read_toml(path: Path) -> dict[str, Any]:
    """
    Read a file.

    :raises ValueError: if it is not TOML.
    """
    return _read(path, "TOML", _parsed_toml)


def read_json(path: Path) -> dict[str, Any]:
    """
    Read a file whose content is an object.

    :raises ValueError: if it is not JSON, or another value.
    """
    found = _read(path, "JSON", json.loads)
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a record: it holds a {type(found).__name__}.")
    return found


def _parsed_toml(text: str) -> dict[str, Any]:
    if any(part.count(".") > _MOST_DOTS for part in re.split(r"[,=\n\[\]{}]", text)):
        raise ValueError(f"a key has more than {_MOST_DOTS} dots")
    return tomllib.loads(text)


def _read(path: Path, kind: str, parse: Callable[[str], Any]) -> Any:
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file in {kind}.")
    try:
        return parse(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not {kind}: {error}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply to be read as {kind}.") from error
