"""Whole commands in processes of their own: killed at random moments, and on a disk that is really full.

Each command is typed again until it ends; then everything it leaves has the bits of an undisturbed one.
FAULT_SEED draws other moments.
"""

from __future__ import annotations

import csv
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.files import PART
from ssmlbench.runs.folder import RunFolder
from tests.faults.world import numbers

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("FAULT_SEED", "0"))
CHAINS, KILLS = 3, 5
"""A command is killed KILLS times one after the other, then ends; CHAINS times from an empty folder."""

HOW = ["kill", "all at once", "end", "Ctrl-C"]
SMALLEST_DISK = 8
"""In kilobytes: nothing fits on it."""
WORDS = ("apple pear fruit", "car wheel road", "wind rain cloud")
OWN = ["--dataset", "topics"]
QUICK = [*OWN, "--regime", "given", "--backbone", "tfidf", "--freeze", "--epochs", "3"]


@dataclass(frozen=True)
class Command:
    """What is typed, and what is typed before it."""

    typed: list[str]
    before: str = ""


COMMANDS = {
    "prepare": Command(["data", "prepare", "topics"]),
    "run": Command(["run", *QUICK, "--method", "cap,logistic"]),
    "tune": Command(["tune", *QUICK, "--method", "bce", "--trials", "2"]),
    "predict": Command(
        ["predict", "--best", *OWN, "--input", "topics/unlabelled.csv", "--out", "labels.csv"], "run"
    ),
    "recommend": Command(
        ["recommend", *OWN, "--method", "logistic,bce", "--folds", "2", "--backbone", "tfidf",
         "--budget", "2h", "--out", "labels.csv"]
    ),
    "compare": Command(["compare", *OWN, "--export", "boards"], "run"),
    "report": Command(["report", *OWN, "--out", "boards/report.html"], "run"),
}  # fmt: skip
DISKS = {"prepare": ".", "recommend": ".", "run": ". results cache", "tune": "results cache",
         "compare": "boards cache", "report": "boards cache"}  # fmt: skip
"""The folders that are on a full disk, by command; "." holds all."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of texts: some are labelled, more are not."""
    folder = tmp_path_factory.mktemp("commands")
    draw = random.Random(0)
    (folder / "topics").mkdir()
    for part, rows in (("train", 60), ("test", 40), ("unlabelled", 400)):
        labelled = part != "unlabelled"
        lines = ["id,text,labels" if labelled else "id,text"]
        for row in range(rows):
            labels = [k for k in range(3) if draw.random() < 0.3] or [row % 3]
            words = [*" ".join(WORDS[k] for k in labels).split(), "word", f"number{row % 7}"]
            draw.shuffle(words)
            known = "," + ";".join("abc"[k] for k in labels) if labelled else ""
            lines.append(f"{part}{row},{' '.join(words)}{known}")
        (folder / "topics" / f"{part}.csv").write_text("\n".join(lines))
    return folder


class Place:
    """A working folder with the cache and the results in it."""

    def __init__(self, topics: Path, root: Path):
        self.root = root
        root.mkdir(exist_ok=True)
        (root / "topics").symlink_to(topics / "topics")
        (root / "boards").mkdir(exist_ok=True)

    def start(self, typed: list[str]) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "SSMLBENCH_CACHE": str(self.root / "cache"),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.root),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "ssmlbench", *typed],
            cwd=self.root, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def type(self, name: str) -> tuple[int, str]:
        """Type a command; its exit code, and all that it prints."""
        process = self.start(COMMANDS[name].typed)
        said = "".join(process.communicate(timeout=1800))
        return process.returncode, said

    def type_before(self, name: str) -> None:
        """Type the command that must come before this one."""
        if before := COMMANDS[name].before:
            code, said = self.type(before)
            assert code == 0, said

    def bits(self) -> dict[str, Any]:
        """All that a command leaves, without times and machine facts."""
        found: dict[str, Any] = {}
        for file in sorted(self.root.rglob("*")):
            name = str(file.relative_to(self.root))
            if file.name == "result.json":
                found[name] = numbers(RunFolder(file.parent))
            elif file.suffix in (".arrow", ".npy") or file.name == "labels.csv":
                found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
            elif file.parent.name == "boards" and file.suffix == ".csv":
                lines = [line for line in file.read_text().splitlines() if line[0] != "#"]
                found[name] = [
                    {k: v for k, v in row.items() if not k.startswith(("cost.", "made_with."))}
                    for row in csv.DictReader(lines)
                ]
            elif file.parent.name == "boards" and file.suffix == ".html":
                found[name] = file.read_text().rstrip()[-7:]
        return found


@pytest.fixture(scope="module")
def undisturbed(topics: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What each command leaves, and the seconds that it takes."""
    known: dict[str, tuple[dict[str, Any], float]] = {}

    def of(name: str) -> tuple[dict[str, Any], float]:
        if name not in known:
            place = Place(topics, tmp_path_factory.mktemp("undisturbed") / name)
            place.type_before(name)
            began = time.monotonic()
            code, said = place.type(name)
            assert code == 0, said
            known[name] = place.bits(), time.monotonic() - began
            assert known[name][0]
        return known[name]

    return of


def kill(process: subprocess.Popen[str], how: str) -> None:
    """End a command; what it had started ends by itself."""
    with suppress(ProcessLookupError):
        if how == "all at once":
            os.killpg(process.pid, signal.SIGKILL)
        elif how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
    process.communicate(timeout=600)
    for _ in range(6000):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"{how}: a process of the command lives on")


@pytest.mark.parametrize("chain", range(CHAINS))
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_that_was_killed_any_number_of_times_ends_with_the_same_bits(
    topics: Path, undisturbed: Any, tmp_path: Path, name: str, chain: int
) -> None:
    expected, seconds = undisturbed(name)
    draw = random.Random(f"{SEED} {name} {chain}")
    place = Place(topics, tmp_path / "place")
    place.type_before(name)
    kills = []
    for _ in range(KILLS):
        process = place.start(COMMANDS[name].typed)
        how, after = draw.choice(HOW), draw.uniform(0.2, 1) * seconds
        try:
            process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            kill(process, how)
            kills.append(f"{how} after {after:.1f} s")
    code, said = place.type(name)
    assert code == 0, f"{kills}: {said}"
    assert "Traceback" not in said
    assert place.bits() == expected, kills
    assert not list(place.root.glob(f".*{PART}")), kills


# ------------------------------------------------------------------------------------- full disks


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A disk in memory; skips the test where this may not be done. Yields a file to fill it with."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder / ".filled"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("kilobytes", [SMALLEST_DISK, 40, 80, 160, 320, 640])
@pytest.mark.parametrize(
    ("name", "where"), [(name, where) for name in DISKS for where in DISKS[name].split()]
)
def test_on_a_full_disk_a_command_says_so_in_one_line_and_works_when_there_is_room(
    topics: Path, undisturbed: Any, tmp_path: Path, name: str, where: str, kilobytes: int
) -> None:
    """kilobytes: of room that the command finds."""
    expected, _ = undisturbed(name)
    root = tmp_path / "place"
    root.mkdir()
    with disk(root / where) as filled:
        place = Place(topics, root)
        place.type_before(name)
        room = shutil.disk_usage(root / where).free - 1024 * kilobytes
        filled.write_bytes(bytes(room))
        code, said = place.type(name)
        assert "Traceback" not in said, said
        assert code or kilobytes > SMALLEST_DISK or COMMANDS[name].before
        if code:
            assert "No space left on device" in said, said
        filled.unlink()
        code, said = place.type(name)
        assert code == 0, said
        assert place.bits() == expected
        assert not list(root.rglob(f".*{PART}"))
