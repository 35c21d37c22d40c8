"""Flights out of New York in 2013: three classes of arrival delay, by the eight inputs of the usual airline set."""

import csv
from datetime import date
from functools import partial

import numpy as np

from experiments.datasets.files import PublishedFile, local_copy
from experiments.datasets.info import multiclass_entry
from experiments.datasets.sources import SeededSplits
from experiments.datasets.tables import MISSING, Floats

_rdatasets = partial(
    PublishedFile, repository="vincentarelbundock/Rdatasets", commit="1dcc2bf5f955cc1224a3e1307256e1fe86b68dae"
)
_FLIGHTS = _rdatasets(
    path="csv/openintro/nycflights.csv", sha256="8113fb0ed79d21c77a8209f85105edaaeef0318c3f60e65e08922c4f88cc34da"
)
_PLANES = _rdatasets(
    path="csv/nycflights13/planes.csv", sha256="95a3cd5a64dc1c4ae0c002e6aec457084455ea5835d73368114285f79a66a65c"
)

_ON_TIME = 5.0  # minutes early or late


def read_flights(flights: PublishedFile, planes: PublishedFile) -> Floats:
    """
    Read flights of planes built in a known year: month, day of the month, day of the week (0 for Monday), minutes since
    midnight of departure and arrival, minutes in the air, miles, years since the plane was built; last 0 for early, 1
    for on time, 2 for late.
    """
    built = {plane["tailnum"]: plane["year"] for plane in _rows(planes) if plane["year"] not in {"", *MISSING}}
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
                *(60 * (int(flight[name]) // 100) + int(flight[name]) % 100 for name in ("dep_time", "arr_time")),
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


FLIGHTS = multiclass_entry(
    "flights",
    SeededSplits(partial(read_flights, _FLIGHTS, _PLANES), files=(_FLIGHTS, _PLANES)),
    N=27396,
    D=8,
    target="arrival of a flight against its schedule",
    classes=("more than 5 minutes early", "on time", "more than 5 minutes late"),
    license="none stated for the data",
    notes=(
        "A sample of the flights out of New York in 2013, in place of the airline set (2008, all of the US, two "
        "million rows) that has the same inputs: month, day, weekday (0 for Monday), departure and arrival (minutes "
        "since midnight, as they were, not as scheduled), minutes in the air, miles, age of the plane in years. The "
        "5339 of 32,735 flights by planes without a known year of construction are left out, most of them of two "
        "carriers (AA and MQ)."
    ),
)
