"""Correlation and gallery; and the analyses in the report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.metrics import jaccard_score

from ssmlbench.boards.analyses import analyses_by_name
from ssmlbench.boards.analyses.correlation import (
    cluster_order,
    embedding_correlation,
    jaccard,
    rank_correlation,
)
from ssmlbench.boards.analyses.gallery import fitted_line, most_different
from ssmlbench.boards.analyses.output import write_findings
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.analyses import analysis_sections
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import read_finished
from tests.boards.test_analyses import diagnostics_arrays
from tests.support.analysed_runs import TRUTH, cells, write_run

RANDOM = np.random.default_rng(8)


def test_the_correlation_of_embeddings_is_equation_8() -> None:
    weights = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    found = embedding_correlation(weights, 20.0, 0.3)
    assert found[0, 2] == pytest.approx(expit(20 * math.cos(0.3)))  # the same direction
    assert found[0, 1] == pytest.approx(expit(20 * math.cos(math.pi / 2 + 0.3)))


def test_jaccard_and_its_rank_correlation_are_those_of_sklearn_and_scipy() -> None:
    truth = RANDOM.random((50, 4)) < 0.4
    found = jaccard(truth.T.astype(float) @ truth.astype(float))
    assert found[1, 3] == pytest.approx(jaccard_score(truth[:, 1], truth[:, 3]))
    other = RANDOM.random((4, 4))
    above = np.triu_indices(4, 1)
    expected = stats.spearmanr(found[above], other[above]).statistic
    assert rank_correlation(found, other) == pytest.approx(expected)


def test_similar_labels_are_neighbours_in_the_heat_map() -> None:
    similarity = np.eye(4)
    similarity[0, 2] = similarity[2, 0] = similarity[1, 3] = similarity[3, 1] = 0.9
    order = cluster_order(similarity)
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


def test_correlation_and_gallery_are_found_and_written(tmp_path: Path) -> None:
    for method, quality in (("cap", 0.6), ("bce", 0.4)):
        for seed in (0, 1):
            write_run(tmp_path / "r", quality, diagnostics_arrays(), method=method, seed=seed)
    found = cells(tmp_path / "r")
    options: dict[str, Any] = {"of": "bce", "threshold": 0.05}
    (correlation,) = analyses_by_name()["correlation"].find(found, Query(), options)
    pair = next(r for r in correlation.records if r["kind"] == "pair")
    assert pair["jaccard"] == pytest.approx(5 / (30 + 60 - 5))
    options = {"rows": 3, "seed": 1, "differ": "cap,bce", "top": 2}
    (gallery,) = analyses_by_name()["gallery"].find(found, Query(), options)
    assert len(gallery.records) == 3 * 2 * 2  # rows, methods, labels
    right = gallery.records[0]
    label = ["sun", "sea", "sand"].index(right["label"])
    assert right["right"] == bool(TRUTH[right["row"], label])
    assert len(write_findings([correlation, gallery], tmp_path / "out")) == 10
    for bad, message in (
        ({"of": "cat"}, r"--of cat: no row .cat."),
        ({"threshold": 2.0}, "--threshold 2"),
        ({"threshold": 0.99}, "no label of"),
    ):
        with pytest.raises(UserError, match=message):
            analyses_by_name()["correlation"].find(found, Query(), bad)
    wrong = {"rows": 3, "seed": 1, "differ": "cap,cat", "top": 2}
    with pytest.raises(UserError, match=r"--differ cap,cat: no row .cat."):
        analyses_by_name()["gallery"].find(found, Query(), wrong)


def test_the_rows_on_which_two_methods_differ_most_come_first() -> None:
    a, b = np.zeros((4, 2)), np.zeros((4, 2))
    b[2], b[1] = 0.9, 0.3
    assert most_different(a, b, 2) == [2, 1]


def test_the_report_has_a_section_for_each_analysis_with_data(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, 0.5, diagnostics_arrays(), seed=seed)
    runs, _ = read_finished([tmp_path])
    sections = analysis_sections(build_boards(runs, Query()), Query())
    names = [section.name for section in sections]
    assert {"labels", "pseudo-labels", "scores", "vdfd", "correlation"} <= set(names)
    assert not {"theory", "pair", "budget"} & set(names)  # no runs, two rows, two levels
    assert all(section.figures for section in sections)


@pytest.mark.parametrize(
    ("labels", "width", "expected"),
    [
        (["sun", "sea"], 60, "cap: ✓ sun 0.50, ✓ sea 0.50"),
        (
            ["amazed-suprised", "sea", "relaxing-calm"],
            49,
            "cap: ✓ amazed-… 0.50, ✓ sea 0.50, ✓ relaxin… 0.50",
        ),
        (["a" * 30, "b" * 30, "c" * 30], 40, "cap: ✓ aaaaaaa… 0.50, ✓ bbbbbbb… 0.50, …"),
    ],
)
def test_a_line_of_the_gallery_cuts_names_and_never_a_score(
    labels: list[str], width: int, expected: str
) -> None:
    found = fitted_line("cap", [(label, 0.5, True) for label in labels], width)
    assert found == expected
    assert len(found) <= width
