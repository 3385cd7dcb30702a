"""The page of the report: whole, inert and always the same."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.html import html_page
from ssmlbench.boards.report.provenance import listings
from ssmlbench.boards.report.sections import report_sections
from ssmlbench.boards.report.text import clean
from ssmlbench.core.spec import PROTOCOL_VERSION
from tests.boards.report.conftest import QUERY
from tests.conftest import ROOT
from tests.support.board_runs import grid
from tests.support.report_runs import CLOSING, HOSTILE, IMAGE, SCRIPT

ASSETS = ROOT / "ssmlbench" / "boards" / "report" / "assets"


# --------------------------------------------------------------------------------------- the page


class Reading(HTMLParser):
    """The page's elements with their attributes, and its text."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def reading(html: str) -> Reading:
    return Reading(html)


def test_every_element_is_closed_and_every_id_is_there_once(reading: Reading) -> None:
    assert reading.open == []
    ids = Counter(a["id"] for _, a in reading.elements if "id" in a)
    assert [name for name, count in ids.items() if count > 1] == []
    targets = [a["href"] for _, a in reading.elements if a.get("href")]
    assert {str(target).removeprefix("#") for target in targets} <= set(ids)
    clips = [
        re.findall(r"#([^)]+)", a["clip-path"] or "")
        for _, a in reading.elements
        if "clip-path" in a
    ]
    assert {clip for found in clips for clip in found} <= set(ids)


def test_the_page_asks_for_nothing(html: str, reading: Reading) -> None:
    for tag, attributes in reading.elements:
        assert tag not in ("img", "link", "iframe", "object", "embed", "image", "base", "form"), tag
        assert "src" not in attributes
        assert str(attributes.get("href") or "#").startswith("#")
    assert "http:" not in html
    assert "https:" not in html
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html


def test_the_policy_allows_the_pages_own_script_and_style_alone(
    html: str, reading: Reading
) -> None:
    policy = next(a["content"] for _, a in reading.elements if "http-equiv" in a)
    assert str(policy).startswith("default-src 'none';")
    assert "unsafe" not in str(policy)
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)
    assert [
        a for _, a in reading.elements if any(n == "style" or n.startswith("on") for n in a)
    ] == []


def test_hostile_names_are_shown_as_text(html: str, reading: Reading) -> None:
    assert [tag for tag, _ in reading.elements if tag == "script"] == ["script"]
    text = "".join(reading.words)
    for name in HOSTILE:
        assert name in text
        assert name not in html
    assert [
        a for t, a in reading.elements if t == "b" and not a
    ] != []  # ours: the best of a column
    assert "\x00" not in html


def test_every_figure_is_there_with_words_for_it(boards: list[Board], reading: Reading) -> None:
    expected = [clean(series.alt) for s in report_sections(boards, QUERY) for series in s.series]
    drawings = [a for tag, a in reading.elements if tag == "svg"]
    assert [a["aria-label"] for a in drawings] == expected
    assert all(a["role"] == "img" for a in drawings)
    keys = {s.key: len(list(s.series)) for s in report_sections(boards, QUERY)}
    # 2 boards × 2 metrics; a diagram a metric; 1 cell with histories; 4 methods × 2; 6 cells × 2 costs
    figures = {"quality": 4, "ranks": 2, "pseudo": 1, "training": 8, "cost": 12}
    # the first data set has three levels; the runs have neither scores nor diagnostics
    assert keys == {**figures, "analysis-budget": 1}
    assert "their history.csv cannot be read: 40 runs" in "".join(reading.words)


def test_tables_have_captions_scopes_marks_and_notes(html: str, reading: Reading) -> None:
    tags = Counter(tag for tag, _ in reading.elements)
    assert (
        tags["caption"] == tags["table"] == 1 + 2 * 2 + 4
    )  # the summary; a table a metric of each board; provenance
    scopes = {a.get("scope") for tag, a in reading.elements if tag == "th"}
    assert scopes == {"col", "row", "colgroup"}
    # cap is best and bce second in each of the 12 columns, and in the 6 of the summary
    assert html.count("<b>") == html.count("<u>") - 1 == 18  # one <u> explains itself
    assert "label sets by per-label thresholds" in html


def test_oracle_marks_are_on_the_page(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"a": [0.5], "b": [0.6]}, selection="oracle")
    query = Query(metrics=("hamming",), decision="top-k")
    html = html_page(build_boards(runs, query), [], query)
    assert "b †</span>" in html
    assert "Hamming loss‡ ↓" in html
    assert "† the epoch was selected on the test set" in html


def test_provenance_lists_versions_data_files_and_runs(boards: list[Board], html: str) -> None:
    runs = [run for board in boards for run in board.runs]
    versions, data, methods, listed = listings(runs)
    assert versions.rows == (("–", "2.0", "–", CLOSING, "–", "–", "–", "48"),)
    assert (IMAGE, "da7a", "test 4, train 8", "3", "24") in data.rows
    assert (SCRIPT, "c0de", str(PROTOCOL_VERSION), "12") in methods.rows
    assert {row[4] for row in listed.rows} == {run.spec.hash for run in runs}
    assert all(run.spec.hash in html for run in runs)
