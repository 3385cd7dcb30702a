"""The engines beyond this process: Ray as it is on PyPI, and submitit without a Slurm.

tests/slurm_single_node.sh does the same on a real Slurm.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core import cpu
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Done, EpochEnded, Event, Failed, Resumed, Waiting
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.engines import ray as ray_engine
from ssmlbench.grid.engines import slurm as slurm_engine
from ssmlbench.grid.engines.base import GridPlan, Submission
from ssmlbench.grid.payload import RunPayload
from ssmlbench.grid.queue_file import queue_folder
from ssmlbench.grid.run_one import Summary
from ssmlbench.grid.status import read_states
from ssmlbench.plugins.digest import code_digest
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import RunProgress
from ssmlbench.runs.resolve import resolve
from tests.grid.test_grid import AXES, BROKEN_METHOD, HELD_METHOD, board, wait_for
from tests.runs.test_execute import DATASET


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.setenv("SSMLBENCH_TEST_HOLD", str(tmp_path / "hold"))
    texts = {"tiny": DATASET, "held": HELD_METHOD, "broken": BROKEN_METHOD}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return Plugins([tmp_path / f"{name}.py" for name in texts])


def specs_of(plugins: Plugins, *methods: str) -> list[RunSpec]:
    return [resolve(plugins, {}, **AXES, method=method) for method in methods]


def states(results: Path) -> dict[str, str]:
    return {state.method: state.state for state in read_states([results])}


# ------------------------------------------------------------------------------- Ray


def test_a_ray_worker_killed_in_the_middle_changes_no_bit_and_a_failing_run_stops_nobody(
    tmp_path: Path, plugins: Plugins
) -> None:
    pytest.importorskip("ray")
    hold = tmp_path / "hold"
    (held, broken) = specs_of(plugins, "held", "broken")
    undisturbed, context = (
        RunContext(tmp_path / "undisturbed", "cpu"),
        RunContext(tmp_path / "results", "cpu"),
    )
    execute(held, plugins, undisturbed)
    hold.touch()
    killed: list[int] = []
    events: list[tuple[str, Event]] = []

    def report(spec: RunSpec, event: Event) -> None:
        events.append((spec.method, event))
        folder = RunFolder.of(context.results, held)
        failed = any(isinstance(e, Failed) for _, e in events)
        if failed and not killed:  # the other stands still after an epoch, or will
            wait_for(folder.checkpoint_file.exists)
            killed.append(json.loads(folder.progress_file.read_text())["pid"])
            os.kill(killed[0], signal.SIGKILL)
            hold.unlink()

    summary = Dispatch(context, "ray").run(GridPlan([broken, held], plugins, context), report)
    assert isinstance(summary, Summary)
    assert (summary.done, len(summary.failed)) == (1, 1)
    assert "broken on purpose" in summary.failed[0][1]
    assert [method for method, e in events if isinstance(e, Resumed)] == ["held"]
    one, two = (RunFolder.of(p.results, held).scores_file for p in (undisturbed, context))
    assert one.read_bytes() == two.read_bytes()
    assert states(context.results) == {"held": "done", "broken": "failed"}
    assert Dispatch(context, "ray").run(GridPlan([held], plugins, context), report).already == 1


def test_the_machine_that_makes_a_run_chooses_the_threads_that_decode(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RunContext(tmp_path, "auto")
    for engine in (ray_engine.RayEngine, slurm_engine.SlurmEngine):
        assert engine().plan([], plugins, context).context.workers is None
        assert engine(workers=3).plan([], plugins, context).context.workers == 3
    chosen = ray_engine.RayEngine().plan([], plugins, context).context
    cluster = {"CPU": 64.0, "GPU": 8.0}
    assert ray_engine.with_share(chosen, cluster).workers == 8
    assert ray_engine.with_share(replace(chosen, gpus=2), cluster).workers == 16
    assert ray_engine.with_share(chosen, {"CPU": 64.0}) == chosen
    assert ray_engine.with_share(replace(chosen, workers=3), cluster).workers == 3
    monkeypatch.setattr(cpu, "core_count", lambda: 16)
    assert cpu.cores_of_job() == 16
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    assert cpu.cores_of_job() == 6


def test_the_events_between_two_readings_of_progress() -> None:
    start = RunProgress(began=1.0, epochs=9)
    waits = replace(start, doing="waits for features")
    second = replace(start, doing="training", epoch=2, losses={"a": 0.5})
    between = ray_engine.events_between
    assert between(RunProgress(), start) == []
    assert between(start, waits) == [Waiting("waits for features")]
    assert between(waits, second) == [EpochEnded(2, 9, {"a": 0.5})]
    assert between(second, second) == []
    assert between(second, replace(second, began=5.0, resumed=2)) == [Resumed(2)]


def test_a_ray_cluster_that_is_not_there_is_one_line() -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(UserError, match="no Ray cluster answers"):
        ray_engine._connect(ray, "127.0.0.1:1")


# ------------------------------------------------------------------------------- what goes along


def test_a_plugin_goes_along_to_a_machine_that_does_not_have_it(
    tmp_path: Path, plugins: Plugins
) -> None:
    (spec,) = specs_of(plugins, "held")
    payload = RunPayload.of(plugins, RunContext(tmp_path / "results", "cpu"))
    for file in tmp_path.glob("*.py"):
        file.unlink()
    there = Plugins(payload._files())
    assert code_digest(there.methods["held"]) == spec.code
    assert isinstance(payload.run(spec), Done)


# ------------------------------------------------------------------------------- Slurm


def submit(
    specs: list[RunSpec],
    plugins: Plugins,
    context: RunContext,
    jobs: int | None,
    options: dict[str, str],
) -> Submission:
    dispatch = Dispatch(context, "slurm", jobs, options={"slurm": options})
    submission = dispatch.run(dispatch.plan(specs, plugins))
    assert isinstance(submission, Submission)
    return submission


def test_jobs_are_submitted_once_and_tell_the_results_folder_how_they_end(
    tmp_path: Path, plugins: Plugins
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    specs = specs_of(plugins, "broken", "held", "bce")
    context, options = RunContext(tmp_path / "results", "cpu"), {"cluster": "local"}
    execute(specs[2], plugins, context)
    made = submit(specs, plugins, context, 1, options)
    assert (len(made.jobs), made.already) == (2, 1)
    assert states(context.results) in (
        {"broken": "queued", "held": "queued", "bce": "done"},
        {"broken": "running", "held": "queued", "bce": "done"},
    )
    again = submit(specs, plugins, context, 1, options)
    assert (again.jobs, again.underway) == ([], 2)
    wait_for(lambda: states(context.results).get("held") == "running")
    assert states(context.results)["broken"] == "failed"  # and stopped nobody
    hold.unlink()
    wait_for(lambda: states(context.results)["held"] == "done")
    wait_for(lambda: not slurm_engine.underway(context.results))
    assert "broken on purpose" in next((context.results / ".slurm").glob("*_log.out")).read_text()
    execute(specs[0], plugins, context)  # now that nothing holds it
    assert submit(specs, plugins, context, 1, options).already == 3
    assert not queue_folder(context.results).exists()
    assert board(context.results)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("2-00", 2880),
        ("1-12:30", 2190),
        ("1-00:00:30", 1441),
    ],
)
def test_times_are_read_as_sbatch_reads_them(text: str, expected: int) -> None:
    assert slurm_engine.minutes(text) == expected


def test_slurm_options_under_their_short_names() -> None:
    typed = {"partition": "gpu", "cpus": "4", "mem": "8000", "gres": "gpu:1", "time": "60"}
    assert slurm_engine.parse_options({**typed, "nice": "5", "exclusive": ""}) == {
        "partition": "gpu",
        "cpus_per_task": 4,
        "mem": "8000",
        "gres": "gpu:1",
        "time": 60,
        "nice": 5,
        "exclusive": True,
    }
    with pytest.raises(UserError, match="expected minutes"):
        slurm_engine.minutes("soon")


def test_more_runs_than_an_array_holds_are_several_arrays() -> None:
    specs = [RunSpec("bce", "tiny", seed=seed) for seed in range(2500)]
    arrays = list(slurm_engine._chunks(specs, "slurm", None))
    assert [len(array) for array in arrays] == [1000, 1000, 500]
    assert all(len(runs) == 1 for array in arrays for runs in array)


def test_a_run_that_is_queued_again_does_not_look_stopped(tmp_path: Path, plugins: Plugins) -> None:
    """When its time is up submitit queues the job again, and ends it: the run saves, and tells of it."""
    (spec,) = specs_of(plugins, "held")
    context = RunContext(tmp_path / "results", "cpu")
    folder = RunFolder.of(context.results, spec)

    class TimeIsUp:
        """A payload in whose run the job's time is up."""

        def __init__(self) -> None:
            self.context = context

        def run(self, spec: RunSpec, notify: object) -> None:
            folder.path.mkdir(parents=True)
            folder.progress_file.write_text("{}")
            job.checkpoint()
            assert not folder.progress_file.exists()
            folder.progress_file.write_text("{}")  # by the judge, which has stored a checkpoint
            raise SystemExit(-1)  # as submitit does

    job = slurm_engine.Job(TimeIsUp(), [spec])  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        job()
    assert not folder.progress_file.exists()


@pytest.mark.parametrize(("module", "extra"), [("ray", "ray"), ("submitit", "slurm")])
def test_a_missing_package_is_one_line_with_what_to_install(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return there(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    missing = ray_engine._import_ray if module == "ray" else slurm_engine._import_submitit
    with pytest.raises(UserError, match=rf"pip install 'ssmlbench\[{extra}\]'"):
        missing()


def test_an_engine_without_its_cluster_is_one_line(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    context = RunContext(tmp_path / "results", "cpu")
    with pytest.raises(UserError, match="there is no srun here"):
        submit(specs_of(plugins, "bce"), plugins, context, None, {})
    with pytest.raises(UserError, match="must be slurm or local"):
        submit(specs_of(plugins, "bce"), plugins, context, None, {"cluster": "big"})
