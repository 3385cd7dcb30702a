"""The series behind the report's figures: what is drawn of boards, histories and costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.query import Query
from ssmlbench.boards.report import sections as sections_module
from ssmlbench.boards.report.critical_difference import critical_differences
from ssmlbench.boards.report.histories import (
    CellHistories,
    History,
    downsampled,
    mean_curve,
    read_history,
)
from ssmlbench.boards.report.series import (
    Point,
    cost_quality,
    dots,
    named,
    over_levels,
    pareto_front,
)
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished
from tests.support.board_runs import grid, one_board

MAP = METRICS["map"]


def test_a_metric_over_pi_is_the_mean_and_std_of_each_level(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.7]}, pi=0.1) + grid(tmp_path, {"bce": [0.8]}, pi=0.2)
    series = over_levels(one_board(runs), MAP)
    (line,) = series.lines
    assert (line.x, line.mean) == ((0.1, 0.2), pytest.approx((0.6, 0.8)))
    assert line.std == pytest.approx(
        (0.02**0.5, 0.0)
    )  # sample std of 0.5 and 0.7; one seed has none
    assert series.alt.endswith("Best at π = 0.2: bce with 0.8000.")


def test_with_one_level_each_method_is_a_row_with_its_seeds(tmp_path: Path) -> None:
    board = one_board(grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]}))
    best, worst = dots(board, METRICS["hamming"], "0.1").dots
    assert (best.name, worst.name) == ("cap", "bce")  # the lower loss on top
    assert worst.values == pytest.approx((0.5, 0.3))


def test_crowded_figures_name_the_best_and_the_baseline() -> None:
    many = [*"abcdefgh", "bce", "z"]
    assert named(many) == ("a", "b", "c", "d", "e", "bce")
    assert named(["a", "b", "bce"]) == ("a", "b", "bce")


def test_nobody_on_the_front_is_beaten_in_both() -> None:
    points = [
        Point("cheap", 1, 0.5), Point("twin", 1, 0.5), Point("good", 2, 0.8),
        Point("dear", 3, 0.8), Point("poor", 1.5, 0.4),
    ]  # fmt: skip
    assert pareto_front(points, higher_is_better=True) == ("cheap", "twin", "good")
    assert pareto_front(points, higher_is_better=False) == ("cheap", "twin", "poor")


def test_cost_is_set_against_the_metric_asked_for(boards: list[Board]) -> None:
    toy = next(board for board in boards if board.dataset == "toy")
    series = cost_quality(
        toy, Query(metrics=("hamming",)), sections_module.COSTS["seconds_per_epoch"], "0.05"
    )
    point = next(p for p in series.points if p.name == "bce")
    # seeds score 0.55 and 0.56, take ten times that, and lose 1 - that
    assert (point.cost, point.quality) == (pytest.approx(5.55), pytest.approx(0.445))


def test_critical_difference_of_three_methods_in_a_fixed_order(tmp_path: Path) -> None:
    runs: list[Finished] = []
    for level in range(1, 7):
        values = {"best": [0.9 - 0.1 * level], "middle": [0.2 - 0.01 * level], "last": [0.05]}
        runs += grid(tmp_path, values, pi=0.1 * level)
    by_regime, notes = critical_differences([one_board(runs)], [MAP])
    (diagram,) = by_regime["semi"]
    assert diagram.names == ("best", "middle", "last")
    assert diagram.ranks == (1.0, 2.0, 3.0)
    assert diagram.difference == pytest.approx(1.353, abs=1e-3)  # 2.343 √(3 · 4 / (6 · 6))
    assert diagram.cliques == ((0, 1), (1, 2))
    assert any("rough" in note for note in notes)


def test_too_few_cells_give_a_reason_in_place_of_a_diagram(tmp_path: Path) -> None:
    by_regime, notes = critical_differences([one_board(grid(tmp_path, {"a": [0.5]}))], [MAP])
    assert not by_regime
    assert notes == [
        "semi: no diagram and no Friedman test: it needs at least 3 methods measured in every block, "
        "here are 0."
    ]


def test_curves_are_averaged_epoch_by_epoch() -> None:
    nan = float("nan")
    one = History((1, 2, 3), 1, {"loss_a": (nan, 0.4, 0.2)})
    other = History((1, 2), 1, {"loss_a": (nan, 0.6)})
    line = mean_curve("a", [one, other], "loss_a")
    assert line is not None
    assert (line.x, line.mean) == ((2, 3), pytest.approx((0.5, 0.2)))
    assert line.std == pytest.approx((0.02**0.5, 0.0))
    assert mean_curve("b", [one, other], "loss_b") is None


def test_long_histories_are_downsampled_and_keep_their_end() -> None:
    assert downsampled(range(1, 101)) == list(range(1, 101))
    assert downsampled(range(1, 251)) == list(range(1, 251, 3))
    assert downsampled(range(1, 252))[-1] == 251


@pytest.mark.parametrize(
    "text", ["", "epoch,phase\nx,semi\n", "a,b\n1,2\n", "epoch,phase\n2,s\n1,s\n"]
)
def test_a_broken_history_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "history.csv").write_text(text)
    run = grid(tmp_path / "r", {"bce": [0.5]})[0]
    assert read_history(Finished(run.spec, run.result, tmp_path)) is None
    assert read_history(Finished(run.spec, run.result, tmp_path / "none")) is None


def test_a_cell_has_losses_diagnostics_and_pseudo_label_quality(boards: list[Board]) -> None:
    toy = next(board for board in boards if board.dataset == "toy")
    cell = CellHistories(toy, "0.05")
    losses, diagnostics = cell.curves("bce")
    assert [line.name for line in losses.lines] == ["labelled"]
    assert losses.lines[0].mean == pytest.approx(
        (0.85, 0.4, 0.4, 0.1)
    )  # seeds start at 0.8 and 0.9
    assert (losses.warm_up, losses.seeds) == (2, 2)
    assert diagnostics.lines[0].x == (3, 4)
    (precision,) = cell.pseudo_labels()
    assert len(precision.lines) == 4
    assert precision.lines[0].mean == pytest.approx((0.5, 0.85))
