"""Inputs reach the device once, a batch ahead of their use, with the views applied there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ssmlbench.core.seeds import stream
from ssmlbench.inputs.splits import DeferredView, Inputs
from ssmlbench.inputs.transfer import CudaSideStream, Transfer
from ssmlbench.inputs.views import natural_views

CPU = torch.device("cpu")


class LoggedStream:
    """A side stream that notes what happens, in order."""

    def __init__(self, log: list[str]):
        self.log = log
        self.inside = False
        self.marks = 0
        self.kept: list[list[int]] = []  # the sums of the tensors that are waited for

    @contextmanager
    def beside(self) -> Iterator[None]:
        self.inside = True
        yield
        self.inside = False

    def mark(self) -> object:
        assert self.inside
        self.log.append(f"copied {self.marks}")
        self.marks += 1
        return self.marks - 1

    def wait(self, mark: object, tensors: Sequence[Tensor]) -> None:
        assert not self.inside
        self.log.append(f"wait {mark}")
        self.kept.append([int(tensor.sum()) for tensor in tensors])

    def computed(self) -> Callable[[], object]:
        self.log.append("copying back")
        return lambda: self.log.append("waited")


def batches(count: int) -> Iterator[list[dict[str, Tensor | DeferredView]]]:
    for number in range(count):
        yield [{"a": torch.full((2,), number)}, {}, {"b": torch.full((5,), number)}]


def test_the_next_batch_is_on_its_way_while_one_is_used() -> None:
    log: list[str] = []
    side = LoggedStream(log)
    for number, (first, second, third) in enumerate(Transfer(CPU, side).ahead(batches(3))):
        assert first["a"].tolist() == [number, number]
        assert second == {}
        assert third["b"].tolist() == [number] * 5
        log.append(f"used {number}")
    assert log == [
        "copied 0", "copied 1", "wait 0", "used 0", "copied 2", "wait 1", "used 1", "wait 2", "used 2",
    ]  # fmt: skip
    assert side.kept == [[0, 0], [2, 5], [4, 10]]  # or their memory could be given away


@pytest.mark.parametrize("count", [0, 1])
def test_few_batches_are_all_used(count: int) -> None:
    for side in (None, LoggedStream([])):
        assert len(list(Transfer(CPU, side).ahead(batches(count)))) == count


def photographs() -> Inputs:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (10, 3, 16, 16), generator=draw).to(torch.uint8)
    return Inputs(images, natural_views(flips=True))


def test_rows_are_copied_once_for_all_their_views(monkeypatch: pytest.MonkeyPatch) -> None:
    read, generator = photographs().read(np.arange(4)), stream(0, "views")
    parts: dict[str, Any] = {
        name: read.deferred(name, generator) for name in ("plain", "weak", "strong")
    }
    assert isinstance(parts["plain"], Tensor)
    assert isinstance(parts["weak"], DeferredView)
    moved: list[int] = []
    real = Tensor.to

    def to(self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if self.ndim == 4 and self.dtype == torch.uint8 and self.shape[-1] == 16:
            moved.append(id(self))
        return real(self, *arguments, **named)

    transfer = Transfer(CPU)
    with monkeypatch.context() as patched:
        patched.setattr(Tensor, "to", to)
        (seen,) = transfer.moved([parts])
    assert len(moved) == 1
    expected, generator = photographs().read(np.arange(4)), stream(0, "views")
    for name in ("plain", "weak"):
        assert torch.equal(seen[name], expected.view(name, generator))
    assert seen["strong"].shape == seen["plain"].shape


def test_the_cpu_applies_views_itself_and_pins_nothing() -> None:
    transfer = Transfer(CPU)
    assert not transfer.applies_views
    assert transfer.side is None
    batch: list[dict[str, Tensor | DeferredView]] = [{"a": torch.zeros(2)}]
    assert transfer.pinned(batch) is batch


def test_a_device_is_given_rows_and_drawn_parameters() -> None:
    assert Transfer(torch.device("meta")).applies_views
    assert not Transfer(torch.device("mps")).applies_views
    rows = photographs().read(np.arange(3))
    weak = rows.deferred("weak", stream(0, "a"))
    strong = rows.deferred("strong", stream(0, "b"))
    assert isinstance(weak, DeferredView)
    assert isinstance(strong, DeferredView)
    assert weak.prepared is strong.prepared  # one read of the rows
    assert weak.with_rows(torch.zeros(1)).drawn is weak.drawn


def test_pinned_rows_stay_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    transfer = Transfer(torch.device("cuda"))
    rows = photographs().read(np.arange(3))
    generator = stream(0, "a")
    batch: list[dict[str, Any]] = [
        {name: rows.deferred(name, generator) for name in ("plain", "weak", "strong")}
    ]
    (pinned,) = transfer.pinned(batch)
    assert pinned["weak"].prepared is pinned["strong"].prepared is pinned["plain"]
    assert pinned["plain"] is not batch[0]["plain"]


def test_pinned_memory_of_a_batch_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # A buffer that the next batch is read into would still be on its way to the device.
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.clone())
    transfer = Transfer(torch.device("cuda"), LoggedStream([]))
    first, second = (transfer.pinned([{"a": torch.full((2,), n)}])[0]["a"] for n in range(2))
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 1])
    assert first.data_ptr() != second.data_ptr()


def test_what_comes_back_is_read_after_the_device_computed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self)
    log: list[str] = []
    fetch = Transfer(torch.device("cuda"), LoggedStream(log)).fetched(torch.ones(2))
    assert log == ["copying back"]
    assert fetch().tolist() == [1, 1]
    assert log == ["copying back", "waited"]


def test_the_stream_that_uses_a_batch_waits_for_it_and_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[object] = []
    kept: list[tuple[Tensor, object]] = []
    own = SimpleNamespace(wait_event=waited.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: own)
    monkeypatch.setattr(
        Tensor, "record_stream", lambda self, stream: kept.append((self, stream)), raising=False
    )
    tensors = [torch.zeros(1), torch.ones(1)]
    CudaSideStream(torch.device("cuda")).wait("mark", tensors)
    assert waited == ["mark"]
    assert [(tensor.item(), stream is own) for tensor, stream in kept] == [(0, True), (1, True)]


class Timeline:
    """CUDA's streams without a GPU: what is queued on each of them, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.own, self.side = StandInStream("own"), StandInStream("side")
        self.current = self.own
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: self.side)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.current)
        monkeypatch.setattr(torch.cuda, "stream", self.inside)
        pinned: list[Tensor] = []

        def pin(tensor: Tensor) -> Tensor:
            pinned.append(tensor)
            return tensor

        def copy(tensor: Tensor, *given: Any, non_blocking: bool = False) -> Tensor:
            assert non_blocking, "the host waits for a copy"
            self.current.queue.append("copy")
            return tensor

        def copy_back(target: Tensor, values: Tensor, non_blocking: bool = False) -> Tensor:
            assert any(target is tensor for tensor in pinned), "the host waits for a copy"
            return copy(target, non_blocking=non_blocking)

        monkeypatch.setattr(Tensor, "pin_memory", pin)
        monkeypatch.setattr(Tensor, "to", copy)
        monkeypatch.setattr(Tensor, "copy_", copy_back)
        monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None, raising=False)

    @contextmanager
    def inside(self, stream: StandInStream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class StandInStream:
    def __init__(self, name: str):
        self.name = name
        self.queue: list[str] = []

    def record_event(self) -> Any:
        name = f"event {len(self.queue)} of {self.name}"
        self.queue.append(name)
        return SimpleNamespace(name=name, synchronize=lambda: self.queue.append(f"host: {name}"))

    def wait_event(self, event: Any) -> None:
        self.queue.append(f"wait for {event.name}")


def test_batches_are_copied_on_the_side_stream_and_used_after_their_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Timeline(monkeypatch)
    transfer = Transfer(torch.device("cuda"))
    for _ in transfer.ahead(batches(2)):
        line.current.queue.append("use")
    # Two tensors a batch; each mark lies after the copies of its batch.
    first, second = "event 2 of side", "event 5 of side"
    assert line.side.queue == ["copy", "copy", first, "copy", "copy", second]
    assert line.own.queue == [f"wait for {first}", "use", f"wait for {second}", "use"]


def test_results_are_copied_behind_their_computation_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Timeline(monkeypatch)
    fetch = Transfer(torch.device("cuda")).fetched(torch.ones(2))
    fetch()
    assert line.own.queue == ["copy", "event 1 of own", "host: event 1 of own"]
    assert line.side.queue == []
