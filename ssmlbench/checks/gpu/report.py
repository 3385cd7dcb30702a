"""All parts of `ssmlbench doctor --gpu`, one after the other, as one page."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ssmlbench import __version__
from ssmlbench.checks.gpu.methods import (
    SHORT_TOLERANCE,
    TOLERANCE,
    check_heads,
    check_on_device,
    check_precision_of,
)
from ssmlbench.checks.gpu.page import Page, PageLine, Skipped, checked_line
from ssmlbench.checks.gpu.several import TOLERANCE_OF_TWO, check_two_processes
from ssmlbench.checks.gpu.speed import ON_CPU, ON_GPU, Workload, measure, measure_decoding
from ssmlbench.checks.gpu.subject import Subject
from ssmlbench.core.cpu import core_count
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.device import default_precision, precisions_of
from ssmlbench.training.repeatable import make_repeatable

OnLine = Callable[[PageLine], None]
NamedCheck = tuple[str, Callable[[], str]]


class GpuReport:
    """Checks one device."""

    def __init__(
        self,
        plugins: Plugins,
        subject: Subject,
        workloads: Sequence[Workload] | None = None,
        report: OnLine = lambda line: None,
        names: Sequence[str] = (),
    ):
        """workloads: None, those for the device. report: gets each line. names: of methods; all."""
        self.subject = subject
        on_cpu = subject.device.type != "cuda"
        self.workloads = (ON_CPU if on_cpu else ON_GPU) if workloads is None else workloads
        self.report = report
        found = {name: plugins.methods[name] for name in plugins.methods}
        self.methods = {
            name: cls
            for name, cls in found.items()
            if issubclass(cls, Method) and (not names or name in names)
        }

    def page(self) -> Page:
        """Run every part; none of them ends the others."""
        make_repeatable(None, self.subject.device)
        page = Page("ssmlbench doctor --gpu", self.facts())
        for title, about, parts in (
            ("Methods", self._about_methods(), self.method_parts()),
            ("Precision", _ABOUT_PRECISION, self.precision_parts()),
            ("Two processes", _ABOUT_TWO, self.process_parts()),
            ("Speed", self._about_speed(), self.speed_parts()),
        ):
            page.sections[title], page.about[title] = [], about
            for name, check in parts:
                line = checked_line(name, check)
                self.report(line)
                page.sections[title].append(line)
        return page

    def facts(self) -> dict[str, str]:
        """The facts at the top of the page, by name."""
        device, found = self.subject.device, {"device": self.subject.name}
        if device.type == "cuda":
            about = torch.cuda.get_device_properties(device)
            found["device"] += (
                f", {about.total_memory / 2**30:.1f} GiB, compute capability {about.major}.{about.minor}"
            )
            found["GPUs"] = str(torch.cuda.device_count())
            found["CUDA"] = f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        else:
            found["sizes"] = (
                "small, since this is not CUDA: the parts work, their speed says nothing"
            )
        found["precisions"] = f"{', '.join(precisions_of(device))} (the first is the default)"
        found["cores"] = f"{core_count()} ({platform.machine()}, {platform.system()})"
        found["versions"] = (
            f"ssmlbench {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        )
        return found

    def method_parts(self) -> list[NamedCheck]:
        """Each method on the device and on the CPU."""
        return [
            (name, partial(check_on_device, cls, self.subject))
            for name, cls in self.methods.items()
        ]

    def precision_parts(self) -> list[NamedCheck]:
        """The precisions of the device but float32."""
        cap = self.methods.get("cap") or next(iter(self.methods.values()))
        parts: list[NamedCheck] = []
        for precision in precisions_of(self.subject.device):
            if precision != "float32":
                run = partial(check_precision_of, cap, self.subject, precision)
                heads = partial(check_heads, self.subject, precision)
                parts += [(precision, run), (f"{precision}: heads", heads)]
        return parts or [("bfloat16, float16", self._no_mixed_precision)]

    def _no_mixed_precision(self) -> str:
        raise Skipped(f"{self.subject.name} trains in float32 alone")

    def process_parts(self) -> list[NamedCheck]:
        """One run in two processes."""
        return [("--gpus 2", partial(check_two_processes, self.subject))]

    def speed_parts(self) -> list[NamedCheck]:
        """Each workload; with CUDA with `--fast` too."""
        device = self.subject.device
        parts: list[NamedCheck] = []
        method = self.methods.get("bce") or next(iter(self.methods.values()))
        precision = default_precision(str(device)) if device.type == "cuda" else "float32"
        for work in self.workloads:
            for fast in (False, True) if device.type == "cuda" else (False,):
                name = f"{work.title}, --fast" if fast else work.title
                parts.append((name, partial(measure, work, method, self.subject, precision, fast)))
        sizes = sorted({work.size for work in self.workloads if not work.is_text})
        parts += [(f"decoding to {size} px", partial(measure_decoding, size)) for size in sizes]
        return parts

    def _about_methods(self) -> str:
        if self.subject.is_cpu:
            return "Short runs on toy vectors and images: each trains, and repeats its bits."
        return (
            "Short runs on toy vectors and images in float32: "
            f"{'no gradient step waits for the device, ' if self.subject.sees_waits else ''}"
            f"two runs have the same bits, and scores are within {TOLERANCE:g} of the CPU's."
        )

    def _about_speed(self) -> str:
        text = (
            "Random weights and inputs, the trainer's own epochs. Idle: the share of a step that is saved "
            "when its batch is already on the device."
        )
        if self.subject.sees_waits:
            text += " The state is `differs` where a step waits for the device."
        if self.subject.device.type == "cuda":
            return f"{text} Memory: the most that tensors took on the device in training."
        return f"{text} Memory: the highest of this process so far, earlier parts included."


_ABOUT_PRECISION = (
    f"A short run on toy images within {SHORT_TOLERANCE:g} of float32; heads compute in float32 inside "
    "autocast."
)
_ABOUT_TWO = (
    "The same short run with `--gpus 2` and without it: scores within "
    f"{TOLERANCE_OF_TWO:g} of each other."
)
