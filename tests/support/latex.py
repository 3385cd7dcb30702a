"""pdflatex for tests, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_latex = pytest.mark.skipif(
    shutil.which("pdflatex") is None
    or any(
        subprocess.run(["kpsewhich", file], capture_output=True, check=False).returncode
        for file in ("booktabs.sty", "graphicx.sty")
    ),
    reason="needs pdflatex, booktabs and graphicx",
)
needs_siunitx = pytest.mark.skipif(
    shutil.which("kpsewhich") is None
    or bool(
        subprocess.run(["kpsewhich", "siunitx.sty"], capture_output=True, check=False).returncode
    ),
    reason="needs the LaTeX package siunitx",
)


def paper(
    inputs: Sequence[str], options: str = "", packages: Sequence[str] = ("booktabs", "graphicx")
) -> str:
    """A paper that has text and these files."""
    body = "\n".join(rf"\input{{{name}}}" for name in inputs)
    return (
        rf"\documentclass[{options}]{{article}}\usepackage{{{','.join(packages)}}}"
        rf"\begin{{document}}Text.{body} More.\end{{document}}" + "\n"
    )


def compile_latex(folder: Path, name: str) -> str:
    """Compile folder/name.tex and return its log; a document that does not compile fails the test."""
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout.decode(errors="replace")[-2000:]
    assert (folder / f"{name}.pdf").stat().st_size > 1000
    return (folder / f"{name}.log").read_text(errors="replace")
