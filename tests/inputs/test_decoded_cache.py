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

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Decoding, Done, Event, Waiting, Warned
from ssmlbench.core.locks import Lock
from ssmlbench.data import Card, Task, images, prepare
from ssmlbench.grid.doctor import Checkup
from ssmlbench.inputs import decoded, prepared
from ssmlbench.inputs.decoded import DecodedImages, DecodedInputs
from ssmlbench.inputs.decoded_cache import DecodedFolder, cached_images
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.encoders import EncoderOptions
from ssmlbench.inputs.encoders.base import Encoder
from ssmlbench.inputs.encoders.small import SmallCnn
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.inputs.prepared import Reading, prepared_inputs
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.inputs.splits import Inputs, PreparedRows, StoredInputs
from ssmlbench.inputs.views import natural_views
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

SIZE = 16
OPTIONS = EncoderOptions(image_size=SIZE)


class Squares(SmallCnn):
    options = {"image_size": SIZE}


@pytest.fixture(autouse=True)
def small_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own; 8 rows a shard, so that 20 rows are three shards."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "CACHED_BYTES", 0)
    monkeypatch.setattr(decoded, "SHARD_BYTES", 8 * 3 * SIZE * SIZE)


def photograph(number: int, size: tuple[int, int] = (40, 30), **saved: Any) -> bytes:
    """A JPEG file with smooth colours."""
    draw = np.random.default_rng(number)
    coarse = Image.fromarray(draw.integers(0, 256, (5, 6, 3)).astype(np.uint8))
    content = io.BytesIO()
    coarse.resize(size, Image.Resampling.BICUBIC).save(content, format="JPEG", **saved)
    return content.getvalue()


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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_files_are_turned_as_their_orientation_says(orientation: int, tmp_path: Path) -> None:
    import datasets

    exif = Image.Exif()
    exif[0x0112] = orientation
    content = photograph(0, exif=exif)
    stored = datasets.Dataset.from_dict(
        {"input": [{"bytes": content, "path": None}]},
        features=datasets.Features({"input": datasets.Image()}),
    )
    before = stored.with_format("numpy")["input"][0]  # how a row is handed to `prepare`
    assert np.array_equal(np.asarray(images.opened(content)), before)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_files_are_decoded_as_prepare_does(mode: str, interpolation: str) -> None:
    class Resized(Squares):
        pass

    Resized.interpolation = interpolation
    content = io.BytesIO()
    Image.open(io.BytesIO(photograph(3))).convert(mode).save(content, format="PNG")
    raw = np.array(Image.open(io.BytesIO(content.getvalue())))
    decoder = SquareDecoder([content.getvalue()], SIZE, interpolation)  # type: ignore[arg-type]
    assert np.array_equal(decoder.decode(np.array([0])), Resized.prepare([raw], OPTIONS).numpy())


# ------------------------------------------------------------------------ decoded once, and shared


def squares_of(contents: list[bytes], scaled: bool = True) -> np.ndarray:
    decoder = SquareDecoder(contents, SIZE, shortcuts=Shortcuts(scaled))  # type: ignore[arg-type]
    return decoder.decode(np.arange(len(contents)))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("saved", [{}, {"progressive": True}])
def test_scaled_decoding_reads_fewer_pixels_of_a_large_jpeg(
    mode: str, saved: dict[str, Any]
) -> None:
    drawn = Image.open(io.BytesIO(photograph(0, (8 * SIZE, 6 * SIZE)))).convert(mode)
    content = io.BytesIO()
    drawn.save(content, "JPEG", quality=95, **saved)
    file = content.getvalue()
    assert images.opened(file, SIZE).size == (2 * SIZE, 3 * SIZE // 2)  # a quarter
    assert images.opened(file).size == (8 * SIZE, 6 * SIZE)
    whole, scaled = (squares_of([file], how).astype(int) for how in (False, True))
    assert np.abs(whole - scaled).mean() < 3
    assert not np.array_equal(whole, scaled)


def test_scaled_decoding_turns_images_as_their_orientation_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright, turned = photograph(1, (64, 96)), photograph(1, (64, 96), exif=exif)
    expected = np.rot90(squares_of([upright])[0], k=-1, axes=(1, 2)).astype(int)
    assert np.abs(expected - squares_of([turned])[0]).mean() < 3


def test_scaled_decoding_leaves_small_and_other_files_as_they_are() -> None:
    content = io.BytesIO()
    Image.open(io.BytesIO(photograph(2, (90, 80)))).save(content, "PNG")
    contents = [content.getvalue(), photograph(3, (SIZE + 3, SIZE + 1)), photograph(4, (5, 400))]
    np.testing.assert_array_equal(squares_of(contents), squares_of(contents, False))


@pytest.mark.parametrize("shortcut", ["scaled_decoding", "fast_resize"])
def test_a_shortcut_is_a_setting_of_its_own_and_for_squashed_images_only(
    tiny: Plugins, shortcut: str
) -> None:
    fields: dict[str, Any] = {"method": "bce", "pi": 0.3, "dataset": "tiny-images"}
    squashed = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32}
    plain, quick = (
        resolve(tiny, {}, **fields, **squashed, **{shortcut: chosen}) for chosen in (False, True)
    )
    assert quick.hash != plain.hash
    keys = [
        FrozenEncoder(spec, Squares, task_of(tiny), torch.device("cpu")).key("train", "plain", 0)
        for spec in (plain, quick)
    ]
    assert keys[1] == keys[0] | {shortcut: True}
    flag = f"--{shortcut.replace('_', '-')}"
    with pytest.raises(UserError, match=f"{flag} is for image files that are squashed"):
        resolve(tiny, {}, **fields, backbone="small-cnn", **{shortcut: True})


def test_images_are_resized_fast_unless_the_encoder_is_frozen(tiny: Plugins) -> None:
    fields: dict[str, Any] = {"method": "bce", "pi": 0.3, "dataset": "tiny-images"}
    squashed = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32}
    trained, frozen = (resolve(tiny, {}, **fields, **squashed, freeze=f) for f in (False, True))
    as_they_are = resolve(tiny, {}, **fields, backbone="small-cnn")
    assert [spec.fast_resize for spec in (trained, frozen, as_they_are)] == [True, False, False]


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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    return Plugins([write_data_plugin(tmp_path_factory.mktemp("plugins"))])


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
