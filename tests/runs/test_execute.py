"""One run from spec to folder: finished once, killed and resumed, shared and failed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file as load_scores

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import AlreadyDone, Done, Event, Notify, Resumed, Warned
from ssmlbench.core.files import PART, temporary_beside
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.metrics import evaluate
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from ssmlbench.training.checkpoint import Checkpoint

DATASET = '''
import numpy as np
from ssmlbench.api import DatasetAdapter, PublishedStatistics, Row

class Tiny(DatasetAdapter):
    """Vectors that say their labels, with a label that no test row has."""
    name, kind, backbone = "tiny", "vector", "vector"
    published = PublishedStatistics("nobody", train=1200, test=40, labels=4)

    def label_names(self):
        return ["a", "b", "c", "never tested"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for i in range({"train": 120, "test": 40}[split]):
            labels = [k for k in range(3) if random.random() < 0.4]
            labels += [3] if split == "train" and i % 3 == 0 else []
            vector = np.isin(np.arange(8) // 2, labels) + 0.5 * random.normal(size=8)
            yield Row(vector.astype(np.float32), tuple(labels))
'''

SLOW_METHOD = '''
import time
from ssmlbench.api import bce
from ssmlbench.api import Method

class Slow(Method):
    """BCE that takes its time, so that it can be killed in the middle."""
    name = "slow"
    unlabelled_views = ()

    def loss(self, labelled, unlabelled):
        time.sleep(0.05)
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''


@pytest.fixture
def tiny(tmp_path: Path) -> list[Path]:
    files = {"tiny.py": DATASET, "slow.py": SLOW_METHOD}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return [tmp_path / name for name in files]


@pytest.fixture
def make(tmp_path: Path, tiny: list[Path]) -> Callable[..., tuple[RunSpec, RunFolder, str]]:
    plugins = Plugins(tiny)

    def call(notify: Notify = lambda event: None, **fields: Any) -> tuple[RunSpec, RunFolder, str]:
        wanted = {"method": "bce", "dataset": "tiny", "pi": 0.3, "epochs": 4, **fields}
        spec = resolve(plugins, wanted.pop("settings", {}), **wanted)
        context = RunContext(tmp_path / "results", "cpu", 1)
        return spec, RunFolder.of(context.results, spec), execute(spec, plugins, context, notify)

    return call


def test_a_finished_run_has_everything_and_no_leftovers(make: Callable[..., Any]) -> None:
    spec, folder, status = make()
    assert isinstance(status, Done)
    assert sorted(p.name for p in folder.path.iterdir()) == [
        *("diagnostics.safetensors", "history.csv", "model.json", "model.safetensors"),
        *("result.json", "scores.safetensors", "spec.json"),
    ]
    assert folder.path.parts[-4:] == ("tiny", "semi-0.3", "bce", f"0-{spec.hash}")
    result = json.loads(folder.result_file.read_text())
    assert RunSpec.from_dict(result["spec"]) == spec
    assert result["labels_without_test_positive"] == 1
    assert result["data"]["unlike_published"] == ["train rows: 120 here, 1,200 published"]
    assert len(folder.history_file.read_text().splitlines()) == 1 + spec.epochs


def test_stored_scores_give_the_stored_metrics_under_every_rule(make: Callable[..., Any]) -> None:
    _, folder, _ = make()
    stored = load_scores(folder.scores_file)
    truth = stored["truth"].astype(bool)
    result = json.loads(folder.result_file.read_text())
    for decision in ("calibrated", "threshold", "top-k"):
        predicted = decide(stored["scores"], decision, truth=truth, parameters=stored)
        for convention in ("default", "released"):
            found = evaluate(stored["scores"], truth, predicted, convention=convention)
            assert result["metrics"][decision][convention] == pytest.approx(found)


def test_labels_that_cannot_be_judged_are_warned_of(make: Callable[..., Any]) -> None:
    events: list[Event] = []
    make(events.append, pi=0.02)  # two labelled rows
    texts = [event.text for event in events if isinstance(event, Warned)]
    assert any("no test positive" in text for text in texts)
    assert any("no labelled positive" in text for text in texts)


def test_a_finished_spec_is_not_made_again(make: Callable[..., Any]) -> None:
    _, folder, _ = make()
    before = folder.result_file.read_bytes()
    assert make()[2] == AlreadyDone()
    assert folder.result_file.read_bytes() == before


def test_a_loss_that_is_not_finite_leaves_nothing_behind(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(RunFailed, match="not finite"):
        make(lr=1e38)
    assert not list((tmp_path / "results").rglob("*.json"))
    assert not list((tmp_path / "results").rglob("*.safetensors"))


def test_a_plugin_that_raises_is_told_and_leaves_nothing_behind(
    tmp_path: Path, tiny: list[Path]
) -> None:
    raises = SLOW_METHOD.replace("time.sleep(0.05)", "1 / 0").replace("slow", "raises")
    (tmp_path / "raises.py").write_text(raises)
    plugins = Plugins([*tiny, tmp_path / "raises.py"])
    spec = resolve(plugins, {}, method="raises", dataset="tiny", pi=0.3, epochs=2)
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu", 1))
    assert not list((tmp_path / "results").rglob("*"))


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        ("1 / 0", "raises.py:{line}: ZeroDivisionError"),
        (
            "return labelled.logits('strong').mean()",
            "loss returned a tensor; expected a dictionary",
        ),
        (
            "labelled.logits('stong')",
            "raises.py:{line}: there is no view 'stong'. Did you mean strong",
        ),
    ],
)
def test_a_run_names_the_mistake_with_its_line(
    tmp_path: Path, tiny: list[Path], mistake: str, reason: str
) -> None:
    text = SLOW_METHOD.replace("time.sleep(0.05)", mistake).replace("slow", "raises")
    (tmp_path / "raises.py").write_text(text)
    line = 1 + next(i for i, code in enumerate(text.splitlines()) if mistake in code)
    plugins = Plugins([*tiny, tmp_path / "raises.py"])
    spec = resolve(plugins, {}, method="raises", dataset="tiny", pi=0.3, epochs=2)
    with pytest.raises(RunFailed) as raised:
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu", 1))
    assert reason.format(line=line) in str(raised.value)
    assert "raises.py:" in str(raised.value)


def test_code_that_changed_after_planning_is_refused(tmp_path: Path, tiny: list[Path]) -> None:
    spec = resolve(Plugins(tiny), {}, method="slow", dataset="tiny", pi=0.3, epochs=2)
    edited = tmp_path / "edited"  # as a worker process finds it that loads the file later
    edited.mkdir()
    for file in tiny:
        text = file.read_text()
        (edited / file.name).write_text(text.replace(".mean()}", ".sum()}"))
    plugins = Plugins([edited / file.name for file in tiny])
    with pytest.raises(UserError, match="method slow: its code has changed"):
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu", 1))
    assert not list((tmp_path / "results").rglob("*"))


def test_a_full_disk_keeps_what_was_done(
    tmp_path: Path, tiny: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tiny)
    spec = resolve(plugins, {}, method="bce", dataset="tiny", pi=0.3, epochs=4)
    context = RunContext(tmp_path / "results", "cpu", 1)
    write = Checkpoint.write

    def fills_up(self: Checkpoint, tensors: Any, facts: Any) -> None:
        if facts["epoch"] == 3:
            raise OSError(28, "No space left on device")
        write(self, tensors, facts)

    monkeypatch.setattr(Checkpoint, "write", fills_up)
    with pytest.raises(RunFailed, match="No space left"):
        execute(spec, plugins, context)
    monkeypatch.undo()
    events: list[Event] = []
    assert isinstance(execute(spec, plugins, context, events.append), Done)
    assert Resumed(2) in events


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"method": "capp"}, "Did you mean cap"),
        ({"dataset": "tinny"}, "Did you mean tiny"),
        ({"backbone": "small-cnn"}, "reads image, tiny is vector"),
        ({"regime": "single-positive"}, "does not support --regime single-positive"),
        ({"pi": 1.2}, r"\(0, 1\]"),
        ({"settings": {"los": "bce"}, "method": "cap"}, "Did you mean loss"),
        ({"settings": {"capp.loss": "bce"}}, "Did you mean cap"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_runs(
    make: Callable[..., Any], fields: dict[str, Any], answer: str
) -> None:
    with pytest.raises(UserError, match=answer):
        make(**fields)


def test_a_setting_can_be_for_one_method_of_a_grid(make: Callable[..., Any]) -> None:
    settings = {"cap.loss": "bce"}
    assert make(method="cap", settings=settings)[0].changed == ("loss",)
    assert make(method="bce", settings=settings)[0].changed == ()


def test_warm_up_keeps_its_share_of_a_shorter_run(make: Callable[..., Any]) -> None:
    assert make(epochs=10)[0].warmup_epochs == 3  # 12 of 40


def arguments(results: Path, plugins: list[Path], *more: str) -> list[str]:
    extra = [part for file in plugins for part in ("--plugin", str(file))]
    method = () if "--method" in more else ("--method", "slow")
    axes = [*method, "--dataset", "tiny", "--pi", "0.3", "--epochs", "6"]
    return ["run", *axes, "--batch-size", "16", "--results", str(results), *extra, *more]


def command(results: Path, plugins: list[Path]) -> list[str]:
    return [sys.executable, "-m", "ssmlbench", *arguments(results, plugins)]


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 600  # on a machine that may be very busy
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.mark.slow  # tests/grid/test_grid.py kills a grid in the default run
def test_killed_in_the_middle_of_an_epoch_it_ends_with_the_same_bits(
    tmp_path: Path, tiny: list[Path]
) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    subprocess.run(command(undisturbed, tiny), check=True, capture_output=True)
    for _ in range(2):
        process = subprocess.Popen(command(killed, tiny), stdout=subprocess.DEVNULL)
        known = {p.stat().st_mtime_ns for p in killed.rglob("checkpoint.safetensors")}
        wait_for(
            lambda known=known: (
                {p.stat().st_mtime_ns for p in killed.rglob("checkpoint.safetensors")} - known
            )
        )
        time.sleep(0.1)  # an epoch takes 0.3 s: this is in the middle of the next
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not list(killed.rglob("result.json"))
    last = subprocess.run(command(killed, tiny), check=True, capture_output=True, text=True)
    assert "continues after epoch" in last.stdout
    (one,), (two,) = undisturbed.rglob("scores.safetensors"), killed.rglob("scores.safetensors")
    assert one.read_bytes() == two.read_bytes()
    assert not list(killed.rglob("checkpoint.safetensors"))


def test_a_run_that_another_process_finishes_meanwhile_stays(
    tmp_path: Path, tiny: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tiny)
    context = RunContext(tmp_path / "results", "cpu", 1)
    spec = resolve(plugins, {}, method="bce", dataset="tiny", pi=0.3, epochs=2)
    execute(spec, plugins, context)
    folder, later = RunFolder.of(tmp_path / "results", spec), tmp_path / "later"
    folder.result_file.rename(later)
    acquire = Lock.acquire

    def acquire_after_the_other(self: Lock, wait: bool = True) -> None:
        later.rename(folder.result_file)
        acquire(self, wait)

    monkeypatch.setattr(Lock, "acquire", acquire_after_the_other)
    assert isinstance(execute(spec, plugins, context), AlreadyDone)
    assert folder.finished
    assert folder.scores_file.exists()


def test_a_run_is_deleted_with_all_its_files_unless_a_process_makes_it(
    tmp_path: Path, tiny: list[Path]
) -> None:
    spec = resolve(Plugins(tiny), {}, method="bce", dataset="tiny", pi=0.3, epochs=2)
    folder = RunFolder.of(tmp_path / "results", spec)
    with folder.claim():
        files = (folder.spec_file, folder.checkpoint_file, folder.judgements_file)
        for file in files:
            file.touch()
            temporary_beside(file).touch()
        assert not folder.delete()
        assert folder.checkpoint_file.exists()
    assert folder.delete()
    assert list((tmp_path / "results").iterdir()) == []


def test_what_a_killed_attempt_left_half_written_is_gone_when_the_run_is_made(
    tmp_path: Path, make: Callable[..., Any]
) -> None:
    """Whichever file it was: each file of a run is first written under another name beside it."""
    _, folder, _ = make()
    kinds = [getattr(RunFolder, name) for name in dir(RunFolder) if name.endswith("_file")]
    files = [kind.fget(folder) for kind in kinds]
    assert folder.judgements_file in files
    folder.result_file.unlink()
    for file in files:
        temporary_beside(file).touch()
    make()
    assert folder.finished
    assert not list(tmp_path.rglob(f".*{PART}"))


@pytest.mark.slow  # tests/core has the lock's own tests in the default run
def test_two_processes_asked_for_one_run_make_it_once(tmp_path: Path, tiny: list[Path]) -> None:
    both = [
        subprocess.Popen(command(tmp_path / "r", tiny), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = "".join(process.communicate(timeout=600)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said.count("already done") == 1
    assert said.count(": mAP ") == 1
    assert len(list((tmp_path / "r").rglob("result.json"))) == 1


def test_jobs_share_a_grid_and_a_dying_worker_stops_nobody(
    tmp_path: Path, tiny: list[Path], ssmlbench: Callable[..., Any]
) -> None:
    fatal = tmp_path / "fatal.py"
    fatal.write_text(
        SLOW_METHOD.replace("slow", "fatal")
        .replace("Slow", "Fatal")
        .replace("time.sleep(0.05)", "import os; os.kill(os.getpid(), 9)")
    )
    typed = arguments(tmp_path / "r", [*tiny, fatal], "--jobs", "2", "--method", "fatal,bce,slow")
    made = ssmlbench(*typed)
    assert made.returncode == 1
    assert "2 done, 0 already there, 1 failed" in made.stdout
    assert (
        "training process was killed (SIGKILL): is there too little memory? (twice)" in made.stdout
    )
    runs, complaints = read_finished([tmp_path / "r"])
    assert sorted(run.spec.method for run in runs) == ["bce", "slow"]
    assert not complaints


def test_one_and_two_jobs_give_the_same_bits(
    tmp_path: Path, tiny: list[Path], ssmlbench: Callable[..., Any]
) -> None:
    scores = []
    for jobs in ("1", "2"):
        typed = arguments(tmp_path / jobs, tiny, "--method", "bce,cap", "--jobs", jobs)
        assert ssmlbench(*typed).returncode == 0
        files = sorted((tmp_path / jobs).rglob("scores.safetensors"))
        scores.append([load_scores(file)["scores"] for file in files])
    assert len(scores[0]) == 2
    assert all(np.array_equal(a, b) for a, b in zip(*scores, strict=True))
