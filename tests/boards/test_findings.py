"""leaderboards/findings.py on small tables whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from ssmlbench.plugins.loader import load_file
from tests.conftest import ROOT

FINDINGS = load_file(ROOT / "leaderboards" / "findings.py")


def seeds_by_methods(**values: list[float]) -> pd.DataFrame:
    return pd.DataFrame(values, index=range(len(next(iter(values.values())))))


def write_runs(
    folder: Path, part: str, dataset: str, values: dict[str, list[float]], **more: str
) -> None:
    """A file of `compare --export` with the columns that the findings read; forest is labelled-only."""
    spec = {"selection": "last", "recipe": "features", "learner": "method", **more}
    rows = [
        {
            "method": method,
            "regime": "semi",
            "level": 0.05,
            "seed": seed,
            "default.map": value,
            **{f"{rule}.default.micro_f1": value for rule in ("calibrated", "threshold")},
            "top-k.default.micro_f1": -value,
            "uses": "labelled rows" if method == "forest" else "both pools",
            "cost.seconds": 2.0,
            "spec": json.dumps(spec),
        }
        for method, found in values.items()
        for seed, value in enumerate(found)
    ]
    (folder / part).mkdir(parents=True, exist_ok=True)
    file = folder / part / f"{dataset}.csv"
    file.write_text("# a comment\n" + pd.DataFrame(rows).to_csv(index=False), encoding="utf-8")


def test_a_difference_is_paired_by_seed() -> None:
    table = seeds_by_methods(a=[0.5, 0.7, 0.9], b=[0.4, 0.5, 0.9])
    mean, (low, high) = FINDINGS.difference(table, "a", "b")
    theirs = ttest_rel(table["a"], table["b"]).confidence_interval(0.95)
    assert mean == pytest.approx(0.1)
    assert (low, high) == pytest.approx((theirs.low, theirs.high))


def test_the_method_that_is_chosen_elsewhere_never_saw_the_data_set() -> None:
    one = seeds_by_methods(a=[0.9], b=[0.1], forest=[0.95])
    two = seeds_by_methods(a=[0.1], b=[0.9], forest=[0.95])
    tables = {("x", 0.05): one, ("y", 0.05): two}
    assert FINDINGS.best_elsewhere(tables, "x", {"forest"}) == "b"
    assert FINDINGS.best_elsewhere(tables, "y", {"forest"}) == "a"


def test_a_board_of_a_few_methods_takes_no_part_in_mean_ranks() -> None:
    whole = seeds_by_methods(a=[0.3], b=[0.2], c=[0.1])
    part = seeds_by_methods(c=[0.9], a=[0.1])
    tables = {("x", 0.05): whole, ("y", 0.05): part}
    assert dict(FINDINGS.mean_ranks(tables)) == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_cost_is_that_of_the_quiet_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FINDINGS, "MEASURED", tmp_path)
    monkeypatch.setattr(FINDINGS, "QUIET", ("x", 0.05))
    write_runs(tmp_path, "semi", "x", {"bce": [0.1, 0.2], "cap": [0.3, 0.4]})
    assert FINDINGS.cost().splitlines()[2:] == [
        "| cap | 1.0 | 2.0 | 1.0 |",
        "| bce | 2.0 | 2.0 | 1.0 |",
    ]


def test_what_is_bought_is_the_difference_to_the_best_labelled_only_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FINDINGS, "MEASURED", tmp_path)
    values = {"cap": [0.72, 0.71, 0.73], "bbam": [0.5, 0.51, 0.52], "forest": [0.70, 0.69, 0.71]}
    for dataset in ("x", "y"):
        write_runs(tmp_path, "semi", dataset, values)
    row = FINDINGS.gains().splitlines()[2]
    assert "| forest 0.700 | cap 0.720 | +0.020 [+0.020, +0.020] |" in row
    assert "| 1 / 1 of 2 |" in row


def test_a_rank_that_moves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FINDINGS, "MEASURED", tmp_path)
    write_runs(tmp_path, "semi", "x", {"a": [0.3, 0.31], "b": [0.2, 0.21], "c": [0.1, 0.11]})
    write_runs(tmp_path, "recipe", "x", {"a": [0.1], "b": [0.2], "c": [0.3]}, recipe="paper")
    lines = FINDINGS.ranks().splitlines()
    assert "| x | Micro-F1 | calibrated → top-k | -1.00 | 2 | a → c |" in lines
    assert "| x | Micro-F1 | calibrated → threshold | 1.00 | 0 | a → a |" in lines
    assert "| x | mAP | features → paper | -1.00 | 2 | a → c |" in lines
    assert "| x | mAP | one seed → the mean of the others | 1.00 | 0 | a 2 |" in lines


def test_a_published_order_is_one_that_most_printed_cells_have() -> None:
    found = FINDINGS.published_pairs("semi")
    pairs = {(better, worse): (agreeing, printed) for better, worse, agreeing, printed, _ in found}
    assert pairs["bbam", "drml"] == (20, 20)
    assert pairs["bbam", "cap"] == (16, 20)
    assert all(agreeing >= 0.75 * printed for agreeing, printed in pairs.values())
    assert not [pair for pair in pairs if pair[::-1] in pairs]


def test_the_summary_counts_cells_above_level_and_below_bce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FINDINGS, "MEASURED", tmp_path)
    bce = [0.50, 0.60, 0.70]
    for dataset, better in zip("vwxyz", (0.1, 0.2, 0.2, 0.2, 0.3), strict=True):
        values = {
            "bce": bce,
            "cap": [value + better for value in bce],
            "bbam": [bce[1], bce[0], bce[2]],  # the same mean, not the same by seed
            "forest": [value - better for value in bce],
        }
        write_runs(tmp_path, "semi", dataset, values)
    lines = FINDINGS.summary().splitlines()
    # 0.2 ± 2.776 × √(0.02 / 4) / √5
    assert "| cap | 5 / 0 / 0 | +0.200 [+0.112, +0.288] | 5 of 5 | 1.0 |" in lines
    assert any(line.startswith("| bbam | 0 / 5 / 0 | ") for line in lines)
    assert "| forest | 0 / 0 / 5 | -0.200 [-0.288, -0.112] | 0 of 5 | 4.0 |" in lines


def test_both_rows_of_a_fair_difference_are_chosen_on_the_other_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FINDINGS, "MEASURED", tmp_path)
    floor = {"forest": [0.5, 0.6]}
    write_runs(tmp_path, "semi", "x", {"cap": [0.9, 0.9], "bbam": [0.1, 0.3], **floor})
    write_runs(tmp_path, "semi", "y", {"cap": [0.1, 0.3], "bbam": [0.9, 0.9], **floor})
    x, y, mean = FINDINGS.gains().splitlines()[2:]
    assert "bbam less forest -0.350" in x
    assert "cap less forest -0.350" in y
    assert "-0.350 [-0.350, -0.350]" in mean
