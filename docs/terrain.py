"""Write docs/terrain.csv, places of a mountain range and their heights: `python docs/terrain.py`.

The elevation model of the Jacksboro fault, in Tennessee, comes with Matplotlib.
"""

from pathlib import Path

import numpy as np
from matplotlib.cbook import get_sample_data

ROWS = 600

if __name__ == "__main__":
    with get_sample_data("jacksboro_fault_dem.npz") as file:
        heights, degree = file["elevation"], file["dx"]
    step = (
        degree * 111.2
    )  # km from row to row, from the north; columns are closer, at 36.6 degrees of latitude
    places = np.random.default_rng(0).choice(heights.size, ROWS, replace=False)
    row, column = np.unravel_index(places, heights.shape)
    east, north = column * step * np.cos(np.radians(36.6)), (len(heights) - row) * step
    table = np.column_stack([east, north, heights[row, column]])
    path = Path(__file__).parent / "terrain.csv"
    np.savetxt(
        path,
        table,
        fmt=["%.2f", "%.2f", "%d"],
        delimiter=",",
        header="east_km,north_km,height_m",
        comments="",
    )
