"""Many runs on one machine: killed, interrupted, failing and sharing, and always the same numbers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.events import Done, Event, Listener, Resumed, Waiting
from ssmlbench.core.files import read_record
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.resources import Machine
from ssmlbench.grid.run_one import Summary
from ssmlbench.grid.status import read_states
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import RunProgress
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import threads_of
from tests.runs.test_execute import DATASET, wait_for

HELD_METHOD = '''
import os, time
from ssmlbench.api import bce
from ssmlbench.api import Method

class Held(Method):
    """BCE that makes one epoch, then stands still while a file is there, so that it can be killed."""
    name = "held"
    unlabelled_views = ()
    steps = 0

    def loss(self, labelled, unlabelled):
        self.steps += 1
        while self.steps > 25 and os.path.exists(os.environ["SSMLBENCH_TEST_HOLD"]):
            time.sleep(0.02)
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''

BROKEN_METHOD = '''
import os
from ssmlbench.api import bce
from ssmlbench.api import Method

class Broken(Method):
    """Raises while a file is there."""
    name = "broken"
    unlabelled_views = ()

    def loss(self, labelled, unlabelled):
        if os.path.exists(os.environ["SSMLBENCH_TEST_HOLD"]):
            raise ArithmeticError("broken on purpose")
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''

ENCODER = '''
import os, time
from ssmlbench.api import Encoder

class Counting(Encoder):
    """Vectors as they are, when another run waits for them; a line in a file for every time."""
    name, kinds = "counting", {"vector"}

    def __init__(self, example, options=None):
        super().__init__(example, options)
        self.features = example.shape[0]

    def forward(self, vectors):
        if len(vectors) > 1:
            with open(os.environ["SSMLBENCH_TEST_HOLD"], "a") as log:
                log.write("encoded\\n")
            end = time.monotonic() + 600
            while not os.path.exists(log.name + "-waited") and time.monotonic() < end:
                time.sleep(0.01)
        return vectors
'''


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    texts = {"tiny": DATASET, "held": HELD_METHOD, "broken": BROKEN_METHOD, "counting": ENCODER}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return [tmp_path / f"{name}.py" for name in texts]


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "hold"
    monkeypatch.setenv("SSMLBENCH_TEST_HOLD", str(file))
    return file


AXES: dict[str, Any] = {"dataset": "tiny", "pi": 0.3, "epochs": 4, "batch_size": 16}


def make_here(
    files: list[Path], results: Path, report: Listener = lambda spec, event: None, **fields: Any
) -> tuple[Summary, list[RunSpec], RunContext]:
    """A grid over methods and seeds, made by this process."""
    plugins, context = Plugins(files), RunContext(results, "cpu")
    methods, seeds, jobs = (
        fields.pop(k, d) for k, d in (("methods", ["bce"]), ("seeds", 1), ("jobs", 1))
    )
    specs = [
        resolve(plugins, {}, **{**AXES, **fields}, method=method, seed=seed)
        for method in methods
        for seed in range(seeds)
    ]
    dispatch = Dispatch(context, jobs=jobs)
    summary = dispatch.run(dispatch.plan(specs, plugins), report)
    assert isinstance(summary, Summary)
    return summary, specs, context


def one_by_one(files: list[Path], results: Path, methods: list[str], seeds: int) -> list[Event]:
    """The same runs without any engine, and what they told."""
    events: list[Event] = []
    plugins = Plugins(files)
    for method in methods:
        for seed in range(seeds):
            spec = resolve(plugins, {}, **AXES, method=method, seed=seed)
            assert isinstance(
                execute(spec, plugins, RunContext(results, "cpu"), events.append), Done
            )
    return events


def command(results: Path, files: list[Path], *more: str) -> list[str]:
    plugins = [part for file in files for part in ("--plugin", str(file))]
    return [
        sys.executable, "-m", "ssmlbench", "run", "--dataset", "tiny", "--pi", "0.3", "--epochs", "4",
        "--batch-size", "16", "--results", str(results), *plugins, *more,
    ]  # fmt: skip


def board(results: Path) -> str:
    typed = ["compare", "--results", str(results), "--format", "csv"]
    return CliRunner().invoke(app, typed, catch_exceptions=False).stdout


def checkpoints(results: Path) -> list[Path]:
    return list(results.rglob("checkpoint.safetensors"))


def by_state(results: Path) -> dict[str, int]:
    found = [state.state for state in read_states([results])]
    return {state: found.count(state) for state in set(found)}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A command in a process of its own, whose output can be read while it runs."""
    begun: list[subprocess.Popen[str]] = []

    def call(arguments: list[str]) -> subprocess.Popen[str]:
        with (tmp_path / f"said-{len(begun)}").open("w") as out:
            process = subprocess.Popen(
                arguments, stdout=out, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
            )
        process.given = Path(out.name)  # type: ignore[attr-defined]
        begun.append(process)
        return process

    yield call
    for process in begun:
        process.kill()
        process.wait()


def test_a_grid_killed_and_interrupted_ends_with_the_undisturbed_board(
    tmp_path: Path, files: list[Path], hold: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    undisturbed, results = tmp_path / "undisturbed", tmp_path / "results"
    one_by_one(files, undisturbed, ["held", "bce"], seeds=2)
    arguments = command(results, files, "--method", "held,bce", "--seeds", "2", "--jobs", "2")

    hold.touch()
    killed = start(arguments)
    wait_for(lambda: len(checkpoints(results)) == 2)
    assert by_state(results) == {"running": 2, "queued": 2}
    pids = workers_of(killed, results)
    assert len(pids) == 2
    killed.kill()  # SIGKILL: the workers must not outlive it
    killed.wait()
    wait_for(lambda: not any(map(is_alive, pids)))
    assert by_state(results) == {"stopped": 2}

    again = start(arguments)
    wait_for(lambda: said_by(again).count("continues after epoch 1") == 2)
    os.kill(workers_of(again, results)[0], signal.SIGKILL)
    wait_for(lambda: said_by(again).count("continues after epoch") == 3)
    assert "its judge process died: is there too little memory?; tried once more" in said_by(again)
    again.send_signal(signal.SIGINT)
    _, told = again.communicate(timeout=600)
    assert again.returncode == 130
    assert told == "stopped with 4 runs left; the same command continues from here\n"
    assert by_state(results) == {"stopped": 2}
    assert not (results / ".queue").exists()

    hold.unlink()
    resumed = one_by_one(files, results, ["held", "bce"], seeds=2)
    assert sum(isinstance(event, Resumed) for event in resumed) == 2
    assert board(results) == board(undisturbed)
    assert not checkpoints(results)


def hear_interrupts() -> None:
    """A shell starts what it puts into the background deaf to SIGINT, these tests perhaps too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def said_by(process: subprocess.Popen[str]) -> str:
    return process.given.read_text()  # type: ignore[attr-defined, no-any-return]


def workers_of(process: subprocess.Popen[str], results: Path) -> list[int]:
    """The process's own judges that are in a run: a stopped run's folder names one long gone."""

    def children_of(pid: str) -> list[str]:
        asked = ["ps", "-o", "pid=", "--ppid", pid]
        return subprocess.run(asked, capture_output=True, text=True).stdout.split()

    servers = children_of(str(process.pid))
    children = [pid for server in servers for pid in children_of(server)]
    told = [read_record(file, RunProgress) for file in results.rglob("progress.json")]
    return [facts.pid for facts in told if facts is not None and str(facts.pid) in children]


def is_alive(pid: int) -> bool:
    """A process that ended and that nobody waited for yet is none."""
    asked = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return asked.stdout.strip() not in ("", "Z")


@pytest.mark.slow
def test_72_runs_killed_at_random_end_with_the_undisturbed_board(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    def arguments(results: Path) -> list[str]:
        return [
            sys.executable, "-m", "ssmlbench", "run", "--method", "bce,cap,bbam", "--dataset",
            "multidigits", "--pi", "0.05,0.1", "--seeds", "12", "--epochs", "3", "--batch-size", "256",
            "--results", str(results),
        ]  # fmt: skip

    undisturbed, results = tmp_path / "undisturbed", tmp_path / "results"
    subprocess.run([*arguments(undisturbed), "--quiet"], check=True)
    results.mkdir()
    draw = random.Random(0)
    for _ in range(8):
        killed = start(arguments(results))
        wait_for(lambda: by_state(results).get("running"))
        time.sleep(draw.uniform(0, 15))
        if draw.random() < 0.5:  # a worker first
            for pid in workers_of(killed, results)[:1]:
                os.kill(pid, signal.SIGKILL)
            time.sleep(draw.uniform(0, 5))
        killed.kill()
        killed.wait()
    subprocess.run([*arguments(results), "--quiet"], check=True)
    assert by_state(results) == {"done": 72}
    assert board(results) == board(undisturbed)


def test_a_failing_run_stops_nobody_is_kept_with_its_error_and_tried_again(
    tmp_path: Path, files: list[Path], hold: Path
) -> None:
    hold.touch()
    events: list[tuple[str, Event]] = []

    def report(spec: RunSpec, event: Event) -> None:
        events.append((spec.method, event))

    results = tmp_path / "results"
    summary, _, _ = make_here(files, results, report, methods=["broken", "bce"], jobs=1)
    assert (summary.done, len(summary.failed)) == (1, 1)
    assert "ArithmeticError: broken on purpose" in summary.failed[0][1]
    (error,) = results.rglob("error.json")
    told = json.loads(error.read_text())
    assert "broken on purpose" in told["traceback"]
    assert "held.py" not in told["traceback"]
    assert by_state(results) == {"failed": 1, "done": 1}

    summary, _, _ = make_here(files, results, methods=["broken"])  # alone: in this process
    assert len(summary.failed) == 1
    assert json.loads(error.read_text())["attempts"] == 2
    hold.unlink()
    summary, _, _ = make_here(files, results, methods=["broken", "bce"], jobs=1)
    assert (summary.done, summary.already) == (1, 1)
    assert by_state(results) == {"done": 2}
    assert not error.exists()


def test_features_are_encoded_once_and_the_others_say_that_they_wait(
    tmp_path: Path, files: list[Path], hold: Path
) -> None:
    waited = []

    def report(spec: RunSpec, event: Event) -> None:
        if isinstance(event, Waiting):
            waited.append(event.text)
            hold.with_name(f"{hold.name}-waited").touch()

    frozen = {"backbone": "counting", "freeze": True, "strong_views": 1}
    summary, _, _ = make_here(files, tmp_path / "results", report, seeds=2, jobs=2, **frozen)
    assert summary.done == 2
    # 120 training rows plain (vectors: the weak view too) and strong, 40 test rows plain
    assert hold.read_text().count("encoded") == 3
    assert any("waits for features another run computes" in text for text in waited)


def test_a_dry_run_tells_what_is_done_begun_and_failed_and_leaves_nothing(
    ssmlbench: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    files: list[Path],
    hold: Path,
) -> None:
    results = tmp_path / "results"
    make_here(files, results)
    begun = RunFolder.of(results, resolve(Plugins(files), {}, **AXES, method="bce", seed=1))
    begun.path.mkdir(parents=True)
    begun.checkpoint_file.touch()
    failed = resolve(Plugins(files), {}, **AXES, method="bce", seed=2)
    RunFolder.of(results, failed).record_failure(failed, "it broke")
    before = sorted(results.rglob("*"))
    arguments = command(results, files, "--method", "bce", "--seeds", "4", "--dry-run")[3:]
    said = ssmlbench(*arguments).stdout
    assert "1 done, 3 to make (1 begun, 1 failed)" in said
    assert "time left: about" in said
    assert sorted(results.rglob("*")) == before


# ------------------------------------------------------------------------------- sharing a machine


@pytest.mark.parametrize(
    ("machine", "threads", "jobs"),
    [
        (Machine("cpu", 8, 0), [1] * 20, 8),  # a core each
        (Machine("cpu", 8, 0), [1] * 3, 3),  # never more than there are runs
        (Machine("cpu", 8, 0), [4] * 20, 2),
        (Machine("cpu", 8, 0), [16] * 20, 1),
        (Machine("cpu", 8, 0), [1, None], 1),  # a fine-tuned encoder takes them all
        (Machine("cuda", 8, 4), [None] * 20, 4),  # a GPU each
        (Machine("mps", 8, 0), [1] * 20, 1),
        (Machine("cpu", 8, 0), [], 1),
    ],
)
def test_as_many_runs_at_a_time_as_the_machine_can_carry(
    machine: Machine, threads: list[int | None], jobs: int
) -> None:
    assert machine.jobs(threads) == jobs


def test_what_is_small_has_one_thread_and_a_real_encoder_its_share(files: list[Path]) -> None:
    plugins = Plugins(files)
    context = RunContext(Path("unused"), cores=6)
    small = resolve(plugins, {}, **AXES, method="bce")
    own = resolve(plugins, {}, **AXES, method="bce", backbone="counting")
    frozen = resolve(plugins, {}, **AXES, method="bce", backbone="counting", freeze=True)
    assert [threads_of(spec, plugins, context) for spec in (small, own, frozen)] == [1, 6, 1]
    typed = RunContext(Path("unused"), threads=3, cores=6)
    assert {threads_of(spec, plugins, typed) for spec in (small, own, frozen)} == {3}
