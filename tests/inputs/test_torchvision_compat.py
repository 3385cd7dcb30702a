"""torchvision imports beside a torch it was not built for, and is left alone beside its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ssmlbench

NEED_OPERATORS = {"torchvision", "transformers", "timm", "peft", "sentence_transformers"}
DECLARE = {"declare_missing_operators", "require_peft"}


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


def test_operators_are_declared_before_every_import_that_needs_them() -> None:
    """In a fresh process, peft imported before them made --tune lora fail."""
    seen, wrong = set[str](), []
    for file in sorted(Path(ssmlbench.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(tree):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            needy = {name.partition(".")[0] for name in modules} & NEED_OPERATORS
            seen |= needy
            if needy and not any(_declares_before(function, node) for function in functions):
                wrong.append(f"{file.name}:{node.lineno}")  # type: ignore[attr-defined]
    assert wrong == []
    assert {"peft", "transformers", "timm"} <= seen


def _declares_before(function: ast.FunctionDef, place: ast.AST) -> bool:
    """Whether the function holds the import, after a call that declares the operators."""
    inside = list(ast.walk(function))
    calls = [
        node.lineno
        for node in inside
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in DECLARE
    ]
    return place in inside and any(line < place.lineno for line in calls)  # type: ignore[attr-defined]
