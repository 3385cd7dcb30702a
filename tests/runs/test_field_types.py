"""A result whose fields have other types than expected is left out with a reason, by every verb."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.runs.finished import Unreadable, read_result
from tests.support.board_runs import grid

Call = Callable[..., "subprocess.CompletedProcess[str]"]
PER_LABEL = {
    "rule": "calibrated",
    "label": ["a", "b"],
    "support": [1, 2],
    **{
        name: [0.5, None]
        for name in ("precision", "recall", "f1", "average_precision", "threshold")
    },
}
WRONG: list[dict[str, Any]] = [
    {"data": []},
    {"data": {"rows": {"train": "many"}, "labels": 3}},
    {"data": {"rows": {}, "labels": 3, "unlike_published": 1.5}},
    {"uses": {"a": 1}},
    {"notes": math.inf},
    {"notes": [{}]},
    {"hash": 5},
    {"version": "2"},
    {"selected_epoch": True},
    {"made_with": {"finished": 3}},
    {"per_label": {**PER_LABEL, "label": ["a"]}},
    {"per_label": {**PER_LABEL, "support": ["one", 2]}},
    {"per_label": {name: value for name, value in PER_LABEL.items() if name != "rule"}},
    {"metrics": {"calibrated": {"default": {"map": 5.0}}}},
    {"metrics": {"calibrated": {"default": {"micro_f1": -math.inf}}}},
    {"spec": {"pi": math.inf}},
    {"spec": {"pi": 1.5}},
    {"spec": {"pi": None}},
    {"spec": {"seed": -1}},
    {"spec": {"lr": math.nan}},
]
"""Changes of a valid result; those of `spec` are changes of its fields."""


def changed(folder: Path, change: dict[str, Any]) -> None:
    file = folder / "result.json"
    result = json.loads(file.read_text())
    spec = {**result["spec"], **change.get("spec", {})}
    file.write_text(json.dumps({**result, **change, "spec": spec}))


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_it_is_left_out_with_the_reason(
    ssmlbench: Call, tmp_path: Path, change: dict[str, Any]
) -> None:
    wrong, _ = grid(tmp_path / "results", {"bce": [0.5], "cap": [0.6]})
    changed(wrong.folder, change)
    found = read_result(wrong.folder)
    assert isinstance(found, Unreadable)
    assert len(str(found).splitlines()) == 1
    for words in (["compare"], ["runs", "list"], ["status"], ["compare", "--export", "out"]):
        made = ssmlbench(*words)
        assert made.returncode == 0, made
    assert "bce" not in ssmlbench("compare").stdout
    listed = [line.split() for line in ssmlbench("runs", "list").stdout.splitlines()[1:3]]
    assert {row[1]: row[5] for row in listed} == {"bce": "unreadable", "cap": "done"}
    assert ssmlbench("show", wrong.folder).returncode == 2


@pytest.mark.parametrize(
    "change",
    [
        {"notes": None, "uses": None, "per_label": None},
        {"made_with": {"gpu": None, "from_the_future": {}}, "new_field": [1]},
        {"data": {"rows": None, "labels": None}},
        {"metrics": {"calibrated": {"default": {"map": math.nan, "new_metric": 7.0}}}},
        {"metrics": {"calibrated": {}}},
        {"per_label": PER_LABEL},
    ],
    ids=str,
)
def test_fields_that_are_empty_or_of_a_newer_version_are_no_mistake(
    ssmlbench: Call, tmp_path: Path, change: dict[str, Any]
) -> None:
    (run,) = grid(tmp_path / "results", {"bce": [0.5]})
    changed(run.folder, change)
    assert not isinstance(read_result(run.folder), Unreadable)
    for words in (["compare"], ["runs", "list"], ["show", run.folder]):
        assert ssmlbench(*words).returncode == 0, words
