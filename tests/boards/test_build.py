"""Boards: what is averaged, what is shown separately, how ranks and formats come out."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ssmlbench.boards.board import Board
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import (
    TEXT_FORMATS,
    RichDocument,
    as_markdown,
    boards_document,
    latex_escape,
    table_document,
)
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.merge import merge_runs
from ssmlbench.runs.scores import StoredScores
from tests.conftest import ROOT
from tests.support.board_runs import grid, one_board
from tests.support.latex import compile_latex, needs_latex, paper


def test_seeds_are_averaged_and_rows_ranked(tmp_path: Path) -> None:
    board = one_board(grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]}))
    assert [row.name for row in board.rows] == ["cap", "bce"]
    cell = board.rows[1].cells["map", "0.1"]
    assert cell.mean == pytest.approx(0.6)
    assert cell.std == pytest.approx(0.02**0.5)  # sample: √((0.1² + 0.1²) / 1)
    assert (board.rows[0].rank, board.rows[1].rank) == (1.0, 2.0)
    assert board.rows[0].cells["hamming", "0.1"].place == 1  # lower is better


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [({"convention": "relased"}, "released"), ({"decision": "treshold"}, "threshold")],
)
def test_an_unknown_choice_is_refused_by_the_query(wrong: dict[str, str], answer: str) -> None:
    with pytest.raises(UserError, match=f"Did you mean {answer}"):
        Query(**wrong)  # type: ignore[arg-type]


def test_equal_means_share_a_place(tmp_path: Path) -> None:
    board = one_board(grid(tmp_path, {"a": [0.5], "b": [0.5], "c": [0.4]}))
    assert [row.rank for row in board.rows] == [1.5, 1.5, 3.0]


def test_cost_is_shown_and_does_not_count_in_the_rank(tmp_path: Path) -> None:
    slow, fast = grid(tmp_path, {"slow": [0.9], "fast": [0.5]})
    slow.result["cost"]["seconds_per_epoch"] = 9.0
    both = one_board([slow, fast], metrics=("map", "seconds_per_epoch"))
    assert [(row.name, row.rank) for row in both.rows] == [("slow", 1.0), ("fast", 2.0)]
    assert both.rows[1].cells["seconds_per_epoch", "0.1"].place == 1
    cost = one_board([slow, fast], metrics=("seconds_per_epoch",))
    assert [row.name for row in cost.rows] == ["fast", "slow"]


def test_a_single_seed_has_no_spread(tmp_path: Path) -> None:
    assert one_board(grid(tmp_path, {"bce": [0.5]})).rows[0].cells["map", "0.1"].std is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epochs": 5}, "epochs 5 instead of 40"),
        ({"backbone": "resnet50"}, "backbone resnet50 instead of small-cnn"),
        ({"protocol": 0}, "protocol 0 instead of"),
        ({"data": "d2"}, "data d2 instead of d1"),
        ({"selection": "oracle"}, "selection oracle instead of last"),
        ({"precision": "bfloat16"}, "precision bfloat16 instead of float32"),
    ],
)
def test_runs_made_otherwise_are_shown_apart_with_the_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6]})
    runs += grid(tmp_path, {"bce": [0.9]}, **change)
    main, apart = build_boards(runs, Query())
    assert reason in apart.separate_reason
    assert main.rows[0].cells["map", "0.1"].mean == pytest.approx(0.55)
    assert apart.rows[0].cells["map", "0.1"].mean == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"weight_decay": 1.0}, "lr 0.001, weight decay 1, random split"),
        ({"mixed_draws": True}, "clean views among the draws"),
        ({"rotate_columns": True}, "columns rotated"),
    ],
    ids=str,
)
def test_an_unusual_setting_is_in_the_text_of_a_board(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    usual = build_boards(grid(tmp_path / "a", {"bce": [0.5]}), Query())
    other = build_boards(grid(tmp_path / "b", {"bce": [0.5]}, **change), Query())
    assert text not in as_markdown(boards_document(usual))
    assert text in as_markdown(boards_document(other))


def test_another_hyper_parameter_is_another_row(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"cap": [0.5]})
    runs += grid(tmp_path, {"cap": [0.6]}, config={"loss": "bce"}, changed=("loss",))
    assert [row.name for row in one_board(runs).rows] == ["cap (loss=bce)", "cap"]


def test_numbers_of_a_regime_that_differ_in_a_late_digit_are_two_levels(tmp_path: Path) -> None:
    """They shared a cell, as if they were seeds of one level."""
    runs = grid(tmp_path, {"bce": [0.5]}, pi=0.3333333)
    runs += grid(tmp_path, {"bce": [0.7]}, pi=0.33333334)
    board = one_board(runs)
    assert board.levels == ["0.3333333", "0.33333334"]
    assert [board.rows[0].cells["map", level].values for level in board.levels] == [(0.5,), (0.7,)]
    assert one_board(runs, numbers={"pi": (0.33333334,)}).levels == ["0.33333334"]
    assert len({run.folder.parents[1] for run in runs}) == 2


def test_a_board_says_if_one_seed_counts_twice(tmp_path: Path) -> None:
    """Two studies of one size may have other winners, on other devices; nothing else tells them apart."""
    runs = [
        *grid(tmp_path, {"bce": [0.5, 0.6]}, tuned={"trials": 20, "seed": 0, "lr": 0.1}),
        *grid(tmp_path, {"bce": [0.7]}, tuned={"trials": 20, "seed": 0, "lr": 0.1, "trial": 3}),
    ]
    board = one_board(runs)
    assert board.repeated_seeds == ["bce (tuned, 20 trials) π 0.1 seed 0"]
    warned = "several runs of one seed count in one mean: bce (tuned, 20 trials) π 0.1 seed 0;"
    assert warned in as_markdown(boards_document([board]))
    assert one_board(grid(tmp_path / "b", {"bce": [0.5, 0.6]})).repeated_seeds == []


def test_a_partial_grid_says_what_is_missing(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6], "cap": [0.7]})
    runs += grid(tmp_path, {"bce": [0.8, 0.9]}, pi=0.2)
    board = one_board(runs)
    assert board.levels == ["0.1", "0.2"]
    assert board.missing == ["cap π 0.1: seed 1", "cap π 0.2: seed 0, 1"]


def test_regimes_and_data_sets_have_tables_of_their_own(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5]})
    runs += grid(tmp_path, {"bce": [0.9]}, regime="full", pi=None)
    runs += grid(tmp_path, {"bce": [0.7]}, dataset="other")
    found = [(board.dataset, board.regime) for board in build_boards(runs, Query())]
    assert found == [("other", "semi"), ("toy", "full"), ("toy", "semi")]
    assert len(build_boards(runs, Query(datasets=("toy",), regimes=("semi",)))) == 1


def test_an_unknown_metric_or_rule_is_refused() -> None:
    with pytest.raises(UserError, match="Did you mean map"):
        Query(metrics=("maap",))
    with pytest.raises(UserError, match="calibrated, threshold, top-k"):
        Query(decision="guess")


# ------------------------------------------------------------------------------------- formats


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return one_board(
        grid(tmp_path, {"my_method": [0.5, 0.7], "cap": [0.8, 0.9]}, selection="oracle"),
        decision="top-k",
    )


def test_the_table_shows_arrows_marks_and_rule(board: Board) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(RichDocument(boards_document([board])))
    text = console.export_text()
    assert "Micro-F1‡ ↑" in text
    assert "Hamming loss‡ ↓" in text
    assert "mAP ↑" in text  # needs no rule, has no mark
    assert "cap †" in text
    assert "0.8500 ± 0.0707" in text
    assert "selected on the test set" in text
    assert "an oracle rule" in text


def test_the_table_fits_a_narrow_terminal(board: Board) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(RichDocument(boards_document([board])))
    text = console.export_text()
    assert "my_method" in text
    assert "0.8500" in text
    assert max(map(len, text.splitlines())) <= 80


def test_markdown_has_the_best_in_bold(board: Board) -> None:
    text = as_markdown(boards_document([board]))
    assert "**0.8500 ± 0.0707**" in text
    assert "**0.6000" not in text


def test_csv_and_json_carry_every_cell(board: Board) -> None:
    rows = list(csv.DictReader(io.StringIO(TEXT_FORMATS["csv"](boards_document([board])))))
    cells = json.loads(TEXT_FORMATS["json"](boards_document([board])))["cells"]
    assert len(rows) == len(cells) == 2 * 5
    best = next(c for c in cells if c["method"] == "cap" and c["metric"] == "map")
    assert best["mean"] == pytest.approx(0.85)
    assert best["decision"] == ""
    assert best["selection"] == "oracle"


def test_latex_has_rules_the_best_bold_and_the_second_underlined(board: Board) -> None:
    text = TEXT_FORMATS["latex"](boards_document([board]))
    assert r"my\_method" in text
    assert r"\textbf{0.8500} & \textbf{$\pm$ 0.0707}" in text
    assert r"\underline{0.6000} & $\pm$ 0.1414" in text
    rules = [r"\begin{table*}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{table*}"]
    assert [text.count(rule) for rule in rules] == [1] * 5
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")].splitlines()
    rows = [line for line in body if line.endswith(r"\\")]
    # method, seeds, five metrics of two columns each (the header spans both), rank
    assert [line.count(" & ") for line in rows] == [7, 12, 12]
    assert r"\begin{tabular}{lr" + r"r@{\,}l" * 5 + "r}" in text


HOSTILE = [
    "a_b & 5 %", "#1 {x} $y$", "~tilde^hat\\slash", "[3pt] first", "*star", "π × α ≥ ½ → Ω",
    "Müller's \"Łódź\"", "中文 🙂", "a|b <c> \x07", "\\end{document}", "ﬁt² ∑ ς",
]  # fmt: skip


def hostile_page(root: Path) -> Any:
    runs = grid(root, {"bce": [0.5, 0.7]})
    boards = build_boards(runs, Query())
    (board,) = boards
    rows = [dataclasses.replace(board.rows[0], name=name) for name in HOSTILE]
    return boards_document(
        [dataclasses.replace(board, rows=rows, separate_reason="100 % of x_y")] * 20
    )


def test_latex_is_ascii_with_balanced_braces_whatever_a_method_is_called(tmp_path: Path) -> None:
    text = TEXT_FORMATS["latex"](hostile_page(tmp_path))
    assert all(" " <= character <= "~" or character == "\n" for character in text)
    for line in text.splitlines():
        plain = line.replace(r"\{", "").replace(r"\}", "")
        # a command with its own argument around a whole table opens and closes on two lines
        opened = line.count(r"\fitboard{\begin") + line.count(r"\def\fitboard#1{")
        closed = line.count(r"\end{tabular}}") + line.endswith(r"\fi}")
        assert plain.count("{") - opened == plain.count("}") - closed, line
    assert text.count(r"\end{document}") == 1
    assert latex_escape("a_b & 5 %") == r"a\_b \& 5 \%"
    assert latex_escape("--set x-y") == "-{}-set x-y"
    assert latex_escape("ü π ½") == r"\"{u} $\pi$ \texttt{U+00BD}"


@needs_latex
def test_latex_compiles_as_it_is_and_within_a_paper(tmp_path: Path) -> None:
    (tmp_path / "table.tex").write_text(TEXT_FORMATS["latex"](hostile_page(tmp_path)))
    (tmp_path / "paper.tex").write_text(paper(["table"]))
    for name in ("table", "paper"):
        log = compile_latex(tmp_path, name)
        assert "Missing character" not in log


def test_the_names_of_rich_are_only_text(tmp_path: Path) -> None:
    (board,) = build_boards(grid(tmp_path, {"bce": [0.5]}), Query())
    row = dataclasses.replace(board.rows[0], name="[bold red]x[/] [link=http://a]")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(RichDocument(boards_document([dataclasses.replace(board, rows=[row])])))
    assert "[bold red]x[/] [link=http://a]" in console.export_text()


def test_a_metric_that_is_not_defined_has_no_mean_no_place_and_no_rank(tmp_path: Path) -> None:
    nan = float("nan")
    runs = grid(tmp_path, {"a": [0.8, 0.9], "b": [nan, nan], "c": [nan, 0.6]})
    board = one_board(runs, metrics=("map",))
    assert [(row.name, row.rank) for row in board.rows[:2]] == [("a", 1.0), ("c", 2.0)]
    assert board.rows[1].cells["map", "0.1"].seeds == (1,)
    assert not board.rows[2].cells
    for layout in ("boards", "sets", "metrics"):
        document = table_document([board], layout)
        for name, write in TEXT_FORMATS.items():
            assert "nan" not in write(document).lower(), (layout, name)
        text = as_markdown(document)
        assert "Not available: mAP of 3 runs: not defined on its test rows" in text
        assert "**0.8500 ± 0.0707**" in text
        assert text.count("**") == 2


def test_the_note_has_the_dropout_that_the_runs_had(tmp_path: Path) -> None:
    recipe = {"recipe": "features", "input_dropout": 0.5, "hidden_dropout": 0.5}
    many = grid(tmp_path, {"bce": [0.5], "cap": [0.6]}, dropout_factor=0.5, **recipe)
    assert "dropout 0.25 / 0.5," in as_markdown(boards_document([one_board(many)]))
    few = grid(tmp_path, {"bce": [0.5], "cap": [0.6]}, pi=0.05, **recipe)
    assert "dropout 0.25–0.5 / 0.5," in as_markdown(boards_document([one_board([*many, *few])]))
    assert "dropout 0.5 / 0.5," in as_markdown(boards_document([one_board(few)]))


def test_intervals_come_from_the_stored_scores(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6]})
    rng = np.random.default_rng(0)
    truth = (rng.random((300, 4)) < 0.4).astype(np.uint8)
    for run in runs:
        scores = np.clip(truth * 0.2 + rng.random((300, 4)), 0, 1).astype(np.float32)
        stored = {"scores": scores, "truth": truth, "thresholds": np.full(4, 0.5, np.float32)}
        save_file(stored, run.folder / "scores.safetensors")
    board = one_board(runs, draws=100, metrics=("map", "seconds_per_epoch"))
    low, high = board.rows[0].cells["map", "0.1"].interval or (0, 0)
    scored = [StoredScores.read(run.folder) for run in runs]
    assert (low, high) == bootstrap(scored, ["map"], draws=100)["map"]
    assert 0.3 < low < high < 0.9
    assert board.rows[0].cells["seconds_per_epoch", "0.1"].interval is None
    assert f"[{low:.4f}, {high:.4f}]" in as_markdown(boards_document([board]))
    (row,) = one_board(runs, draws=100, metrics=("seconds_per_epoch",)).rows
    assert row.cells["seconds_per_epoch", "0.1"].interval is None


def test_intervals_without_scores_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"--bootstrap needs the runs' stored scores .*scores\.safetensors"
    ):
        one_board(grid(tmp_path, {"bce": [0.5]}), draws=100)
    with pytest.raises(UserError, match="--bootstrap 100001: at most 100,000 draws"):
        Query(draws=100_001)
    with pytest.raises(UserError, match="--bootstrap 5: too few draws"):
        Query(draws=5)


# ------------------------------------------------------------------------------------ the folder


def test_truncated_and_foreign_files_are_left_out_with_a_line(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6, 0.7]})
    runs[0].folder.joinpath("result.json").write_text('{"spec": {"meth')
    runs[1].folder.joinpath("result.json").write_text('{"accuracy": 1}')
    (tmp_path / "notes.txt").write_text("mine")
    found, complaints = read_finished([tmp_path])
    assert [run.spec.seed for run in found] == [2]
    assert len(complaints) == 2
    assert "left out, damaged, not a whole JSON file" in complaints[0]
    assert "left out, not a result of ssmlbench: it has no spec" in complaints[1]


def test_results_merge_by_copying(tmp_path: Path) -> None:
    grid(tmp_path / "one", {"bce": [0.5]})
    grid(tmp_path / "two", {"cap": [0.6]})
    shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
    both = merge_runs(read_finished([tmp_path / "one", tmp_path / "two"])[0])
    assert sorted(run.spec.method for run in both) == ["bce", "cap"]


def test_a_missing_results_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results folder"):
        read_finished([tmp_path / "none"])


def test_a_plain_board_loads_nothing_heavy(tmp_path: Path) -> None:
    grid(tmp_path / "results", {"bce": [0.5, 0.6], "cap": [0.7, 0.8]})
    code = (
        "import sys; from ssmlbench.cli import app; app(['compare'], standalone_mode=False);"
        "heavy = {'torch', 'scipy', 'pandas', 'matplotlib', 'seaborn', 'statsmodels'};"
        "sys.exit(' '.join(heavy & set(sys.modules)))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cap" in made.stdout
    assert made.stderr.strip() == ""
