"""Exported runs: the same bytes from the same runs, and the same board read back."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.csv_files import export, exported_text, read_exported
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.core.csv_cells import cell_text, spreadsheet_cell
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.decisions import RULES
from ssmlbench.runs.finished import Finished, read_finished
from tests.support.board_runs import grid

Call = Callable[..., subprocess.CompletedProcess[str]]
MADE_WITH = {
    "ssmlbench": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "device": "cpu",
    "cpu_kernels": "torch AVX2, openblas Haswell", "precision": "float32", "threads": 1,
    "finished": "2025-11-16T08:00:00.000+00:00",
}  # fmt: skip


def runs_with_provenance(root: Path) -> list[Finished]:
    runs = grid(root, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]})
    runs += grid(root, {"bce": [0.95]}, regime="full", pi=None)
    runs += grid(root, {"cap": [0.6]}, config={"loss": "bce"}, changed=("loss",))
    for number, run in enumerate(runs):
        run.result["made_with"] = MADE_WITH
        run.result["observation"] = f"seen{run.spec.seed}"
        for decision in RULES:  # rules differ
            run.result["metrics"][decision] = json.loads(
                json.dumps(run.result["metrics"][decision])
            )
            five = run.result["metrics"][decision]["default"]
            five["micro_f1"] += list(RULES).index(decision) / 100 + number / 700
        (run.folder / "result.json").write_text(json.dumps(run.result))
    return runs


@pytest.mark.parametrize("decision", RULES)
def test_a_board_read_back_is_the_board(tmp_path: Path, decision: str) -> None:
    runs = runs_with_provenance(tmp_path / "results")
    (file,) = export(runs, tmp_path / "measured", "ssmlbench compare --export x")
    metrics = ("micro_f1", "map", "hamming", "seconds_per_epoch", "peak_memory_mb")
    for convention in ("default", "released"):
        query = Query(decision=decision, convention=convention, metrics=metrics)
        before, after = build_boards(runs, query), build_boards(read_exported([file])[0], query)
        assert after == before
        assert as_markdown(boards_document(after)) == as_markdown(boards_document(before))


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = runs_with_provenance(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again, _ = read_finished([tmp_path / "b"])
    text = exported_text(runs, "c")
    assert text == exported_text(again[::-1], "c")
    (tmp_path / "toy.csv").write_text(text)
    assert exported_text(read_exported([tmp_path / "toy.csv"])[0], "c") == text


def test_the_file_says_where_its_runs_come_from(tmp_path: Path) -> None:
    text = exported_text(runs_with_provenance(tmp_path), "ssmlbench compare --export there")
    head = [line for line in text.splitlines() if line.startswith("# ")]
    assert head[0] == "# toy: 6 finished runs, 2025-11-16 to 2025-11-16"
    assert head[1] == "# written by: ssmlbench compare --export there"
    assert "torch 2.13.0" in text
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    assert rows[0]["data"] == "d1"
    assert rows[0]["code"] == "c1"
    assert {row["run"] for row in rows} == {run.spec.hash for run in read_finished([tmp_path])[0]}
    assert str(tmp_path) not in text


def test_one_model_in_two_folders_is_one_board_and_neither_folder_is_told(tmp_path: Path) -> None:
    runs = [
        *grid(tmp_path / "a", {"bce": [0.5]}, backbone="/home/ann/minilm", weights="w@1"),
        *grid(tmp_path / "b", {"cap": [0.6]}, backbone="/scratch/bob/minilm", weights="w@1"),
    ]
    (board,) = build_boards(runs, Query())
    assert [row.name for row in board.rows] == ["cap", "bce"]
    text = exported_text(runs, "c")
    assert "minilm" in text
    assert "/minilm" not in text


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a file of `ssmlbench compare --export`"):
        read_exported([tmp_path / "x.csv"])
    with pytest.raises(UserError, match="cannot be read"):
        read_exported([tmp_path / "none.csv"])


def test_a_file_that_a_spreadsheet_program_saved_is_read(tmp_path: Path) -> None:
    runs = runs_with_provenance(tmp_path / "results")
    (file,) = export(runs, tmp_path / "measured", "command")
    before = read_exported([file])
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert read_exported([file]) == before


def test_an_export_replaces_exports_only(tmp_path: Path, ssmlbench: Call) -> None:
    """`--dataset toy.csv` gives the data set the name of its file."""
    runs_with_provenance(tmp_path / "results")
    for text in ("f1,f2,a,b\n1,2,0,1\n", "# run, spec\nrun\n", f"{'x' * 200_000}\n"):
        (tmp_path / "toy.csv").write_text(text)
        made = ssmlbench("compare", "--export", ".")
        assert made.returncode == 2
        assert made.stderr.startswith("error: toy.csv is there, and this command did not write it;")
        assert (tmp_path / "toy.csv").read_text() == text
    (tmp_path / "toy.csv").write_text("")
    for _ in range(2):
        assert ssmlbench("compare", "--export", ".").returncode == 0
    assert len(read_exported([tmp_path / "toy.csv"])[0]) > 1


def test_the_commands_write_and_show_a_file(tmp_path: Path, ssmlbench: Call) -> None:
    runs_with_provenance(tmp_path / "results")
    made = ssmlbench("compare", "--regime", "semi", "--export", "measured")
    assert made.returncode == 0, made.stderr
    assert "measured/toy.csv" in made.stdout
    text = (tmp_path / "measured" / "toy.csv").read_text()
    assert "# written by: ssmlbench compare --regime semi --export measured\n" in text
    shutil.rmtree(tmp_path / "results")
    shown = ssmlbench("compare", "--from", "measured/toy.csv", "--format", "csv", "--stats")
    assert shown.returncode == 2
    assert "use --format json" in shown.stderr
    shown = ssmlbench("compare", "--from", "measured/toy.csv", "--format", "json", "--stats")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert {cell["method"] for cell in found["cells"]} == {"bce", "cap", "cap (loss=bce)"}
    assert "at least 5 blocks" in found["statistics"][0]["friedman_refused"]
    nothing = ssmlbench("compare", "--from", "measured/toy.csv", "--method", "x", "--export", "m")
    assert nothing.returncode == 2
    assert "--method x: none of the " in nothing.stderr
    assert not (tmp_path / "m").exists()


def test_an_export_holds_no_formula_and_is_read_back(tmp_path: Path) -> None:
    runs = runs_with_provenance(tmp_path)
    for number, run in enumerate(runs):
        run.result["uses"] = "=1+1"
        run.result["made_with"] = {"ssmlbench": "-x", "torch": "+2.13", "device": f"@{number}"}
    text = exported_text(runs, "c")
    (tmp_path / "toy.csv").write_text(text)
    rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    assert all(cell == spreadsheet_cell(cell_text(cell)) for row in rows for cell in row)
    read, complaints = read_exported([tmp_path / "toy.csv"])
    assert not complaints
    assert exported_text(read, "c") == text
    assert {run.result["uses"] for run in read} == {"=1+1"}
