"""Frozen features: computed once, shared, resumed after a kill, and trained on."""

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

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.events import Done, Encoding, Event
from ssmlbench.core.files import write_atomically
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import prepare
from ssmlbench.inputs import frozen as features
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import find_encoder
from ssmlbench.inputs.feature_cache import FeatureFolder, cached_features, features_root
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.inputs.prepared import prepared_inputs
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.fork_server import fork_server
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import encoder_class
from tests.support.simulated_device import SimulatedDevice
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

BACKBONES: dict[str, dict[str, Any]] = {
    "tiny-text": {"max_tokens": 24},
    "tiny-images": {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32},
    "tiny-vectors": {},
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="module")
def plugin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_plugin(tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="module")
def tiny(plugin_file: Path) -> Plugins:
    return Plugins([plugin_file])


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))


def asked(plugins: Plugins, dataset: str, bert: Path | None = None, **fields: Any) -> RunSpec:
    short: dict[str, Any] = {"method": "bce", "pi": 0.3, "epochs": 4, "freeze": True}
    short |= {"batch_size": 16, "labelled_batch_size": 8, "strong_views": 2, **BACKBONES[dataset]}
    if bert:
        short["backbone"] = str(bert)
    return resolve(plugins, {}, dataset=dataset, **{**short, **fields})


def frozen(plugins: Plugins, spec: RunSpec, notify: Any = lambda event: None) -> FrozenEncoder:
    task = prepare(plugins.datasets[spec.dataset]())
    return FrozenEncoder(
        spec, encoder_class(spec, plugins), task, torch.device("cpu"), notify=notify
    )


def rows_of(folder: FeatureFolder) -> torch.Tensor:
    return torch.cat([torch.from_numpy(np.load(file)) for file in folder.shards()])


# ------------------------------------------------------------------------------- end to end


@pytest.mark.parametrize("method", ["bce", "cap"])
@pytest.mark.parametrize("dataset", BACKBONES)
def test_methods_train_on_cached_features_of_every_kind(
    method: str, dataset: str, tiny: Plugins, bert: Path, tmp_path: Path
) -> None:
    spec = asked(tiny, dataset, bert if dataset == "tiny-text" else None, method=method)
    events: list[Event] = []
    context = RunContext(tmp_path / "results", "cpu", 1)
    assert isinstance(execute(spec, tiny, context, events.append), Done)
    result = json.loads(RunFolder.of(context.results, spec).result_file.read_text())
    assert 0 <= result["metrics"]["threshold"]["default"]["map"] <= 1
    done = {e.part: e.done for e in events if isinstance(e, Encoding)}
    wanted = {"train plain": 60, "test plain": 20}
    if dataset == "tiny-images":
        wanted["train weak"] = 60  # with the plain view it makes up R = 2
    else:  # the weak view is the row itself
        wanted |= {"train strong 1": 60, "train strong 2": 60}
    assert done == wanted


def test_features_are_read_back_once_a_shard(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = frozen(tiny, asked(tiny, "tiny-images"))
    monkeypatch.setattr(features, "SHARD_ROWS", 24)
    monkeypatch.setattr(encoder.encoder, "batch_rows", 8)
    read, cpu = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: read.append(len(self)) or cpu(self))
    encoder.computed("train", "plain")
    assert read == [24, 24, 12]


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
def test_on_a_device_no_batch_waits_and_a_shard_is_read_while_the_next_one_is_computed(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = frozen(tiny, asked(tiny, "tiny-images"))
    monkeypatch.setattr(features, "SHARD_ROWS", 24)
    monkeypatch.setattr(here.encoder, "batch_rows", 8)
    expected = rows_of(here.computed("train", "weak"))
    log: list[str] = []
    fetched = Transfer.fetched

    def logged(self: Transfer, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        log.append(f"{len(tensor)} rows are done")
        fetch = fetched(self, tensor)
        return lambda: log.append(f"{len(tensor)} rows are read") or fetch()

    monkeypatch.setattr(Transfer, "fetched", logged)
    with SimulatedDevice() as sim:
        there = dataclasses.replace(here, device=sim.device)
        there._built = there._build(there._raw("train"))
        before = sim.traffic.copied()
        found = rows_of(there.computed("train", "weak"))
        traffic = sim.traffic.since(before)
    assert torch.equal(found, expected)
    assert not traffic.waits
    assert not traffic.unpinned
    assert traffic.to_device.total() == 8  # batches
    assert traffic.to_host.total() == 3  # shards
    assert log == [
        *("24 rows are done", "24 rows are done", "24 rows are read"),
        *("12 rows are done", "24 rows are read", "12 rows are read"),
    ]


def test_the_key_of_features_names_a_device_and_its_precision_but_not_the_cpu(
    tiny: Plugins,
) -> None:
    spec = asked(tiny, "tiny-images")
    here = frozen(tiny, spec)
    there = dataclasses.replace(here, device=torch.device("cuda"))
    short = dataclasses.replace(there, spec=dataclasses.replace(spec, precision="bfloat16"))
    fast = dataclasses.replace(there, spec=dataclasses.replace(spec, fast=True))
    keys = [json.dumps(one.key("train", "plain", 0)) for one in (here, there, short, fast)]
    assert len(set(keys)) == 4
    assert not {"device", "precision", "fast"} & here.key("train", "plain", 0).keys()
    on_cpu = dataclasses.replace(short, device=torch.device("cpu"))
    assert json.dumps(on_cpu.key("train", "plain", 0)) == keys[0]  # it encodes in float32


@pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning")  # torch disables it here
def test_a_frozen_encoder_computes_in_the_precision_asked_for_except_on_a_cpu() -> None:
    spec = RunSpec(method="bce", dataset="any", precision="bfloat16")
    with features.encoding_precision(torch.device("cpu"), spec):
        assert not torch.is_autocast_enabled("cpu")
    there = features.encoding_precision(torch.device("cuda"), spec)
    assert isinstance(there, torch.autocast)
    assert (there.device, there.fast_dtype) == ("cuda", torch.bfloat16)


def test_a_second_run_builds_no_encoder(
    tiny: Plugins, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RunContext(tmp_path / "results", "cpu", 1)
    execute(asked(tiny, "tiny-text", bert), tiny, context)
    monkeypatch.setattr(FrozenEncoder, "_encoded", lambda *_: pytest.fail("encoded again"))
    assert isinstance(execute(asked(tiny, "tiny-text", bert, seed=1), tiny, context), Done)


def test_cached_features_are_what_the_encoder_gives(tiny: Plugins, bert: Path) -> None:
    spec = asked(tiny, "tiny-text", bert)
    maker = frozen(tiny, spec)
    found = maker.inputs("test").view(np.arange(20), "plain", torch.Generator())
    cls = find_encoder(tiny.encoders, str(bert), "text")
    raw = prepared_inputs(cls, maker.options, maker.task, "test")
    ids = raw.view(np.arange(20), "plain", torch.Generator())
    with torch.no_grad():
        expected = cls(ids[0], maker.options).eval()(ids)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=2e-3)  # half precision


def test_a_strong_view_is_one_of_the_rows_cached_draws_with_features_dropped() -> None:
    plain = torch.arange(5.0).half()[:, None].repeat(1, 40)  # equal features: no spread, no noise
    strong = torch.stack([plain * 10, plain * 10 + 1, plain * 10 + 2], dim=1).flatten(0, 1)
    inputs = CachedInputs({"plain": plain, "weak": plain, "strong": strong}, draws=3)
    rows = np.array([4, 0, 2] * 40)
    seen = inputs.view(rows, "strong", torch.Generator().manual_seed(0))
    draw = seen.amax(dim=1) / 2 - 10 * torch.from_numpy(rows)  # what is kept is twice as large
    assert set(draw.tolist()) == {0.0, 1.0, 2.0}
    assert 0.45 < float((seen[rows > 0] == 0).float().mean()) < 0.55
    again = inputs.view(rows, "strong", torch.Generator().manual_seed(0))
    assert torch.equal(seen, again)
    assert torch.equal(
        inputs.view(rows, "weak", torch.Generator()).flatten(), plain[rows].flatten()
    )


def test_patches_of_a_row_stay_together_and_are_had_when_asked_for() -> None:
    plain = torch.arange(3.0)[:, None].repeat(1, 8).half()
    patches = torch.arange(24.0).reshape(6, 4, 1).repeat(1, 1, 8).half()  # 3 rows × 2 draws × 4
    asked: list[str] = []

    def load() -> torch.Tensor:
        asked.append("strong-patches")
        return patches

    inputs = CachedInputs({"plain": plain}, 2, {"strong-patches": load})
    assert set(inputs.views) == {"plain", "strong-patches"}
    inputs.view(np.array([0]), "plain", torch.Generator())
    assert asked == []
    for _ in range(2):
        seen = inputs.view(np.array([2, 0]), "strong-patches", torch.Generator().manual_seed(3))
    assert asked == ["strong-patches"]
    assert seen.shape == (8, 8)
    kept = seen.amax(1) / 2  # half of the features are kept, at twice their size
    # Row 2's draws are patches 16..19 and 20..23, row 0's are 0..3 and 4..7.
    assert kept[:4].tolist() in ([16, 17, 18, 19], [20, 21, 22, 23])
    assert kept[4:].tolist() in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_frozen_patches_are_cached_for_the_method_that_looks_at_them(
    tiny: Plugins, tmp_path: Path
) -> None:
    context = RunContext(tmp_path / "results", "cpu", 1)
    execute(asked(tiny, "tiny-images", epochs=2, strong_views=3), tiny, context)
    names = {folder.about["view"] for folder in cached_features()}
    assert names == {"plain", "weak", "strong"}
    spec = asked(tiny, "tiny-images", method="d2l_mat", epochs=2, strong_views=3)
    execute(spec, tiny, context)
    names = {folder.about["view"] for folder in cached_features()}
    assert names == {f"{v}{p}" for v in ("plain", "weak", "strong") for p in ("", "-patches")}
    scores = load_file(RunFolder.of(context.results, spec).scores_file)["scores"]
    again = RunContext(tmp_path / "again", "cpu", 1)
    execute(spec, tiny, again)  # now that every view is cached
    expected = load_file(RunFolder.of(again.results, spec).scores_file)["scores"]
    np.testing.assert_array_equal(scores, expected)


def test_frozen_patches_are_what_the_encoder_gives(tiny: Plugins) -> None:
    maker = frozen(tiny, asked(tiny, "tiny-images"))
    found = maker.inputs("test").view(np.arange(5), "plain-patches", torch.Generator())
    raw = prepared_inputs(maker.encoder, maker.options, maker.task, "test")
    with torch.no_grad():
        assert maker._built is not None
        expected = maker._built(raw.view(np.arange(5), "plain-patches", torch.Generator()))
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=5e-3)  # half precision


def test_features_that_are_not_finite_are_refused(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ssmlbench.inputs.encoders import Vector

    monkeypatch.setattr(Vector, "forward", lambda self, rows: rows * 1e9)
    with pytest.raises(RunFailed, match="half precision"):
        frozen(tiny, asked(tiny, "tiny-vectors")).inputs("test")


# ------------------------------------------------------------------------------- the key


def test_the_key_changes_with_every_option_and_with_nothing_else(
    tiny: Plugins, bert: Path, tmp_path: Path
) -> None:
    other = save_tiny_bert(tmp_path / "other", seed=1)
    moved = save_tiny_bert(tmp_path / "moved")

    def folder(spec: RunSpec, split: str = "train", view: str = "strong", draw: int = 0) -> Path:
        return frozen(tiny, spec).folder(split, view, draw).path

    spec = asked(tiny, "tiny-text", bert)
    different = [
        folder(spec),
        folder(spec, draw=1),
        folder(spec, view="plain"),
        folder(spec, split="test"),
        folder(asked(tiny, "tiny-text", other)),
        folder(asked(tiny, "tiny-text", bert, max_tokens=20)),
        folder(asked(tiny, "tiny-text", bert, pooling="all")),
        folder(asked(tiny, "tiny-text", bert, weights="none")),
        folder(dataclasses.replace(spec, encoder_code="edited")),
    ]
    assert len(set(different)) == len(different)
    for same in (
        asked(tiny, "tiny-text", bert, seed=3, method="cap", lr=0.1, strong_views=8),
        asked(tiny, "tiny-text", moved),  # the same files in another folder
    ):
        assert folder(same) == folder(spec)


def test_the_key_changes_with_the_data(tiny: Plugins) -> None:
    maker = frozen(tiny, asked(tiny, "tiny-vectors"))
    before = maker.folder("train", "plain", 0).path
    maker.task.card = dataclasses.replace(maker.task.card, fingerprint="0" * 16)
    assert maker.folder("train", "plain", 0).path != before


def test_more_strong_views_reuse_those_there_are(tiny: Plugins) -> None:
    frozen(tiny, asked(tiny, "tiny-vectors", strong_views=2)).inputs("train")
    events: list[Event] = []
    frozen(tiny, asked(tiny, "tiny-vectors", strong_views=3), events.append).inputs("train")
    assert {e.part for e in events if isinstance(e, Encoding)} == {"train strong 3"}


@pytest.mark.parametrize(
    ("fields", "views"),
    [
        ({}, ["plain", "weak", "strong", "strong"]),
        ({"mixed_draws": False}, ["strong"] * 4),
        ({"recipe": "paper"}, ["strong"] * 4),
        ({"strong_views": 1}, ["plain"]),
    ],
)
@pytest.mark.parametrize("patches", ["", "-patches"])
def test_the_strong_view_of_an_image_is_drawn_from_clean_views_too(
    fields: dict[str, Any], views: list[str], patches: str, tiny: Plugins
) -> None:
    maker = frozen(tiny, asked(tiny, "tiny-images", **{"strong_views": 4, **fields}))
    inputs = maker.inputs("train")
    assert inputs.draws == len(views)
    generator = torch.Generator()
    _ = inputs.view(np.arange(1), f"strong{patches}", generator)  # loads patches
    strong = inputs.values[f"strong{patches}"].unflatten(0, (-1, len(views)))
    for number, view in enumerate(views):
        draw = views[:number].count("strong") if view == "strong" else 0
        cached = rows_of(maker.folder("train", f"{view}{patches}", draw))
        assert torch.equal(strong[:, number].flatten(0, -2), cached)


def test_one_clean_view_where_the_weak_view_is_the_plain_one(tiny: Plugins) -> None:
    inputs = frozen(tiny, asked(tiny, "tiny-vectors", strong_views=3, mixed_draws=True))
    strong = inputs.inputs("train").values["strong"].unflatten(0, (-1, 3))
    for number, (view, draw) in enumerate([("plain", 0), ("strong", 0), ("strong", 1)]):
        assert torch.equal(strong[:, number], rows_of(inputs.folder("train", view, draw)))


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

    spec = asked(tiny, "tiny-text", bert)
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

    spec = asked(plugins, "tiny-text", Path(backbone))
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
    frozen(tiny, asked(tiny, "tiny-vectors")).inputs("train")
    begun = features_root() / "tiny-text-train-plain-0123"
    begun.mkdir()
    listed = ssmlbench("cache", "list").stdout
    assert "tiny-vectors" in listed
    assert "strong 2" in listed
    assert "begun" in listed
    assert "removed 1," in ssmlbench("cache", "clear", "--begun").stdout
    assert len(cached_features()) == 3
    assert "removed 0," in ssmlbench("cache", "clear", "--dataset", "other").stdout
    assert "removed 3," in ssmlbench("cache", "clear").stdout
    assert not cached_features()


def test_what_is_being_computed_is_not_cleared(tiny: Plugins) -> None:
    maker = frozen(tiny, asked(tiny, "tiny-vectors"))
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
