"""Jobs of a protocol that take a moment: few values on each axis, few rows, few iterations."""

from experiments.papers.grid import Job

_SIZES = {
    "regression": {"max_train": 60, "M": 4, "maxiter": 2},
    "classification": {"max_train": 40, "maxiter": 2},
    "streaming": {
        "max_train": 100,
        "first": 40,
        "batch_size": 30,
        "M": 6,
        "window": 60,
        "maxiter": 1,
    },
    "labeling": {"additions": 4, "per_round": 2, "M": 4, "maxiter": 1},
    "exactness": {"rows": 60, "batches": 3},
    "alpha_choice": {"max_train": 60, "M": 4, "maxiter": 1},
    "cluster_alphas": {"max_train": 60, "M": 4, "clusters": 2, "maxiter": 1},
}
_KEPT = {
    "method": 2,
    "alpha": 2,
    "m": 2,
    "way": 2,
    "blocks": 2,
    "lengthscales": 2,
    "kernel_variance": 2,
}


def toy(jobs):
    """Return the jobs with the first values of each axis, at toy size; labels stay."""
    kept = {}
    for job in jobs:
        for axis, value in job.labels.items():
            values = kept.setdefault(axis, [])
            if axis == "alpha" and value in (0.2, 0.01):
                continue
            if value not in values and len(values) < _KEPT.get(axis, 1):
                values.append(value)
    few = [job for job in jobs if all(value in kept[axis] for axis, value in job.labels.items())]
    return [Job(job.labels, job.changed(_size(job)).cell) for job in few]


def _size(job):
    settings = job.cell.updates
    size = dict(_SIZES[job.cell.experiment])
    if job.cell.experiment == "classification":
        size |= {"M": 4} if settings.get("M") is not None else {}
        size |= {"batch_size": 20} if settings.get("batch_size") else {}
        size |= {"maxiter": 0} if settings.get("maxiter") == 0 else {}
    if settings.get("batch_size") and job.cell.experiment == "regression":
        size |= {"batch_size": 20}
    if settings.get("block_size"):
        size |= {"block_size": 20}
    if job.cell.experiment == "streaming":
        size |= {"first_maxiter": 1}
    return size
