"""Decoded images: decoded once, shared, checked, made again when damaged, and never other pixels."""

from __future__ import annotations

import dataclasses
import errno
import io
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file

from ssmlbench.core.events import Decoding, Done, Event, Waiting, Warned
from ssmlbench.core.locks import Lock
from ssmlbench.data import Card, Task, prepare
from ssmlbench.grid.doctor import Checkup
from ssmlbench.inputs import decoded, prepared
from ssmlbench.inputs.cache_folders import DecodedFolder, cached_images
from ssmlbench.inputs.decoded import DecodedImages, DecodedInputs
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.encoders import EncoderOptions
from ssmlbench.inputs.encoders.base import Encoder
from ssmlbench.inputs.prepared import Reading, prepared_inputs
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.inputs.splits import Inputs, PreparedRows, StoredInputs
from ssmlbench.inputs.views import natural_views
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.photographs import OPTIONS, SIZE, Squares, photograph


@pytest.fixture(autouse=True)
def small_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own; 8 rows a shard, so that 20 rows are three shards."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "CACHED_BYTES", 0)
    monkeypatch.setattr(decoded, "SHARD_BYTES", 8 * 3 * SIZE * SIZE)


def made(files: Any, notify: Any = lambda event: None, workers: int = 0) -> DecodedImages:
    card = Card("photos", "image", 1, ["a"], {}, {}, "0123", True)
    return DecodedImages(SquareDecoder(files, SIZE), card, "train", workers, notify)


@pytest.fixture
def files() -> list[bytes]:
    return [photograph(number) for number in range(20)]


@pytest.fixture
def expected(files: list[bytes]) -> torch.Tensor:
    """What the encoder's own `prepare` gives of the files."""
    return Encoder.prepare([np.array(Image.open(io.BytesIO(f))) for f in files], OPTIONS)


def all_rows(decoded_images: DecodedImages) -> torch.Tensor:
    return decoded_images.read(np.arange(len(decoded_images.decoder)))


# -------------------------------------------------------------------------------- the same pixels


@pytest.mark.parametrize("workers", [0, 3])
def test_the_cache_holds_the_pixels_that_prepare_gives(
    workers: int, files: list[bytes], expected: torch.Tensor
) -> None:
    mapped = made(files, workers=workers)
    assert mapped.available()
    assert torch.equal(all_rows(mapped), expected)
    rows = np.array([19, 0, 7, 8, 7])
    assert torch.equal(mapped.read(rows), expected[rows])
    assert mapped.read(rows[:0]).shape == (0, 3, SIZE, SIZE)


# ------------------------------------------------------------------------ decoded once, and shared


def test_a_second_run_decodes_nothing(
    files: list[bytes], expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    assert made(files, events.append).available()
    told = [event for event in events if isinstance(event, Decoding)]
    assert [event.done for event in told] == [0, 8, 16, 20]
    assert {event.bytes for event in told} == {20 * 3 * SIZE * SIZE}
    monkeypatch.setattr(SquareDecoder, "decode", lambda *_, **__: pytest.fail("decoded again"))
    again = made(files, lambda event: pytest.fail(f"said {event}"))
    assert again.available()
    assert torch.equal(all_rows(again), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 24},
        {"interpolation": "bicubic"},
        {"shortcuts": Shortcuts(scaled_decoding=True)},
        {"shortcuts": Shortcuts(fast_resize=True)},
        {"data": "other"},
        {"split": "test"},
    ],
)
def test_other_pixels_have_another_folder(change: dict[str, Any], files: list[bytes]) -> None:
    first = made(files)
    other = made(files)
    how = {"size": SIZE, **{k: v for k, v in change.items() if k not in ("data", "split")}}
    other.decoder = SquareDecoder(other.decoder.files, **how)
    other.split = change.get("split", other.split)
    other.card = dataclasses.replace(other.card, fingerprint=change.get("data", "0123"))
    assert first.folder.path != other.folder.path


def test_a_run_waits_for_another_that_decodes(files: list[bytes], expected: torch.Tensor) -> None:
    first, events = made(files), []
    first.folder.path.mkdir(parents=True)
    lock = Lock(first.folder.lock_file)
    lock.acquire()

    def told(event: Event) -> None:
        events.append(event)
        if isinstance(event, Waiting):
            lock.release()

    second = made(files, told)
    assert second.available()
    assert "another run decodes" in next(e.text for e in events if isinstance(e, Waiting))
    assert torch.equal(all_rows(second), expected)


def test_what_a_killed_run_decoded_is_kept(
    files: list[bytes], expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if isinstance(event, Decoding) and event.done == 16:
            raise Killed

    with pytest.raises(Killed):
        made(files, kill).available()
    assert not made(files).folder.complete
    decode, rows = SquareDecoder.decode, []

    def counted(self: SquareDecoder, which: Any, out: Any = None) -> Any:
        rows.extend(which)
        return decode(self, which, out)

    monkeypatch.setattr(SquareDecoder, "decode", counted)
    again = made(files)
    assert again.available()
    assert rows == [16, 17, 18, 19]
    assert torch.equal(all_rows(again), expected)


# ------------------------------------------------------------------------------- damaged, no room


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("harm", [damage, remove])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_damaged_shard_is_decoded_again_and_never_used(
    harm: Any, when: str, files: list[bytes], expected: torch.Tensor
) -> None:
    made(files).available()
    events: list[Event] = []
    mapped = made(files, events.append)
    if when == "after":
        assert mapped.available()
    harm(mapped.folder.shard_file(1))
    if when == "before":
        assert mapped.available()
    assert torch.equal(all_rows(mapped), expected)
    assert [str(e.text).endswith("it is decoded again") for e in events if isinstance(e, Warned)]
    quiet = made(files, lambda event: pytest.fail(f"said {event}"))
    assert torch.equal(all_rows(quiet), expected)


def test_a_damaged_record_is_written_again(files: list[bytes], expected: torch.Tensor) -> None:
    first = made(files)
    first.available()
    damage(first.folder.about_file)
    again = made(files)
    assert again.available()
    assert again.folder.complete
    assert torch.equal(all_rows(again), expected)


def test_doctor_deletes_a_damaged_shard(files: list[bytes], expected: torch.Tensor) -> None:
    first = made(files)
    first.available()
    file = first.folder.shard_file(2)
    damage(file)
    checkup = Checkup()
    checkup.cache(Plugins())
    assert [finding.path for finding in checkup.findings] == [file]
    assert not file.exists()
    again = made(files)
    assert again.available()
    assert torch.equal(all_rows(again), expected)


def test_a_disk_without_room_is_a_warning_and_no_cache(
    files: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    events: list[Event] = []
    assert not made(files, events.append).available()
    (warned,) = (event for event in events if isinstance(event, Warned))
    assert "GB are free" in warned.text


def test_a_disk_that_fills_up_is_a_warning_and_no_cache(
    files: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ShardFolder, number: int, rows: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DecodedFolder, "write_shard", full)
    events: list[Event] = []
    assert not made(files, events.append).available()
    assert any("No space left" in event.text for event in events if isinstance(event, Warned))


# ---------------------------------------------------------------------------------- which inputs


def task_of(plugins: Plugins) -> Task:
    return prepare(plugins.datasets["tiny-images"]())


def test_how_large_a_split_is_decides_where_it_is_kept(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(tiny)

    def kind(**reading: Any) -> type:
        return type(prepared_inputs(Squares, OPTIONS, task, "test", Reading(**reading)))

    assert kind() is DecodedInputs
    assert kind(read_once=True) is Inputs  # it fits in memory
    assert kind(decoded_cache=False) is Inputs
    monkeypatch.setattr(prepared, "IN_MEMORY_BYTES", 0)
    assert kind(read_once=True) is DecodedInputs
    assert kind(decoded_cache=False) is StoredInputs
    monkeypatch.setattr(prepared, "CACHED_BYTES", 2**20)
    assert kind() is StoredInputs
    assert len(cached_images()) == 1


def test_an_encoder_with_its_own_prepare_is_given_raw_images(tiny: Plugins) -> None:
    class Own(Squares):
        @classmethod
        def prepare(cls, raws: Any, options: EncoderOptions) -> torch.Tensor:
            return super().prepare(raws, options) // 2

    task = task_of(tiny)
    found = prepared_inputs(Own, OPTIONS, task, "test")
    assert type(found) is Inputs
    usual = prepared_inputs(Squares, OPTIONS, task, "test")
    rows, draw = np.arange(20), torch.Generator()
    assert torch.equal(found.view(rows, "plain", draw), usual.view(rows, "plain", draw) // 2)


def test_all_views_come_from_one_read_and_a_view_may_work_in_place() -> None:
    class Counted(PreparedRows):
        reads = 0

        def prepared(self, rows: Any) -> torch.Tensor:
            Counted.reads += 1
            return torch.ones(len(rows), 2)

    inputs = Counted()
    inputs.views = {
        "plain": lambda rows, generator: rows,
        "double": lambda rows, generator: rows * 2,
        "in place": lambda rows, generator: rows.add_(1),
    }
    rows, draw = inputs.read(np.arange(3)), torch.Generator()
    assert [float(rows.view(v, draw).mean()) for v in ("plain", "double", "double")] == [1, 2, 2]
    assert Counted.reads == 1
    assert [float(rows.view(v, draw).mean()) for v in ("in place", "in place", "plain")] == [
        2,
        2,
        1,
    ]


def test_threads_that_read_at_the_same_time_open_a_shard_once(
    files: list[bytes], expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = made(files)
    mapped.available()
    opened, real = [], DecodedImages._open
    monkeypatch.setattr(
        DecodedImages, "_open", lambda self, shard: opened.append(shard) or real(self, shard)
    )
    inputs = DecodedInputs(mapped, natural_views(flips=False))
    found: dict[int, torch.Tensor] = {}

    def read(number: int) -> None:
        found[number] = inputs.view(np.arange(20), "plain", torch.Generator())

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(opened) == [0, 1, 2]
    assert all(torch.equal(rows, expected) for rows in found.values())


def test_a_run_has_the_same_bits_with_and_without_the_cache(tiny: Plugins, tmp_path: Path) -> None:
    choice = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32, "method": "cap"}
    short = {"pi": 0.3, "epochs": 2, "batch_size": 16, "labelled_batch_size": 8}
    spec = resolve(tiny, {}, dataset="tiny-images", **choice, **short)
    found = []
    for name, workers, cache in (("without", 0, False), ("first", 2, True), ("later", 0, True)):
        context = RunContext(tmp_path / name, "cpu", 1, workers, decoded_cache=cache)
        assert isinstance(execute(spec, tiny, context), Done)
        found.append(load_file(RunFolder.of(context.results, spec).scores_file)["scores"])
        assert len(cached_images()) == (2 if cache else 0)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
