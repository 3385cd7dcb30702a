"""torchvision imports beside a torch it was not built for, and is left alone beside its own."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_torchvision_and_a_transformers_model_import_after_it() -> None:
    out = run(
        "from ssmlbench.inputs.torchvision_compat import declare_missing_operators as declare;"
        "declare(); assert not declare();"
        "import torchvision; from torchvision.transforms import v2;"
        "from transformers import BertModel; print(torchvision.__name__, BertModel.__name__)"
    )
    assert out.split() == ["torchvision", "BertModel"]


def test_operators_that_load_are_left_alone_and_missing_ones_declared_once() -> None:
    out = run(
        "import ssmlbench.inputs.torchvision_compat as cure;"
        "cure._compiled_operators_load = lambda: True;"
        "print(cure.declare_missing_operators(), len(cure._declared));"
        "cure._compiled_operators_load = lambda: False;"
        "print(cure.declare_missing_operators(), cure.declare_missing_operators());"
        "import torch; print(torch.ops.torchvision.nms.default._schema)"
    )
    assert out.splitlines()[:2] == ["False 0", "True False"]
    assert "Tensor dets, Tensor scores, float iou_threshold" in out
