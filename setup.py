"""Derive links from the address of the repository, `url` of setup.cfg; the rest stands there.

The README of the package gets absolute links, for readers of an index.
"""

import configparser
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PICTURE = re.compile(r"(!\[[^\]]*\]\()(?!https?:|#)")
LINK = re.compile(r"(\]\()(?!https?:|#)")

settings = configparser.ConfigParser(interpolation=None)
settings.read(ROOT / "setup.cfg", encoding="utf-8")
address = settings["metadata"]["url"]
readme = (ROOT / "README.md").read_text(encoding="utf-8")
readme = PICTURE.sub(rf"\1{address}/raw/main/", readme)
readme = LINK.sub(rf"\1{address}/blob/main/", readme)

setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    project_urls={
        "Documentation": f"{address}/blob/main/docs/index.md",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    },
)
