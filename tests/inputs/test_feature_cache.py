"""The cache of frozen features: its keys, shared by processes, resumed after a kill, listed and cleared."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.core.events import Done, Encoding, Event
from ssmlbench.core.files import write_atomically
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs import frozen as features
from ssmlbench.inputs.cache_folders import cached_features, features_root
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.fork_server import fork_server
from tests.support.frozen_features import frozen, frozen_spec, rows_of
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

pytestmark = pytest.mark.usefixtures("empty_cache")


# ------------------------------------------------------------------------------- the key


def test_the_key_of_features_names_a_device_and_its_precision_but_not_the_cpu(
    tiny: Plugins,
) -> None:
    spec = frozen_spec(tiny, "tiny-images")
    here = frozen(tiny, spec)
    there = dataclasses.replace(here, device=torch.device("cuda"))
    short = dataclasses.replace(there, spec=dataclasses.replace(spec, precision="bfloat16"))
    fast = dataclasses.replace(there, spec=dataclasses.replace(spec, fast=True))
    keys = [json.dumps(one.key("train", "plain", 0)) for one in (here, there, short, fast)]
    assert len(set(keys)) == 4
    assert not {"device", "precision", "fast"} & here.key("train", "plain", 0).keys()
    on_cpu = dataclasses.replace(short, device=torch.device("cpu"))
    assert json.dumps(on_cpu.key("train", "plain", 0)) == keys[0]  # it encodes in float32


SHIFTED = """
from ssmlbench.api import Encoder

def make(title, shift):
    class Shifted(Encoder):
        name, kinds = title, {"vector"}

        def __init__(self, example, options=None):
            super().__init__(example, options)
            self.features = len(example)

        @classmethod
        def weights_id(cls, options):
            return "shifted@1"

        def forward(self, vectors):
            return vectors + shift

    return Shifted

Near, Far = make("near", 1), make("far", 100)
"""


def test_encoders_that_a_function_makes_have_features_of_their_own(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shifted.py"
    file.write_text(SHIFTED)
    plugins = Plugins([write_data_plugin(tmp_path), file])
    both = [
        frozen(plugins, frozen_spec(plugins, "tiny-vectors", backbone=name)).features(
            "test", "plain"
        )
        for name in ("near", "far")
    ]
    assert torch.allclose(both[0] + 99, both[1], atol=0.1)


def test_the_key_changes_with_every_option_and_with_nothing_else(
    tiny: Plugins, bert: Path, tmp_path: Path
) -> None:
    other = save_tiny_bert(tmp_path / "other", seed=1)
    moved = save_tiny_bert(tmp_path / "moved")

    def folder(spec: RunSpec, split: str = "train", view: str = "strong", draw: int = 0) -> Path:
        return frozen(tiny, spec).folder(split, view, draw).path

    spec = frozen_spec(tiny, "tiny-text", bert)
    different = [
        folder(spec),
        folder(spec, draw=1),
        folder(spec, view="plain"),
        folder(spec, split="test"),
        folder(frozen_spec(tiny, "tiny-text", other)),
        folder(frozen_spec(tiny, "tiny-text", bert, max_tokens=20)),
        folder(frozen_spec(tiny, "tiny-text", bert, pooling="all")),
        folder(frozen_spec(tiny, "tiny-text", bert, weights="none")),
        folder(dataclasses.replace(spec, encoder_code="edited")),
    ]
    assert len(set(different)) == len(different)
    for same in (
        frozen_spec(tiny, "tiny-text", bert, seed=3, method="cap", lr=0.1, strong_views=8),
        frozen_spec(tiny, "tiny-text", moved),  # the same files in another folder
    ):
        assert folder(same) == folder(spec)


def test_the_key_changes_with_the_data(tiny: Plugins) -> None:
    maker = frozen(tiny, frozen_spec(tiny, "tiny-vectors"))
    before = maker.folder("train", "plain", 0).path
    maker.task.card = dataclasses.replace(maker.task.card, fingerprint="0" * 16)
    assert maker.folder("train", "plain", 0).path != before


def test_more_strong_views_reuse_those_there_are(tiny: Plugins) -> None:
    frozen(tiny, frozen_spec(tiny, "tiny-vectors", strong_views=2)).inputs("train")
    events: list[Event] = []
    frozen(tiny, frozen_spec(tiny, "tiny-vectors", strong_views=3), events.append).inputs("train")
    assert {e.part for e in events if isinstance(e, Encoding)} == {"train strong 3"}


def test_a_second_run_builds_no_encoder(
    tiny: Plugins, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RunContext(tmp_path / "results", "cpu", 1)
    execute(frozen_spec(tiny, "tiny-text", bert), tiny, context)
    monkeypatch.setattr(FrozenEncoder, "_encoded", lambda *_: pytest.fail("encoded again"))
    assert isinstance(execute(frozen_spec(tiny, "tiny-text", bert, seed=1), tiny, context), Done)


# ------------------------------------------------------------------------------- kills and company


def test_a_killed_computation_goes_on_at_the_next_shard(
    tiny: Plugins, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SHARD_ROWS", 16)  # 60 rows: 16 + 16 + 16 + 12

    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if isinstance(event, Encoding) and event.done == 32:
            raise Killed

    spec = frozen_spec(tiny, "tiny-text", bert)
    maker = frozen(tiny, spec, kill)
    with pytest.raises(Killed):
        maker.computed("train", "strong", 0)
    folder = maker.folder("train", "strong", 0)
    assert not folder.complete
    kept = folder.shard_file(0).stat().st_mtime_ns
    events: list[Event] = []
    resumed = rows_of(frozen(tiny, spec, events.append).computed("train", "strong", 0))
    assert [e.done for e in events if isinstance(e, Encoding)] == [48, 60]
    assert folder.shard_file(0).stat().st_mtime_ns == kept
    assert folder.about["shards"] == 4
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "undisturbed"))
    assert torch.equal(resumed, rows_of(frozen(tiny, spec).computed("train", "strong", 0)))


def compute(request: tuple[str, str, str, float, str], *pipes: object) -> None:
    """In a process of its own: the training features, with a pause after every shard."""
    plugin, backbone, cache, pause, out = request
    os.environ["SSMLBENCH_CACHE"] = cache
    torch.set_num_threads(1)
    features.SHARD_ROWS = 16
    plugins = Plugins([plugin])
    events: list[dict[str, Any]] = [{"pid": os.getpid()}]

    def notify(event: Event) -> None:
        events.append(dataclasses.asdict(event))
        write_atomically(Path(out), json.dumps(events))  # another process reads it
        time.sleep(pause)

    spec = frozen_spec(plugins, "tiny-text", Path(backbone))
    found = rows_of(frozen(plugins, spec, notify).computed("train", "strong", 0))
    write_atomically(Path(out), json.dumps([*events, {"sum": float(found.float().sum())}]))


def nothing(*arguments: object) -> None:
    """The second process of a fork, which is not needed here."""


@pytest.fixture
def start(plugin_file: Path, bert: Path, tmp_path: Path) -> Callable[[str, float], Connection]:
    """Begin to compute; the pipe is closed when the process has ended, however it did."""

    def begin(name: str, pause: float) -> Connection:
        cache, out = str(tmp_path / "cache"), str(tmp_path / name)
        request = (str(plugin_file), str(bert), cache, pause, out)
        return fork_server().fork(f"{__name__}:compute", f"{__name__}:nothing", request)

    return begin


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 600
    while not file.exists():
        assert time.monotonic() < limit, f"{file} did not come"
        time.sleep(0.05)


def wait_for_the_end(process: Connection) -> None:
    assert process.poll(600)
    with pytest.raises(EOFError):
        process.recv_bytes()


def told(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())[1:]  # type: ignore[no-any-return]


def test_two_processes_share_one_cache_and_one_computation(
    start: Callable[[str, float], Connection], tmp_path: Path
) -> None:
    first = start("first", 0.5)
    wait_for(tmp_path / "first")  # it holds the lock, with three shards to go
    second = start("second", 0.0)
    for process in (first, second):
        wait_for_the_end(process)
    a, b = told(tmp_path / "first"), told(tmp_path / "second")
    assert a[-1] == b[-1]
    assert "sum" in a[-1]
    assert len(a) == 5
    assert not [event for event in b[:-1] if "done" in event]  # it computed nothing


def test_a_process_killed_hard_leaves_a_cache_that_goes_on(
    start: Callable[[str, float], Connection], tmp_path: Path
) -> None:
    first = start("first", 6000.0)
    wait_for(tmp_path / "first")
    os.kill(json.loads((tmp_path / "first").read_text())[0]["pid"], signal.SIGKILL)
    wait_for_the_end(first)
    second = start("second", 0.0)
    wait_for_the_end(second)
    done = told(tmp_path / "second")
    assert [event["done"] for event in done[:-1]] == [32, 48, 60]


# ------------------------------------------------------------------------------- ssmlbench cache


def test_cache_list_and_clear(ssmlbench: Callable[..., Any], tiny: Plugins) -> None:
    frozen(tiny, frozen_spec(tiny, "tiny-vectors")).inputs("train")
    begun = features_root() / "tiny-text-train-plain-0123"
    begun.mkdir()
    listed = ssmlbench("cache", "list").stdout
    assert listed.count("tiny-vectors") == 1  # not a row for each view
    assert "strong × 2" in listed
    assert "begun" in listed
    assert "removed 1," in ssmlbench("cache", "clear", "--begun").stdout
    assert len(cached_features()) == 3
    assert "removed 0," in ssmlbench("cache", "clear", "--dataset", "multidigits").stdout
    refused = ssmlbench("cache", "clear", "--dataset", "other")
    assert refused.returncode == 2
    assert "no such data set" in refused.stderr
    assert "removed 3," in ssmlbench("cache", "clear").stdout
    assert not cached_features()


def test_what_is_being_computed_is_not_cleared(tiny: Plugins) -> None:
    maker = frozen(tiny, frozen_spec(tiny, "tiny-vectors"))
    maker.inputs("test")
    folder = maker.folder("test", "plain", 0)
    with Lock(folder.lock_file):
        assert not folder.remove()
    assert folder.complete
    assert folder.remove()


def test_a_folder_that_is_cleared_while_a_run_waits_for_it_is_there_when_it_has_it(
    tmp_path: Path,
) -> None:
    folder, ready = ShardFolder(tmp_path / "rows"), threading.Event()
    there: list[bool] = []

    def make() -> None:
        with folder.locked(lambda event: ready.set(), "waits"):
            there.append(folder.path.is_dir())

    with Lock(folder.lock_file):
        run = threading.Thread(target=make, daemon=True)
        run.start()
        assert ready.wait(600)
        shutil.rmtree(folder.path)  # as `remove` does
    run.join(600)
    assert there == [True]
    assert folder.bytes == 0


def test_cache_list_imports_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from typer.testing import CliRunner; from ssmlbench.cli.cache import cache_app; "
        "assert CliRunner().invoke(cache_app, ['list']).exit_code == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
