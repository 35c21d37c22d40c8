"""Comparison of methods over tables: ranks, clipped means, distances to the best, and seconds."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.stats import rankdata

from experiments.benchmarks.printing import Table
from experiments.datasets import Floats

GP_PEERS = ("sklearn-gp", "sgpr", "svgp")
_CLIP = 3.0  # nats: larger scores are set to it
_NEAR = 0.02  # nats above the best GP peer
_WORSE = 0.05  # nats above `linear`
_BEHIND = 0.03  # nats above the best GP peer or `linear`

Record = dict[str, Any]
Rows = tuple[Floats, Any]
"""X [N, D] and y [N]."""


def num_classes(y: Any) -> int:
    """Return the number of classes of labels; 0 for numbers."""
    return 0 if y.dtype.kind == "f" else len(np.unique(y))


def summary(records: Sequence[Record]) -> list[Table]:
    """
    Print a line for each method and one for each table, of regressions and of classifications.
    """
    printed = []
    for title, has_classes in (("regressions", False), ("classifications", True)):
        chosen = complete([each for each in records if bool(each["classes"]) == has_classes])
        if chosen:
            printed += _compared(title, chosen)
    return printed


def complete(records: Sequence[Record]) -> list[Record]:
    """Return the records of the splits that all methods have."""
    methods: dict[tuple[str, int], set[str]] = {}
    for each in records:
        methods.setdefault((each["table"], each["seed"]), set()).add(each["method"])
    everyone = {each["method"] for each in records}
    return [each for each in records if methods[each["table"], each["seed"]] == everyone]


def means(records: Sequence[Record], key: str) -> Floats:
    """
    Return means over the seeds [tables, methods] of an entry, infinite if one is missing; in order
    of appearance.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for each in records:
        found.setdefault((each["table"], each["method"]), []).append(each.get(key, np.inf))
    tables, methods = (dict.fromkeys(names) for names in zip(*found, strict=True))
    values = [[np.mean(found[table, method]) for method in methods] for table in tables]
    return np.nan_to_num(values, nan=np.inf, posinf=np.inf)


def _compared(title: str, records: Sequence[Record]) -> list[Table]:
    records = sorted(records, key=itemgetter("N", "table"))
    tables = {each["table"]: (each["N"], each["D"]) for each in records}
    methods = list(dict.fromkeys(each["method"] for each in records))
    nlpd, error, seconds = (means(records, key) for key in ("nlpd", "error", "seconds"))  # [T, K]
    of_svgp = seconds[:, [name == "svgp" for name in methods]].min(axis=1, initial=np.inf)  # [T]
    warned = [each["method"] for each in records if each.get("warnings")]
    best = np.minimum(nlpd.min(axis=1), _CLIP)  # [T]
    gps, linear = (
        nlpd[:, np.isin(methods, names)].min(axis=1, initial=np.inf)
        for names in (GP_PEERS, ("linear",))
    )  # [T] each
    splits = len({(each["table"], each["seed"]) for each in records})
    heading = (
        f"{title}: {len(tables)} tables, {splits} splits; tables at most {_NEAR} nats above the "
        f"best GP peer, more than {_WORSE} above linear, more than {_BEHIND} above the best of "
        "both, seconds over SVGP's at most, fits with a warning, tables without a score"
    )
    of_methods = Table(
        heading,
        {
            "method": "<24",
            "rank": ".3f",
            "mean": ".3f",
            "to best": ".3f",
            "error": ".3f",
            "near GPs": "d",
            "worse": "d",
            "behind": "d",
            "median s": ".3f",
            "most s": ".3f",
            "of SVGP": ".3f",
            "warned": "d",
            "no score": "d",
        },
    )
    of_each = zip(methods, nlpd.T, error.T, seconds.T, rankdata(nlpd, axis=1).T, strict=True)
    for method, scores, errors, times, rank in of_each:
        clipped = np.minimum(scores, _CLIP)
        of_methods.add(
            method,
            rank.mean(),
            clipped.mean(),
            np.mean(clipped - best),
            np.minimum(errors, _CLIP).mean(),
            np.count_nonzero(scores <= gps + _NEAR),
            np.count_nonzero(scores > linear + _WORSE),
            np.count_nonzero(scores > np.minimum(gps, linear) + _BEHIND),
            np.median(times),
            times.max(),
            np.max(times / of_svgp),
            warned.count(method),
            np.count_nonzero(np.isinf(scores)),
        )
    forms = {"table": "<16", "N": "d", "D": "d"} | dict.fromkeys(methods, ".3f")
    of_tables = Table(f"{title}: NLPD", forms)
    for (name, size), scores in zip(tables.items(), nlpd.tolist(), strict=True):
        of_tables.add(name, *size, *scores)
    return [of_methods, of_tables]
