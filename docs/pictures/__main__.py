"""
Draw pictures of README and documentation into docs/images:
`PYTHONPATH=. python docs/pictures [NAME ...]`.
"""

import sys

import matplotlib.pyplot as plt

import measurements
import models
from style import DPI, ROOT

if __name__ == "__main__":
    for draw in (*models.PICTURES, *measurements.PICTURES):
        if draw.__name__ in sys.argv[1:] or len(sys.argv) == 1:
            path = ROOT / "docs" / "images" / f"{draw.__name__}.png"
            draw().savefig(path, dpi=DPI, pil_kwargs={"optimize": True})
            plt.close("all")
            print(path.name, path.stat().st_size, flush=True)
