"""`check` fails on a method that reaches for labels, in the processes that real runs have."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.checks.sealed import stays_sealed
from ssmlbench.checks.statements import Broken
from ssmlbench.plugins.loader import load_file

THIEF = """
import os
from pathlib import Path
from ssmlbench.api import Method, bce

class Thief(Method):
    '''BCE that looks for the labels of every prepared data set.'''
    name = "thief"

    def start_epoch(self, pools):
        for file in (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("*/labels/*"):
            try:
                file.read_bytes()
            except OSError:
                pass  # it hides that it tried

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
"""


def test_a_method_that_opens_labels_is_broken_and_an_honest_one_holds(tmp_path: Path) -> None:
    (tmp_path / "thief.py").write_text(THIEF)
    with pytest.raises(Broken, match=r"thief tried to open .*labels are sealed"):
        stays_sealed(load_file(tmp_path / "thief.py").Thief)
    honest = THIEF.replace("file.read_bytes()", "pass").replace("thief", "honest")
    (tmp_path / "honest.py").write_text(honest)
    stays_sealed(load_file(tmp_path / "honest.py").Thief)
