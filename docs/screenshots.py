"""
Take screenshots of the site, as on a screen and on a telephone:
`python docs/screenshots.py FOLDER`.

Look at them: tables and pictures no wider than the text, formulas drawn, code not cut off. Needs
the site (make docs) and headless Chromium (on Debian and Ubuntu: apt install
chromium-headless-shell).
"""

import argparse
import shutil
import subprocess
from pathlib import Path

PAGES = (
    "index",
    "quickstart",
    "gallery",
    "recipes/index",
    "recipes/plot_07_counts",
    "estimators",
    "benchmarks",
    "results",
    "guarantees",
    "derivations",
    "api/index",
    "api/regression",
    "api/estimators",
    "notebooks/classification",
)
WIDTHS = {1366: 768, 400: 800}  # width and height of a window, in pixels
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SITE = Path(__file__).parent / "_build" / "html"


def main() -> None:
    """Take a screenshot of each page at each width."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where PNG files are written")
    parser.add_argument(
        "--pages", nargs="*", default=PAGES, help="pages, without .html"
    )
    parser.add_argument(
        "--height", type=int, help="height of the window, to see more of a page"
    )
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        parser.error(f"one of these browsers must be installed: {', '.join(BROWSERS)}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for page in asked.pages:
        address = (SITE / f"{page}.html").resolve(strict=True).as_uri()
        for width, height in WIDTHS.items():
            target = asked.folder / f"{page.replace('/', '-')}-{width}.png"
            options = [
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                "--virtual-time-budget=10000",
                f"--window-size={width},{asked.height or height}",
                f"--screenshot={target}",
            ]
            subprocess.run(
                [browser, *options, address],
                check=True,
                capture_output=True,
                timeout=120,
            )
            print(target)


if __name__ == "__main__":
    main()
