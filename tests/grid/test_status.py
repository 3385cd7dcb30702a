"""`status` and `--dry-run`: what the results folder alone tells of runs in every state."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.cli.status import page
from ssmlbench.core.console import Console
from ssmlbench.core.eta import EpochTimer, duration, grid_eta, run_eta
from ssmlbench.core.events import EpochEnded, Started, TrainingStarted, Waiting, Warned
from ssmlbench.core.keep_alive import FRESH_SECONDS
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.display import Display
from ssmlbench.grid.estimate import Remaining, estimate, steps_left
from ssmlbench.grid.queue_file import queued, read_queues, write_queue
from ssmlbench.grid.status import read_states, state_of
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import Heartbeat

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def spec_of(seed: int = 0, **fields: Any) -> RunSpec:
    return RunSpec(**{"method": "bce", "dataset": "tiny", "pi": 0.3, "seed": seed, **fields})


def begin(results: Path, spec: RunSpec, host: str = "", **facts: Any) -> RunFolder:
    """A run's folder as it is in the middle of a run."""
    folder = RunFolder.of(results, spec)
    folder.path.mkdir(parents=True)
    folder.spec_file.write_text(json.dumps(spec.as_dict()))
    told = {"epoch": 3, "epochs": 40, "doing": "training", "seconds_per_epoch": 2.0}
    told |= {"host": host or socket.gethostname(), "pid": 1, "time": time.time(), **facts}
    folder.progress_file.write_text(json.dumps(told))
    return folder


def states(results: Path) -> dict[str, str]:
    return {state.seed: state.state for state in read_states([results])}


# ------------------------------------------------------------------------------- states


def test_a_run_whose_lock_is_held_is_running_with_epoch_and_eta(tmp_path: Path) -> None:
    folder = begin(tmp_path, spec_of())
    with Lock(folder.lock_file):
        (state,) = read_states([tmp_path])
    assert (state.state, state.epoch, state.epochs) == ("running", 3, 40)
    assert state.eta == pytest.approx((40 - 3) * 2.0, abs=1)


def test_a_run_whose_process_is_gone_is_stopped_at_its_checkpoint(tmp_path: Path) -> None:
    folder = begin(tmp_path, spec_of())
    assert [(s.state, s.epoch) for s in read_states([tmp_path])] == [("stopped", 0)]
    folder.checkpoint_file.touch()
    assert [(s.state, s.epoch) for s in read_states([tmp_path])] == [("stopped", 3)]


def test_a_run_of_another_machine_is_running_as_long_as_its_heart_beats(tmp_path: Path) -> None:
    folder = begin(tmp_path, spec_of(), host="elsewhere")
    assert states(tmp_path) == {"0": "running"}
    long_ago = time.time() - FRESH_SECONDS - 1
    os.utime(folder.progress_file, (long_ago, long_ago))
    assert states(tmp_path) == {"0": "stopped"}


def test_what_a_living_grid_has_before_it_is_queued_and_leaves_no_trace(tmp_path: Path) -> None:
    with queued(tmp_path, [spec_of(seed) for seed in range(3)], "local"):
        RunFolder.of(tmp_path, spec_of(1)).record_failure(spec_of(1), "broken")
        assert states(tmp_path) == {"0": "queued", "1": "failed", "2": "queued"}
    assert states(tmp_path) == {"1": "failed"}
    with queued(tmp_path, [spec_of(1)], "local"):  # to be tried again
        assert states(tmp_path) == {"1": "queued"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny"]


def test_what_a_killed_grid_had_before_it_is_not_queued(tmp_path: Path) -> None:
    file = tmp_path / ".queue" / "gone.json"
    write_queue(file, tmp_path, [spec_of()], "local")
    file.with_suffix(".lock").touch()
    assert read_queues(tmp_path) == {}
    with queued(tmp_path, [spec_of(1)], "local"):  # the next grid takes it away
        assert not file.exists()


def test_a_failure_is_kept_counted_and_forgotten_by_success(tmp_path: Path) -> None:
    folder = RunFolder.of(tmp_path, spec_of())
    for _ in range(2):
        folder.record_failure(spec_of(), "it broke", "Traceback …")
    (state,) = read_states([tmp_path])
    assert (state.state, state.error, state.attempts) == ("failed", "it broke", 2)
    folder.result_file.write_text("{}")
    assert states(tmp_path) == {"0": "done"}


def test_a_run_of_which_there_is_nothing_has_no_state(tmp_path: Path) -> None:
    assert state_of(tmp_path, spec_of()) is None


def test_the_heartbeat_tells_epoch_and_pace_and_goes_with_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    heard: list[Any] = []
    with Heartbeat(folder, 40, heard.append) as heartbeat:
        heartbeat.notify(TrainingStarted())
        heartbeat.notify(EpochEnded(1, 40, {"labelled": 0.5}))
        told = json.loads(folder.progress_file.read_text())
    assert (told["epoch"], told["losses"], told["pid"]) == (1, {"labelled": 0.5}, os.getpid())
    assert heard[1].seconds_per_epoch == told["seconds_per_epoch"] > 0
    assert not folder.progress_file.exists()


def test_the_heartbeat_of_an_interrupted_run_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Heartbeat(RunFolder(tmp_path), 40, lambda event: None):
        raise KeyboardInterrupt
    assert RunFolder(tmp_path).progress_file.exists()


# ------------------------------------------------------------------------------- the command


def test_status_tells_of_thousands_of_runs_at_once_and_without_torch(tmp_path: Path) -> None:
    for seed in range(2000):
        path = tmp_path / "tiny" / "semi-0.3" / "bce" / f"{seed}-aaaaaaaaaaaa"
        path.mkdir(parents=True)
        (path / "result.json").touch()
    begin(tmp_path, spec_of(5000))
    assert len(read_states([tmp_path])) == 2001
    code = (
        "import sys; from typer.testing import CliRunner; from ssmlbench.cli import app;"
        f"r = CliRunner().invoke(app, ['status', '--results', {str(tmp_path)!r}]);"
        "assert r.exit_code == 0, r.output; assert '2000 done, 1 stopped' in r.output, r.output;"
        "heavy = {'torch', 'datasets', 'transformers', 'pandas', 'sklearn'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_status_in_full_and_as_json(ssmlbench: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    RunFolder.of(results, spec_of()).record_failure(spec_of(), "it broke", "Traceback\n  line 3")
    assert "line 3" in ssmlbench("status", "--failed").stdout
    (told,) = json.loads(ssmlbench("status", "--format", "json").stdout)
    assert (told["state"], told["error"]) == ("failed", "it broke")
    assert ssmlbench("status", "--results", "nowhere").returncode == 2
    assert "it broke" in ssmlbench("status", "--watch").stdout  # nothing runs: it ends


def test_the_page_lists_what_is_not_done(tmp_path: Path) -> None:
    folder = begin(tmp_path, spec_of())
    RunFolder.of(tmp_path, spec_of(1)).record_failure(spec_of(1), "it broke")
    out = io.StringIO()
    with Lock(folder.lock_file):
        Console(file=out, width=120).print(page(read_states([tmp_path])))
    assert "2 runs: 1 failed, 1 running" in out.getvalue()
    assert "3/40" in out.getvalue()
    assert "it broke" in out.getvalue()


OTHER_VERSIONS: dict[str, Any] = {
    "newer": {"spec": lambda spec: {**spec, "curriculum": "easy-first"}},
    "older": {"spec": lambda spec: {k: v for k, v in spec.items() if k != "dataset"}},
    "other types": {"spec": lambda spec: {**spec, "config": [1], "changed": 3}},
    "no object": {"spec": lambda spec: ["a list"]},
    "progress": {"progress": {"phase": "new", "epoch": "three", "losses": None}},
    "error": {"error": {"reason": "written elsewhere"}},
    "queue": {"queue": {"engine": 7, "runs": [{"path": "x"}, 3, {"folder": "too/short"}]}},
}


@pytest.mark.parametrize("case", OTHER_VERSIONS)
def test_files_of_another_version_give_a_state_and_the_reason(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, written = tmp_path / "results", OTHER_VERSIONS[case]
    folder = begin(results, spec_of())
    RunFolder.of(results, spec_of(1)).record_failure(spec_of(1), "it broke")
    if "spec" in written:
        folder.spec_file.write_text(json.dumps(written["spec"](spec_of().as_dict())))
    if "progress" in written:
        folder.progress_file.write_text(json.dumps(written["progress"]))
        os.utime(folder.progress_file, (0, 0))  # it names no host: only its age tells that it died
    if "error" in written:
        RunFolder.of(results, spec_of(1)).error_file.write_text(json.dumps(written["error"]))
    if "queue" in written:
        (results / ".queue").mkdir()
        (results / ".queue" / "grid.json").write_text(json.dumps(written["queue"]))
    monkeypatch.setenv("COLUMNS", "200")
    for more in ((), ("--failed",), ("--format", "json"), ("--watch",)):
        ended = CliRunner().invoke(app, ["status", "--results", str(results), *more])
        assert ended.exit_code == 0, ended.exception
    table = CliRunner().invoke(app, ["status", "--results", str(results)]).output
    assert "2 runs: 1 stopped, 1 failed" in table
    assert ("1 run with a spec that cannot be read" in table) == ("spec" in written)
    assert ("fields that are unknown here: curriculum" in table) == (case == "newer")


# ------------------------------------------------------------------------------- time left


def finished(spec: RunSpec, seconds: float, steps: int) -> Finished:
    return Finished(spec, {"cost": {"seconds": seconds}, "steps": steps}, Path())


def test_steps_are_counted_as_the_trainer_counts_them() -> None:
    # 1000 rows, π = 0.1: 900 unlabelled, ⌈900 / 64⌉ = 15 steps an epoch
    assert steps_left(Remaining(spec_of(pi=0.1), 1000)) == 40 * 15
    assert steps_left(Remaining(spec_of(pi=0.1), 1000, epochs_done=30)) == 10 * 15
    # warm-up over the 100 labelled rows: ⌈100 / 64⌉ = 2 steps in each of 12 epochs
    labelled = spec_of(pi=0.1, epoch_count="labelled")
    assert steps_left(Remaining(labelled, 1000)) == 12 * 2 + 28 * 15
    assert steps_left(Remaining(labelled, 1000, epochs_done=5)) == 7 * 2 + 28 * 15
    assert steps_left(Remaining(labelled, 1000, epochs_done=30)) == 10 * 15
    endless = spec_of(pi=0.1, epochs=10**17)  # no loop over the epochs
    assert steps_left(Remaining(endless, 1000)) == 10**17 * 15
    assert steps_left(Remaining(spec_of(regime="full", pi=None), 1000)) == 40 * 16  # ⌈1000 / 64⌉


def test_time_is_judged_by_the_runs_most_alike() -> None:
    known = [
        finished(spec_of(method="cap", pi=0.1), 60.0, 600),  # 0.1 s a step
        finished(spec_of(method="bce", pi=0.1), 30.0, 600),  # 0.05 s a step
    ]
    run = [Remaining(spec_of(method="cap", pi=0.1, seed=1), 1000)]
    assert estimate(run, known).seconds == pytest.approx(600 * 0.1)
    other = [Remaining(spec_of(method="bbam", pi=0.1), 1000)]  # the median of what the data takes
    assert estimate(other, known).seconds == pytest.approx(600 * 0.075)
    far = [Remaining(spec_of(backbone="resnet50"), 1000)]
    assert estimate(far, known).seconds is None
    no_time = Finished(spec_of(method="cap", pi=0.1), {"cost": {}, "steps": 600}, Path())
    assert estimate(run, [no_time]).seconds is None
    both = estimate(run + far, known)
    assert (both.seconds, both.unknown) == (pytest.approx(60.0), 1)


def test_an_estimator_takes_as_long_as_its_own_finished_runs() -> None:
    knn = spec_of(method="knn", pi=0.1).for_estimator()
    known = [
        finished(spec_of(method="cap", pi=0.1), 60.0, 600),
        finished(knn, 3.0, 0),
        finished(dataclasses.replace(knn, seed=1), 5.0, 0),
    ]
    left = [Remaining(dataclasses.replace(knn, seed=2), 1000)]
    assert estimate(left, known).seconds == pytest.approx(4.0)
    forest = [Remaining(dataclasses.replace(knn, method="forest"), 1000)]
    assert estimate(forest, known).seconds is None
    method = [Remaining(spec_of(method="bce", pi=0.1), 1000)]
    assert estimate(method, known).seconds == pytest.approx(60.0)


def test_the_pace_is_the_median_of_the_last_epochs() -> None:
    now = [0.0]
    pace = EpochTimer(lambda: now[0])
    assert pace.seconds_per_epoch is None
    for moment in (1.0, 2.0, 12.0):  # epochs of 1, 1 and 10 s
        now[0] = moment
        pace.tick()
    assert pace.seconds_per_epoch == 1.0


def test_the_time_left_of_a_run_and_of_a_grid() -> None:
    assert run_eta(0, 40, None, 100.0) is None
    assert run_eta(10, 40, 2.0, 0.5) == 59.5  # 30 epochs, half a second into the next
    assert run_eta(10, 40, 2.0, 50.0) == 58.0  # an epoch that is late is about to end
    assert run_eta(40, 40, 2.0, 50.0) == 0.0
    assert grid_eta([], 3, None) is None
    assert grid_eta([None, None], 3, None) is None
    assert grid_eta([600.0, 720.0], 0, 900.0) == 720.0  # never less than a run's own
    assert grid_eta([60.0, 120.0], 4, 300.0) == 690.0  # (180 + 4 × 300) s of work, two at a time
    assert grid_eta([60.0, None], 1, 300.0) == 330.0  # a run without an estimate counts as whole
    assert grid_eta([10.0, 20.0], 1, 300.0) == 300.0  # the run that waits takes its time


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (45, "45 s"), (600, "10 min"), (12000, "3 h 20 min"), (187200, "2 d 4 h")],
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


# ------------------------------------------------------------------------------- the live table


def shown(terminal: bool) -> tuple[Display, io.StringIO, list[float]]:
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, force_terminal=terminal, width=150)
    return Display(console, 2, clock=lambda: now[0]), out, now


def test_a_warning_about_the_data_is_said_once_and_one_about_a_run_each_time() -> None:
    display, out, _ = shown(terminal=False)
    specs = [RunSpec(method, "toy", pi=0.1, seed=seed) for method in "ab" for seed in (0, 1)]
    for spec in specs:
        display.report(spec, Warned("3 labels have no test positive", of_data=True))
        display.report(spec, Warned("diverged"))
    text = out.getvalue()
    assert text.count("no test positive") == 1
    assert "warning: toy semi-0.1 seed 0: 3 labels" in text  # no method's name
    assert text.count("diverged") == 4
    other = dataclasses.replace(specs[0], dataset="other")
    display.report(other, Warned("3 labels have no test positive", of_data=True))
    assert "warning: other semi-0.1" in out.getvalue()


def epoch(number: int) -> EpochEnded:
    return EpochEnded(number, 40, {"labelled": 0.25, "unlabelled": 0.5}, seconds_per_epoch=5.0)


def test_the_live_table_has_a_row_a_run_and_the_totals() -> None:
    display, _, now = shown(terminal=True)
    display.report(spec_of(0), Started())
    now[0] = 50.0
    display.report(spec_of(0), epoch(10))
    out = io.StringIO()
    Console(file=out, width=150).print(display.table())
    # 30 epochs of 5 s of the first run, and 40 of the second: 350 s
    for word in ("bce", "semi-0.3", "10/40", "0.7500", "2 min", "0 of 2 runs", "about 6 min left"):
        assert word in out.getvalue(), out.getvalue()


def test_a_log_has_a_line_now_and_then() -> None:
    display, out, now = shown(terminal=False)
    for number in range(1, 41):
        display.report(spec_of(0), epoch(number))
        now[0] += 5.0
    lines = out.getvalue().splitlines()
    assert "epoch 3/40 labelled 0.2500 unlabelled 0.5000, 3 min left" in lines[0]
    assert sum("epoch" in line for line in lines) == 19  # every second epoch: 10 s
    assert sum("of 2 runs" in line for line in lines) == 3  # 195 s: one a minute


def test_a_run_that_waits_says_so() -> None:
    display, out, _ = shown(terminal=False)
    display.report(spec_of(0), Waiting("waits for features"))
    assert "seed 0: waits for features" in out.getvalue()
