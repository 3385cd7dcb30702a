"""Which labels come together, counted by hand; and the page that `ssmlbench data show` prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.cli.data_show import show_command, shown_input
from ssmlbench.data.label_pairs import LabelPair, label_pairs, labels_per_row

TRUTH = np.array(
    [[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0], [-1, -1, -1], [1, 1, -1]],
    dtype=np.int8,
)


def test_pairs_are_those_of_fully_labelled_rows() -> None:
    assert label_pairs(TRUTH, 9) == [
        # Label 0 has 4 of 6 rows, label 1 has 2, label 2 has 2.
        LabelPair(0, 1, 2, 1.0, pytest.approx(2 * 6 / (4 * 2))),
        LabelPair(0, 2, 1, 0.5, pytest.approx(1 * 6 / (4 * 2))),
    ]
    assert len(label_pairs(TRUTH, 1)) == 1
    assert labels_per_row(TRUTH) == {0: 1, 1: 2, 2: 3}


def test_data_without_a_known_row_has_no_pairs() -> None:
    unknown = np.full((3, 2), -1, dtype=np.int8)
    assert label_pairs(unknown, 5) == []
    assert labels_per_row(unknown) == {}


def test_the_page_has_card_histogram_pairs_and_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = [("first \x1b[31m text", ["a", "b"]), ("second", ["a"]), ("third", []), ("no", None)]
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in rows)
    (folder / "train.jsonl").write_text("\n".join(lines))
    show_command(name=str(folder), examples=4)
    said = capsys.readouterr().out
    assert "3 labelled, 0 partly labelled, 1 unlabelled" in said
    assert "rows of each label" in said
    assert "1 with 0, 1 with 1, 1 with 2" in said
    assert "labels that come together" in said
    assert "not known" in said
    assert "\x1b[31m" not in said  # a text may not command the terminal
    show_command(name=str(folder), examples=0)
    assert "examples" not in capsys.readouterr().out


def test_inputs_of_every_kind_are_short() -> None:
    assert len(shown_input("word " * 500, "text")) < 300
    assert shown_input(np.zeros((4, 6, 3), np.uint8), "image").startswith("6 × 4 pixels, colour")
    assert shown_input(np.arange(100.0), "vector") == "0 1 2 3 4 5 6 7 … (100 numbers)"
