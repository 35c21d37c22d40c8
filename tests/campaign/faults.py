"""
Kills, full disks and damaged files: the results are right, or one of our errors is raised.

    killed       SIGKILL at any moment or in the midst of a write, and what a new process makes of what is left
    disk         writes that fail, on a full or a read-only file system (where none can be mounted, with a limit)
    damaged      checkpoints, states and cached data sets of other bytes or arrays, or something else in their place

A case makes one or several checks. It can be run again by its number, --seed NUMBER --cases 1, from
which all follows but what depends on the time.

    python -m campaign.faults [--cases 1000] [--minutes 60] [--seed 0] [--only killed] [--output
    FILE.json]
"""

import json
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from campaign import damage
from campaign.children import (
    CONTENT,
    NUM_BATCHES,
    PUBLISHED,
    STREAMS,
    TRAININGS,
    Child,
    Trained,
    cached_path,
    download,
    follow,
    restored,
    served,
    stream_parts,
    train,
    undisturbed,
    undisturbed_stream,
    values_of,
)
from campaign.judging import (
    Case,
    compared,
    of_ended,
    refusal,
    right,
    same_arrays,
    small_disk,
    whole,
    wrong,
)
from campaign.running import Outcome, options, tally, within
from gpflow_pep import StreamState
from gpflow_pep.saving.arrays_file import DIGEST, load_arrays
from gpflow_pep.training import fit

_DAMAGES = 15  # of one case
_DOWNLOAD = "data set"


# --- killed ---------------------------------------------------------------------------------------


def _dying(task: Callable[[], Any], call: str, number: int) -> Any:
    with damage.Disturbed(call, number, damage.die):
        return task()


def _dying_at(number: int) -> Callable[..., None]:
    """Called at every record or batch."""
    disturbed = damage.Disturbed("record", number, damage.die)
    return lambda *_: disturbed.act()


def killed(case: Case, folder: Path) -> list[Outcome]:
    """
    Kill up to three processes at one task, one after the other; a fourth one brings it to an end.
    """
    rng, found = case.rng, []
    path = folder / "c.npz"
    with served() as address:
        task: Callable[[], Any] = {
            **{name: lambda: train(case.subject, path) for name in TRAININGS},
            **{name: lambda: follow(case.subject, path) for name in STREAMS},
            _DOWNLOAD: lambda: download(folder, address),
        }[case.subject]
        for _ in range(int(rng.integers(1, 4))):
            ways = (
                ("any", "file")
                if case.subject == _DOWNLOAD
                else ("any", "file", "record", *damage.CALLS)
            )
            way, number, pause = (
                str(rng.choice(ways)),
                int(rng.integers(1, 15)),
                float(rng.uniform()),
            )
            if way in damage.CALLS:
                victim = Child(_dying, task, way, number * (12 if way == "write" else 1))
            elif way == "record":
                victim = Child(
                    train if case.subject in TRAININGS else follow,
                    case.subject,
                    path,
                    _dying_at(number),
                )
            else:
                victim = Child(task)
                while way == "file" and not path.exists() and not victim.has_ended():
                    time.sleep(0.001)
                time.sleep(pause * (0.3 if way == "file" or case.subject == _DOWNLOAD else 2.0))
                victim.kill()
            ended = victim.ended()
            as_meant = (
                right()
                if ended.code in (0, -signal.SIGKILL)
                else of_ended(ended, lambda _: right())
            )
            found.append(whole(path) or as_meant)
        least = _objective_of(path)
        ended = Child(task).ended()
    if case.subject in TRAININGS:
        found.append(of_ended(ended, lambda trained: compared(case.subject, trained, least)))
    elif case.subject in STREAMS:
        expected = undisturbed_stream(case.subject)[0]
        found.append(of_ended(ended, lambda state: same_arrays(state, expected)))
    else:
        found.append(of_ended(ended, _is_content))
    return found


def _objective_of(path: Path) -> float:
    """The last one of a checkpoint that is there."""
    if not path.exists():
        return -np.inf
    about = load_arrays(path, "the file").get("about")
    objective = [] if about is None else json.loads(str(about))["history"]["objective"]
    return float(objective[-1]) if objective else -np.inf


def _is_content(content: bytes) -> Outcome:
    return right() if content == CONTENT else wrong("wrong data", f"{len(content)} bytes")


# --- disk -----------------------------------------------------------------------------------------


def disk(case: Case, folder: Path) -> list[Outcome]:
    """Writes fail in the midst of it; then they succeed again, and it goes on from the file."""
    task = {**dict.fromkeys(TRAININGS, _train_on_disk), **dict.fromkeys(STREAMS, _follow_on_disk)}
    if case.subject != _DOWNLOAD:
        if case.subject in TRAININGS:
            undisturbed(case.subject)  # by a child of this process, and not by one of a child's
        else:
            undisturbed_stream(case.subject)
        ended = Child(task[case.subject], case, folder).ended()
    else:
        with served() as address:
            ended = Child(_download_on_disk, case, folder, address).ended()
    if ended.code != 0:
        return [of_ended(ended, lambda _: right())]
    outcomes: list[Outcome] = ended.value
    return outcomes


def _disturbed(
    case: Case, folder: Path, places: int, run: Callable[[Callable[..., None]], Any]
) -> tuple[Any, int]:
    """
    Return what a run returns while its writes fail from one of these places on, and how often they
    did. The run calls the function that it is given at every record or batch.
    """
    rng = case.rng
    way, place = str(rng.choice(["fill", "forbid", *damage.CALLS])), int(rng.integers(1, places))
    if way in damage.CALLS:
        error, lasting = damage.failing(int(rng.choice(damage.ERRORS))), bool(rng.integers(2))
        number = place * (8 if way == "write" else 1)
        with damage.Disturbed(way, number, error, lasting) as failing:
            return run(lambda *_: None), min(failing.times, 1)
    space = small_disk(folder, rng)
    changed = damage.Disturbed("record", place, getattr(space, way))
    found = run(lambda *_: changed.act())
    space.allow()
    return found, changed.times


def _train_on_disk(case: Case, folder: Path) -> list[Outcome]:
    path = folder / "c.npz"
    try:
        trained, told = _disturbed(case, folder, 12, lambda act: train(case.subject, path, act))
    except ValueError as error:
        return [refusal(error, f"checkpoint must be a file that can be written, got {str(path)!r}")]
    found = [compared(case.subject, trained)]
    if len(trained.warned) != told or not all(str(path) in each for each in trained.warned):
        found.append(wrong("not told once", f"{told} expected: {trained.warned}"))
    found += _left(folder, path)
    least = _objective_of(path)
    return [*found, compared(case.subject, train(case.subject, path), least)]


def _left(folder: Path, path: Path) -> list[Outcome]:
    """Return the errors found in a folder."""
    others = [each.name for each in folder.iterdir() if each not in (path, folder / "filler")]
    torn = whole(path)
    return ([] if torn is None else [torn]) + ([wrong("left behind", others)] if others else [])


def _follow_on_disk(case: Case, folder: Path) -> list[Outcome]:
    path = folder / "c.npz"
    failed: list[str] = []
    state, _ = _disturbed(
        case, folder, NUM_BATCHES, lambda act: follow(case.subject, path, act, failed)
    )
    expected = undisturbed_stream(case.subject)[0]
    found = [same_arrays(state, expected), *_left(folder, path)]
    found += [
        Outcome("refused" if str(path) in each else "refused obscurely", np.nan, each)
        for each in failed
    ]
    return [*found, same_arrays(follow(case.subject, path), expected)]


def _download_on_disk(case: Case, folder: Path, address: str) -> list[Outcome]:
    rng, (cache, local) = case.rng, (folder / "cache", folder / "local")
    for each in (cache, local):
        each.mkdir()
    space = small_disk(cache, rng, len(CONTENT) // 500)
    getattr(space, str(rng.choice(["fill", "forbid"])))()
    try:
        found = [_is_content(download(folder, address))]
    except Exception as error:
        found = [refusal(error, cache)]
    space.allow()
    return [*found, _is_content(download(folder, address))]


# --- damaged --------------------------------------------------------------------------------------


def damaged(case: Case, folder: Path) -> list[Outcome]:
    """Damage a file in so many ways, and load it."""
    others = [undisturbed("TSVGP").last, undisturbed_stream("StreamingSGPR")[1]]
    if case.subject == _DOWNLOAD:
        with served() as address:
            ended = Child(_damaged_downloads, case, folder, address).ended()
    else:
        (undisturbed if case.subject in TRAININGS else undisturbed_stream)(case.subject)
        ended = Child(_damaged_files, case, folder, others).ended()
    if ended.code != 0:
        return [of_ended(ended, lambda _: right())]
    outcomes: list[Outcome] = ended.value
    return outcomes


_UNSEEN = ("members swapped", "another number", "another text", "one missing")  # but for the digest


def _put(
    path: Path, content: bytes, others: list[bytes], rng: np.random.Generator
) -> tuple[str, Path]:
    """Damage in one way, and return its name and the path to use."""
    of_arrays = (*damage.MEMBERS, "of another", "packed") if others else ()
    way = str(rng.choice([*damage.BYTES, *of_arrays, *damage.THINGS]))
    if way in damage.THINGS:
        return way, damage.put(way, path)
    if way in damage.BYTES:
        content = damage.BYTES[way](content, rng)
    elif way == "of another":
        content = others[int(rng.integers(len(others)))]
    elif way == "packed":
        content = damage.compressed(content)
    else:
        check = DIGEST if way in _UNSEEN or rng.integers(2) else ""
        content = damage.rewritten(content, lambda arrays: damage.changed(way, arrays, rng), check)
    path.write_bytes(content)
    return way, path


def _damaged_files(case: Case, folder: Path, others: list[bytes]) -> list[Outcome]:
    rng, found = case.rng, []
    is_training = case.subject in TRAININGS
    known = undisturbed(case.subject) if is_training else None
    for number in range(_DAMAGES):
        place = folder / str(number)
        place.mkdir()
        content = (
            undisturbed_stream(case.subject)[1]
            if known is None
            else (known.midway, known.last)[rng.integers(2)]
        )
        foreign = [
            each for each in others if each != content and (known is None or each != known.last)
        ]
        way, path = _put(place / "c.npz", content, foreign, rng)
        written = path.read_bytes() if path.is_file() else b""
        with _alarm(30):
            outcome = (_train_damaged if is_training else _restore_damaged)(
                case.subject, path, content
            )
        if (
            outcome.verdict == "refused"
            and (path.read_bytes() if path.is_file() else b"") != written
        ):
            outcome = wrong("file changed", way)
        found.append(outcome._replace(message=f"{way}: {outcome.message}"))
    return found


class _Hung(BaseException):
    """Which nothing takes for an error of its own."""


class _alarm:
    """An error where something takes more seconds."""

    def __init__(self, seconds: int):
        self._seconds = seconds

    def __enter__(self) -> None:
        def ring(*_: object) -> None:
            raise _Hung("it takes too long")

        signal.signal(signal.SIGALRM, ring)
        signal.alarm(self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def _train_damaged(name: str, path: Path, content: bytes) -> Outcome:
    training = TRAININGS[name]
    model = training.make()
    before = values_of(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fit(
                model, training.rows, checkpoint=path, checkpoint_seconds=np.inf, **training.options
            )
    except _Hung as error:
        return wrong("hung", error)
    except Exception as error:
        outcome = refusal(error, path)
        changed = same_arrays(values_of(model), before).verdict != "right"
        return wrong("model changed", outcome.message) if changed else outcome
    rows = [] if training.rows is None else [training.rows]
    evaluated = float(model.maximum_log_likelihood_objective(*rows))
    return compared(name, Trained(values_of(model), result.objective, result.status, [], evaluated))


def _restore_damaged(name: str, path: Path, content: bytes) -> Outcome:
    parts = stream_parts(name)
    before = {
        f"{number}{key}": value
        for number, part in enumerate(parts)
        for key, value in values_of(part).items()
    }
    try:
        model = STREAMS[name].from_state(StreamState.load(path), *parts)
    except _Hung as error:
        return wrong("hung", error)
    except Exception as error:
        after = {
            f"{number}{key}": value
            for number, part in enumerate(parts)
            for key, value in values_of(part).items()
        }
        changed = same_arrays(after, before).verdict != "right"
        return (
            wrong("parts changed", error)
            if changed
            else refusal(error, path, "the state", "this state")
        )
    intact = path.with_name("intact.npz")
    intact.write_bytes(content)
    return same_arrays(model.state.as_dict(), restored(name, intact).state.as_dict())


def _damaged_downloads(case: Case, folder: Path, address: str) -> list[Outcome]:
    rng, found = case.rng, []
    for number in range(_DAMAGES):
        place = folder / str(number)
        is_local, reachable = bool(rng.integers(2)), bool(rng.integers(3))
        path = place / "local" / PUBLISHED.relative_path if is_local else cached_path(place)
        path.parent.mkdir(parents=True)
        way, _ = _put(path, CONTENT, [], rng)
        try:
            with _alarm(30):
                outcome = _is_content(
                    download(place, address if reachable else "http://127.0.0.1:9")
                )
        except _Hung as error:
            outcome = wrong("hung", error)
        except Exception as error:
            outcome = refusal(error, place, PUBLISHED.relative_path)
        found.append(outcome._replace(message=f"{way}, {path.name}: {outcome.message}"))
    return found


# --- all of them ----------------------------------------------------------------------------------

SUBJECTS = (*TRAININGS, *STREAMS, _DOWNLOAD)
KINDS: dict[str, Callable[[Case, Path], list[Outcome]]] = {
    "killed": killed,
    "disk": disk,
    "damaged": damaged,
}


def case_of(seed: int, only: str | None = None) -> Case:
    """Make the case of a seed: the kinds in turn."""
    kind = only or list(KINDS)[seed % len(KINDS)]
    return Case(seed, kind, str(np.random.default_rng(seed).choice(SUBJECTS)))


def run(case: Case) -> list[Outcome]:
    """Run the case in a separate folder and judge each result."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        try:
            return KINDS[case.kind](case, Path(folder))
        except Exception as error:
            return [wrong("raw error", f"{type(error).__name__}: {error}")]


def main() -> None:
    """Run cases and print how they ended."""
    parser = options(__doc__)
    parser.add_argument("--only", choices=KINDS, help="cases of this kind only")
    arguments, found = parser.parse_args(), []
    for seed in within(arguments.minutes, range(arguments.seed, arguments.seed + arguments.cases)):
        case = case_of(seed, arguments.only)
        outcomes = run(case)
        found.append((case, outcomes))
        for outcome in outcomes:
            if outcome.verdict not in ("right", "refused"):
                print(*case, *outcome, flush=True)
    if arguments.output:
        failed = [
            {**case._asdict(), **outcome._asdict()}
            for case, outcomes in found
            for outcome in outcomes
            if outcome.verdict not in ("right", "refused")
        ]
        arguments.output.write_text(json.dumps(failed, indent=1))
    print_table(found)


def print_table(found: list[tuple[Case, list[Outcome]]]) -> None:
    """Print how many checks ended how, and the worst errors of those that are right."""
    print(
        f"\n{'':14}{'cases':>7}{'checks':>8}{'right':>7}{'refused':>9}{'other':>7}{'worst error / tolerated':>25}"
    )
    for kind in (*KINDS, "all"):
        of_kind = [outcomes for case, outcomes in found if kind in (case.kind, "all")]
        outcomes = [outcome for each in of_kind for outcome in each]
        (rights, refused, other), worst = tally(outcomes, ("right", "refused"))
        print(f"{kind:14}{len(of_kind):7}{len(outcomes):8}{rights:7}{refused:9}{other:7}{worst}")


if __name__ == "__main__":
    main()
