"""Reading specs and results: what is accepted, and what the reason says where it is not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.core.files import write_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.finished import Finished, Unreadable, read_finished, read_result, read_spec
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.schema import REPEATS_IT, RESULT_VERSION

SPEC = RunSpec("bce", "toy", pi=0.1, config={"loss": "asl"}, changed=("loss",))
FIVE = dict.fromkeys(("micro_f1", "macro_f1", "map", "hamming", "one_loss"), 0.5)
RESULT: dict[str, Any] = {
    "version": RESULT_VERSION,
    "spec": json.loads(json.dumps(SPEC.as_dict())),
    "metrics": {"threshold": {"default": FIVE, "released": FIVE}},
    "cost": {"seconds": 1, "seconds_per_epoch": 0.5, "peak_memory_mb": 3.0},
}
Change = Callable[[dict[str, Any]], object]


def write(root: Path, change: Change = lambda result: None, seed: int = 0) -> Path:
    """A finished run's folder with its result.json changed."""
    result = copy.deepcopy(RESULT)
    result["spec"]["seed"] = seed
    change(result)
    folder = RunFolder.of(root, RunSpec("bce", "toy", pi=0.1, seed=seed))
    folder.path.mkdir(parents=True)
    write_json(folder.result_file, result)
    return folder.path


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.pop("version"),  # version 1
        lambda result: result.update(version=RESULT_VERSION + 1, energy={"joules": 3}),
        lambda result: result["spec"].pop("scaling"),  # a field that came later
        lambda result: result.update(metrics={}),  # boards compute what is not there
        lambda result: result["metrics"].update({"new-rule": {"default": {"new": 1}}}),
        lambda result: result["spec"].update(pi=1),  # JSON may drop a float's point
    ],
    ids=["version 1", "newer", "older spec", "no metrics", "more metrics", "integer"],
)
def test_an_older_or_newer_result_is_read(tmp_path: Path, change: Change) -> None:
    run = read_result(write(tmp_path, change))
    assert isinstance(run, Finished)
    assert run.spec.variant == "bce (loss=asl)"
    assert run.result["cost"]["seconds"] == 1


def test_a_result_from_before_precision_was_a_field_has_the_one_it_recorded(tmp_path: Path) -> None:
    def old(precision: str) -> Change:
        return lambda result: (
            result["spec"].pop("precision"),
            result.update(made_with={"device": "cuda", "precision": precision}),
        )

    runs = [read_result(write(tmp_path, old(p), i)) for i, p in enumerate(("bfloat16", "float32"))]
    assert all(isinstance(run, Finished) for run in runs)
    assert [run.spec.precision for run in runs] == ["bfloat16", "float32"]  # type: ignore[union-attr]
    assert len(build_boards(runs, Query(metrics=("map",), decision="threshold"))) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda r: r["spec"].update(noise=0.1, aura=1),
            "fields that are unknown here: aura, noise",
        ),
        (lambda r: r["spec"].pop("method"), "its spec lacks method"),
        (lambda r: r["spec"].update(pi="a tenth"), "pi = 'a tenth', expected NoneType or float or"),
        (lambda r: r["spec"].update(seed=None), "seed = None, expected int"),
        (lambda r: r["spec"].update(split="mine"), "split = 'mine', expected 'random' or"),
        (lambda r: r["spec"].update(regime="noisy"), "its regime noisy is unknown here"),
        (lambda r: r["spec"].update(config={}), "its spec lacks 'loss' in config"),
        (lambda r: r.update(spec=[]), "its spec is not a JSON object"),
        (lambda r: r.update(metrics=None), "metrics is not a JSON object"),
        (
            lambda r: r["metrics"].update(x={"default": {"map": "high"}}),
            "map is 'high', expected a",
        ),
        (lambda r: r["metrics"].update(x={"default": 3}), "metrics of x, default is not a JSON"),
        (lambda r: r.update(cost={"seconds": None}), "cost: seconds is None, expected a number"),
        (lambda r: r.update(made_with="ours"), "made_with is not a JSON object"),
        (lambda r: r.clear(), "not a result of ssmlbench: it has no spec or no metrics"),
    ],
)
def test_one_line_says_why_a_result_is_left_out(
    tmp_path: Path, change: Change, reason: str
) -> None:
    bad, good = write(tmp_path, change), write(tmp_path, seed=1)
    found = read_result(bad)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
    runs, complaints = read_finished([tmp_path])
    assert [run.folder for run in runs] == [good]
    (line,) = complaints
    assert line.startswith(f"{bad / 'result.json'}: left out, ")
    assert reason in line
    assert "\n" not in line


def test_the_reason_says_who_wrote_an_unreadable_result(tmp_path: Path) -> None:
    def newer(result: dict[str, Any]) -> None:
        result["spec"]["noise"] = 0.1
        result["version"] = RESULT_VERSION + 3

    def other(result: dict[str, Any]) -> None:
        result["spec"]["noise"] = 0.1
        result["made_with"] = {"ssmlbench": "7.0"}

    said = str(read_result(write(tmp_path, newer)))
    assert f"a result of version {RESULT_VERSION + 3}; this ssmlbench reads up to" in said
    assert "written by ssmlbench 7.0" in str(read_result(write(tmp_path, other, seed=1)))


def test_a_spec_file_is_read_or_named(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    assert read_spec(file) == Unreadable(file, "no such file")
    file.write_text(json.dumps(SPEC.as_dict()))
    assert read_spec(file) == SPEC
    file.write_text('{"method": "b')
    assert read_spec(file) == Unreadable(file, f"damaged, not a whole JSON file; {REPEATS_IT}")
    file.write_text(json.dumps({**SPEC.as_dict(), "noise": 0.1}))
    assert str(read_spec(file)) == f"{file}: its spec has fields that are unknown here: noise"
    file.unlink()
    file.mkdir()
    assert read_spec(file) == Unreadable(file, f"cannot be read (Is a directory); {REPEATS_IT}")
