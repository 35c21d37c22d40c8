"""
Flights out of New York in 2013: three classes of arrival delay, by the eight inputs of the usual
airline set.
"""

import csv
from datetime import date

import numpy as np

from experiments.datasets.files import PublishedFile, local_copy
from experiments.datasets.tables import MISSING, Floats

_ON_TIME = 5.0  # minutes early or late


def read_flights(flights: PublishedFile, planes: PublishedFile) -> Floats:
    """
    Read flights of planes built in a known year: month, day of the month, day of the week (0 for
    Monday), minutes since midnight of departure and arrival, minutes in the air, miles, years since
    the plane was built; last 0 for early, 1 for on time, 2 for late.
    """
    built = {
        plane["tailnum"]: plane["year"]
        for plane in _rows(planes)
        if plane["year"] not in {"", *MISSING}
    }
    rows = []
    for flight in _rows(flights):
        if flight["tailnum"] not in built:
            continue
        year, month, day = (int(flight[name]) for name in ("year", "month", "day"))
        delay = float(flight["arr_delay"])
        rows.append(
            [
                month,
                day,
                date(year, month, day).weekday(),
                *(
                    60 * (int(flight[name]) // 100) + int(flight[name]) % 100
                    for name in ("dep_time", "arr_time")
                ),
                float(flight["air_time"]),
                float(flight["distance"]),
                year - int(built[flight["tailnum"]]),
                0.0 if delay < -_ON_TIME else 1.0 if delay <= _ON_TIME else 2.0,
            ]
        )
    return np.array(rows, dtype=np.float64)  # [N, D + 1]


def _rows(file: PublishedFile) -> list[dict[str, str]]:
    """Read the rows of a comma-separated table, by the names in its first line."""
    with local_copy(file).open(newline="", encoding="ascii") as lines:
        return list(csv.DictReader(lines))
