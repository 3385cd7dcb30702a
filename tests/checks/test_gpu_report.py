"""`ssmlbench doctor --gpu`: every part is a line of the page, on the CPU and on the simulated device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ssmlbench.checks.gpu import several
from ssmlbench.checks.gpu.methods import check_heads, check_on_device
from ssmlbench.checks.gpu.page import Differs, Page, PageLine, Skipped, checked_line
from ssmlbench.checks.gpu.report import GpuReport
from ssmlbench.checks.gpu.speed import Workload, measure_decoding
from ssmlbench.checks.gpu.subject import Subject
from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.kit.heads import Network
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.step_log import StepLog
from tests.support.simulated_device import SimulatedDevice

TINY_BERT = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "vocab_size": 40,
}
SMALL = (Workload("squeezenet1_1", 32, 2, 1), Workload("bert", 4, 2, 1, TINY_BERT))
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning"),
]


def subject_of(sim: SimulatedDevice) -> Subject:
    @contextmanager
    def waits() -> Iterator[list[str]]:
        found: list[str] = []
        before = sim.traffic.copied()
        yield found
        since = sim.traffic.since(before)
        found.extend([*since.waits, *since.to_host])

    return Subject(sim.device, waits, lambda: False)


@pytest.fixture(autouse=True)
def settings_are_put_back() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


def test_the_page_of_a_device_has_a_line_for_each_part(plugins: Plugins) -> None:
    said: list[PageLine] = []
    with SimulatedDevice() as sim:
        names = ("bce", "cap")
        page = GpuReport(plugins, subject_of(sim), SMALL, said.append, names).page()
    lines = {line.part: line for line in page.lines}
    assert said == page.lines
    for name in names:
        assert lines[name].state == "OK", lines[name]
        assert lines[name].text.count("0.0e+00 from the CPU, repeats its bits") == 2
    assert lines["--gpus 2"].state == "skipped"
    assert lines["bfloat16, float16"].text == "meta trains in float32 alone"
    for part, rows in (("squeezenet1_1 at 32 px", "images"), ("bert at 4 tokens", "texts")):
        assert lines[part].state == "OK", lines[part]
        assert f"{rows}/s trained" in lines[part].text
    text = page.markdown()
    assert all(f"| {line.part} | {line.state} |" in text for line in page.lines)
    assert "no gradient step waits for the device" in text
    assert "within 0.01 of the CPU's" in text
    assert "sizes: small" in text


def test_the_page_claims_nothing_that_the_device_cannot_show(plugins: Plugins) -> None:
    page = GpuReport(plugins, Subject.of(torch.device("mps")), SMALL, names=("bce",))
    texts = [page._about_methods(), page._about_speed()]
    assert not any("waits" in text for text in texts), "torch shows waits on CUDA alone"
    assert "the highest of this process so far" in texts[1]


def test_every_number_about_a_gpu_is_named(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = SimpleNamespace(total_memory=15 * 2**30, major=7, minor=5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    report = GpuReport(plugins, Subject.of(torch.device("cuda")), names=["bce"])
    facts = report.facts()
    assert facts["device"] == "Tesla T4, 15.0 GiB, compute capability 7.5"
    assert facts["GPUs"] == "2"
    assert facts["precisions"] == "float16, float32 (the first is the default)"
    assert "tensors took on the device" in report._about_speed()


def test_a_step_that_waits_is_a_line_that_differs(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = StepLog.add

    def reads(log: StepLog, terms: Any, diagnostics: Any) -> None:
        float(next(iter(terms.values())))
        add(log, terms, diagnostics)

    monkeypatch.setattr(StepLog, "add", reads)
    with SimulatedDevice() as sim, pytest.raises(Differs, match="a step waits for the device"):
        check_on_device(plugins.methods["bce"], subject_of(sim))  # type: ignore[arg-type]


def test_other_scores_than_the_cpus_are_a_line_that_differs(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Network.forward

    def wrong_there(network: Network, inputs: Any) -> Any:
        outputs = forward(network, inputs)
        return {n: v * (0.5 if v.device.type == "meta" else 1) for n, v in outputs.items()}

    monkeypatch.setattr(Network, "forward", wrong_there)
    with SimulatedDevice() as sim, pytest.raises(Differs, match="from the CPU's, more than"):
        check_on_device(plugins.methods["bce"], subject_of(sim))  # type: ignore[arg-type]


def test_heads_inside_autocast_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject.of(torch.device("cpu"))
    assert "20,000 rows" in check_heads(subject, "bfloat16", 20_000)
    monkeypatch.setattr(
        "ssmlbench.kit.heads.single_precision",
        lambda device: nullcontext(),
    )
    with pytest.raises(Differs):
        check_heads(subject, "bfloat16", 20_000)


def raises(error: BaseException) -> str:
    raise error


def test_whatever_a_part_raises_is_a_line() -> None:
    lines = [
        checked_line("a", lambda: "12 images/s"),
        checked_line("b", lambda: raises(Differs("scores | differ"))),
        checked_line("c", lambda: raises(Skipped("one GPU"))),
        checked_line("d", lambda: raises(RuntimeError("CUDA error: no kernel image\nlong text"))),
    ]
    assert [line.state for line in lines] == ["OK", "differs", "skipped", "failed"]
    assert lines[3].text.startswith(
        "RuntimeError: CUDA error: no kernel image (test_gpu_report.py:"
    )
    page = Page("page", {"device": "none"}, {"Parts": lines})
    assert not page.sound
    assert page.summary == "1 OK, 1 differs, 1 failed, 1 skipped"
    assert "| b | differs | scores \\| differ |" in page.markdown()


def test_a_command_that_fails_in_two_processes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several.sys, "executable", "false")
    with pytest.raises(Differs, match="--gpus 1 failed"):
        several.check_two_processes(Subject.of(torch.device("cpu")))


def test_decoding_is_measured() -> None:
    assert "images/s (JPEG, 640 × 480 px) with 1 thread;" in measure_decoding(32, 2, workers=1)


def test_the_command_writes_the_page_and_its_exit_code_says_whether_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parts in ("precision_parts", "process_parts", "speed_parts"):
        monkeypatch.setattr(GpuReport, parts, lambda self: [])
    monkeypatch.setattr(GpuReport, "method_parts", lambda self: [("one", lambda: "fine")])
    file = tmp_path / "page.md"
    command = ["doctor", "--gpu", "--device", "cpu"]
    done = CliRunner().invoke(app, [*command, "--out", str(file)])
    assert done.exit_code == 0, done.output
    assert "| one | OK | fine |" in file.read_text()
    assert "sizes: small" in file.read_text()
    monkeypatch.setattr(GpuReport, "method_parts", lambda self: [("one", lambda: str(1 / 0))])
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "| one | failed | ZeroDivisionError" in done.output


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--out", "page.md"], "add --gpu"),
        (["--gpu", "--rerun"], "leave the other options out"),
        (["--gpu", "--out", "no/such/folder/page.md"], "there is no folder"),
        (["--gpu", "--out", ""], "--out is empty"),
        (["--gpu", "--out", "."], "is a folder; name a file"),
        (["--gpu", "--out", "page.csv"], "expected a name that ends with .md or .txt"),
        (["--gpu", "--out", "/dev/null"], "is a device or a pipe"),
        (["--gpu", "--out", "/proc/page.md"], "cannot write /proc/page.md"),
    ],
)
def test_options_that_do_not_fit_are_one_line_at_once(
    typed: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuReport, "page", lambda self: pytest.fail("the checks have begun"))
    done = CliRunner().invoke(app, ["doctor", *typed])
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
