"""One process of a run is killed: the same command ends with the bits of an undisturbed run.

Nothing is left behind. The default tests kill after the first epoch; `make faults` kills at random moments,
and a worker of `--jobs 2`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.events import Done, EpochEnded, Event
from ssmlbench.grid.engines.slurm import ENDED
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.fork_server import fork_server
from ssmlbench.runs.resolve import resolve
from tests.faults.test_whole_commands import QUICK, Place, topics  # noqa: F401
from tests.faults.world import numbers

SEED = int(os.environ.get("FAULT_SEED", "0"))
TRIES = 4
PATIENCE = 600
"""Seconds after which a test gives up, on a machine however slow."""
FIELDS: dict[str, Any] = {"dataset": "noise", "method": "cap", "pi": 0.5, "epochs": 6}
ROLES = ("judge", "training", "server")
SIGNALS = (signal.SIGKILL, signal.SIGTERM)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="this system does not list children"
)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, file.read_text().split())
    return sorted(found)


def processes(server: int) -> dict[str, list[int]]:
    """The processes of the runs of a fork server, by what they do."""
    judges = children(server)
    training = [pid for judge in judges for pid in children(judge)]
    return {"server": [server], "judge": judges, "training": training}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ENDED
    except OSError:
        return True


def wait_until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not (ended := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return ended


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return Plugins([Path(__file__).with_name("cheats.py")])


@pytest.fixture(scope="module")
def undisturbed(plugins: Plugins, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Any:
    spec, results = resolve(plugins, {}, **FIELDS), tmp_path_factory.mktemp("undisturbed")
    assert isinstance(run_one(spec, plugins, RunContext(results, "cpu", 1), lambda e: None), Done)
    return numbers(RunFolder.of(results, spec))


def check(
    plugins: Plugins, results: Path, expected: Any, strike: Callable[[Event], set[int]]
) -> None:
    """Make a run while `strike` kills: what it saw of the run's processes ends, and so does the run."""
    spec, context = resolve(plugins, {}, **FIELDS), RunContext(results, "cpu", 1)
    seen: set[int] = set()
    last: Any = run_one(spec, plugins, context, lambda event: seen.update(strike(event)))
    assert wait_until(lambda: all(map(is_gone, seen))), "a process of the run lives on"
    if not isinstance(last, Done):
        last = run_one(spec, plugins, context, lambda event: None)
    assert isinstance(last, Done), last
    folder = RunFolder.of(results, spec)
    assert numbers(folder) == expected
    hidden = {file.name for file in folder.path.parent.rglob(".*")}
    assert not hidden, "nothing unfinished is left"


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "role", ["judge", "training", pytest.param("server", marks=pytest.mark.slow)]
)
def test_a_run_survives_the_end_of_one_of_its_processes(
    plugins: Plugins, undisturbed: Any, tmp_path: Path, role: str, number: signal.Signals
) -> None:
    struck: list[int] = []
    server = fork_server()._process.pid

    def strike(event: Event) -> set[int]:
        found = processes(server)
        if isinstance(event, EpochEnded) and not struck and found[role]:
            struck.append(found[role][0])
            os.kill(struck[0], number)
        return {*found["judge"], *found["training"], *struck}

    check(plugins, tmp_path, undisturbed, strike)
    assert struck


@pytest.mark.slow
@pytest.mark.parametrize("chance", range(TRIES))
@pytest.mark.parametrize("role", ROLES)
def test_at_any_moment(
    plugins: Plugins, undisturbed: Any, tmp_path: Path, role: str, chance: int
) -> None:
    draw = random.Random(f"{SEED} {role} {chance}")
    after, number, seen = draw.random(), draw.choice(SIGNALS), set[int]()
    server = fork_server()._process.pid

    def kill() -> None:
        time.sleep(after)
        found = processes(server)
        seen.update(found["judge"], found["training"])
        for pid in found[role][:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    thread = threading.Thread(target=kill)
    thread.start()
    check(plugins, tmp_path, undisturbed, lambda event: seen)
    thread.join()


TWO = ["run", *QUICK, "--method", "cap,bce", "--seeds", "2", "--jobs", "2"]


@pytest.fixture(scope="module")
def bits_of_two(topics: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: F811
    place = Place(topics, tmp_path_factory.mktemp("two") / "place")
    process = place.start(TWO)
    said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return place.bits()


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("role", ROLES)
def test_a_worker_of_two(
    topics: Path,  # noqa: F811
    bits_of_two: Any,
    tmp_path: Path,
    role: str,
    number: signal.Signals,
) -> None:
    """`--jobs 2`: a process of the second worker is killed, and the other one's run is made."""
    place = Place(topics, tmp_path / "place")
    process = place.start(TWO)

    def workers() -> list[int]:
        found = [processes(server) for server in children(process.pid)]
        return next((f[role] for f in found if len(f["training"]) > 1), [])

    assert wait_until(lambda: bool(workers()) or process.poll() is not None)
    time.sleep(random.Random(f"{SEED} {role} {number}").random())
    for pid in workers()[-1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    process.communicate(timeout=PATIENCE)
    assert wait_until(lambda: not _is_group(process.pid)), "a process of the command lives on"
    again = place.start(TWO)
    said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    assert place.bits() == bits_of_two


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True
