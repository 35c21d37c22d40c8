"""Comparison of methods over tables: ranks, clipped means, distances to the best, and seconds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from experiments.benchmarks.printing import Table
from experiments.datasets.tables import Floats

CLIP = 3.0
"""Largest score that counts in means."""

GP_PEERS = ("sklearn-gp", "sgpr", "svgp")
_NEAR, _WORSE = 0.02, 0.05  # nats

Record = dict[str, Any]


def summary(records: Sequence[Record]) -> list[Table]:
    """Print a line for each method and one for each table, of regressions and of classifications."""
    printed = []
    for title, has_classes in (("regressions", False), ("classifications", True)):
        chosen = complete([each for each in records if bool(each["classes"]) == has_classes])
        if chosen:
            printed += [_of_methods(title, chosen), _of_tables(title, chosen)]
    return printed


def complete(records: Sequence[Record]) -> list[Record]:
    """Return the records of the splits that all methods have."""
    methods: dict[tuple[str, int], set[str]] = {}
    for each in records:
        methods.setdefault((each["table"], each["seed"]), set()).add(each["method"])
    everyone = {each["method"] for each in records}
    return [each for each in records if methods[each["table"], each["seed"]] == everyone]


def of_tables(records: Sequence[Record], key: str) -> tuple[list[str], list[str], Floats]:
    """Return tables by size, methods, and the means over seeds of an entry [tables, methods], infinite if missing."""
    sizes = {each["table"]: each["N"] for each in records}
    names = sorted(sizes, key=lambda name: sizes[name])
    methods = list(dict.fromkeys(each["method"] for each in records))
    values: dict[tuple[str, str], list[float]] = {}
    for each in records:
        value = each.get(key)
        score = np.inf if value is None or np.isnan(value) else value
        values.setdefault((each["table"], each["method"]), []).append(score)
    found = [[np.mean(values[name, method]) for method in methods] for name in names]
    return names, methods, np.array(found)


def _of_methods(title: str, records: Sequence[Record]) -> Table:
    names, methods, nlpd = of_tables(records, "nlpd")  # [T, K]
    ranks = rankdata(nlpd, axis=1)
    clipped = np.minimum(nlpd, CLIP)
    beyond = clipped - clipped.min(axis=1, keepdims=True)
    errors = np.minimum(of_tables(records, "error")[2], CLIP)
    peers = [place for place, method in enumerate(methods) if method in GP_PEERS]
    linear = methods.index("linear") if "linear" in methods else None
    columns = dict.fromkeys(("rank", "mean", "to best", "error"), ".3f")
    columns |= {f"near GPs, of {len(names)}": "d", "worse than linear": "d"}
    columns |= {"median s": ".2f", "most s": ".1f", "warned": "d", "no score": "d"}
    splits = len({(each["table"], each["seed"]) for each in records})
    table = Table(
        f"{title}: {len(names)} tables, {splits} splits; near: at most {_NEAR} nats above the best GP peer, "
        f"worse: more than {_WORSE} nats",
        {"method": "<24"} | columns,
    )
    for place, method in enumerate(methods):
        own = [each for each in records if each["method"] == method]
        seconds = [each.get("seconds", np.inf) for each in own]
        near = worse = None
        if peers:
            best = nlpd[:, peers].min(axis=1)
            near = int(np.sum(nlpd[:, place] <= best + _NEAR))
        if linear is not None:
            worse = int(np.sum(nlpd[:, place] > nlpd[:, linear] + _WORSE))
        means = (values[:, place].mean() for values in (ranks, clipped, beyond, errors))
        warned = sum(bool(each.get("warnings")) for each in own)
        table.add(
            method,
            *map(float, means),
            near,
            worse,
            float(np.median(seconds)),
            max(seconds),
            warned,
            sum(each.get("nlpd") is None for each in own),
        )
    return table


def _of_tables(title: str, records: Sequence[Record]) -> Table:
    names, methods, nlpd = of_tables(records, "nlpd")
    sizes = {each["table"]: (each["N"], each["D"]) for each in records}
    table = Table(
        f"{title}: NLPD", {"table": "<16", "N": "d", "D": "d"} | dict.fromkeys(methods, ".3f")
    )
    for name, scores in zip(names, nlpd.tolist(), strict=True):
        table.add(name, *sizes[name], *scores)
    return table
