"""Size and style of the pictures: they are read at the width of the text, and of a telephone."""

from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 6.4  # inches; 960 pixels, of which the site shows 740 and a telephone 370
DPI = 150

plt.rcParams |= {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
