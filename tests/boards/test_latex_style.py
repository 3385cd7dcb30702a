"""LaTeX tables as a paper chooses them: alignment by siunitx, caption, label; and from Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.from_python import Boards, compare
from ssmlbench.boards.layout import BOARDS, METRICS, SETS
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import layout_document, table_document
from ssmlbench.boards.render.document import Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.render.latex import LatexStyle, as_latex
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.core.errors import UserError
from tests.boards.test_layout import call, runs_on
from tests.support.latex import compile_latex, needs_latex, needs_siunitx, paper

SIUNITX = LatexStyle("siunitx")


def table(rows: list[list[Entry]], left: int = 1) -> Document:
    headers = ["method", *("mAP" for _ in rows[0][1:])]
    return Document([TableSection("a title", [Panel(headers, rows, left)])])


def body(document: Document, style: LatexStyle | None = None) -> list[str]:
    text = as_latex(document, style)
    inside = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    return [line.removesuffix(r" \\") for line in inside.strip().splitlines()]


def kinds(document: Document) -> str:
    found = re.search(r"\\begin\{tabular\}\{(.*)\}\n", as_latex(document, SIUNITX))
    assert found is not None
    return found[1]


def test_means_and_deviations_are_s_columns_with_the_room_they_need() -> None:
    rows = [
        texts("a", Entry("9.5 ± 0.25", 2)),
        texts("b", Entry("14.5 ± 11.5", 1)),
        texts("c", Entry("7", 3)),
        texts("d", "–"),
    ]
    assert kinds(table(rows)) == (
        r"lS[table-format=2.1]@{\,}S[table-format=2.2,table-space-text-pre={$\pm\,$}]"
    )
    assert body(table(rows), SIUNITX) == [
        # siunitx aligns no text: an underlined number has the invisible digits of its column
        r"a & {\phantom{0}\underline{$9.5$}} & {$\pm\,$} 0.25",
        r"b & \bfseries 14.5 & {$\pm\,$} 11.5",
        "c & 7 &",
        r"d & \multicolumn{2}{c}{--}",
    ]


def test_signs_marks_and_words_stay_readable_in_s_columns() -> None:
    rows = [texts("a", "+0.012*"), texts("b", "-0.5"), texts("c", "baseline")]
    assert kinds(table(rows)) == "lS[table-format=+1.3,table-space-text-post={{*}}]"
    assert body(table(rows), SIUNITX) == ["a & +0.012 {{*}}", "b & -0.5", "c & {baseline}"]


def test_a_negative_number_has_a_minus_and_a_name_its_hyphens() -> None:
    """A hyphen before a number is shorter than a minus, and reads as a dash."""
    rows = [texts("top -3", "-0.012 [-0.030, +0.006]"), texts("d2l-mat", "-0.1")]
    assert body(table(rows)) == [
        "top -3 & $-$0.012 {[}$-$0.030, +0.006]",
        "d2l-mat & $-$0.1",
    ]
    assert body(table([texts("a", "1.0e-3"), texts("b", "2010-2012")])) == [
        "a & 1.0e-3",
        "b & 2010-2012",
    ]


@pytest.mark.parametrize("text", ["0.5 [0.4, 0.6]", "2–3", "1.0e-3"])
def test_what_is_more_than_a_number_keeps_its_plain_column(text: str) -> None:
    assert kinds(table([texts("a", text), texts("b", "0.5")])) == "lr"


def test_numbers_without_a_mark_stay_in_line_with_marked_ones() -> None:
    assert body(table([texts("a", "44.78‡"), texts("b", "40.15"), texts("c", "–")])) == [
        r"a & 44.78$\ddagger$",
        r"b & 40.15\phantom{$\ddagger$}",
        "c & --",
    ]


def test_the_package_is_loaded_only_where_it_is_asked_for() -> None:
    document = table([texts("a", "1.0")])
    assert "siunitx" not in as_latex(document)
    assert r"\usepackage{booktabs,graphicx,siunitx}" in as_latex(document, SIUNITX)


def test_caption_and_label_are_those_that_were_given(tmp_path: Path) -> None:
    boards = build_boards(runs_on(tmp_path, ("scene",), (0.1,)), Query(metrics=("map",)))
    text = as_latex(layout_document(boards, SETS), LatexStyle("plain", "5 % of Scene.", "tab:main"))
    assert r"\caption{5 \% of Scene. Best in bold, second underlined.}" in text
    assert re.findall(r"\\label\{([^}]+)\}", text) == ["tab:main", "tab:main-2"]
    assert r"\caption{5 \% of Scene: mAP, difference" in text  # the second table says what it shows
    both = build_boards(
        runs_on(tmp_path / "both", ("scene", "yeast"), (0.1,)), Query(metrics=("map",))
    )
    several = as_latex(layout_document(both, METRICS), LatexStyle(caption="Ours"))
    assert r"\caption{Ours (mAP on scene (semi $\pi$ = 0.1))" in several


@pytest.mark.parametrize("label", ["a b", "tab:{x}", "π", "a\\b", "x%"])
def test_a_label_that_latex_cannot_read_is_refused(label: str) -> None:
    with pytest.raises(UserError, match="expected letters, digits"):
        LatexStyle(label=label)


def test_quotation_marks_open_and_close() -> None:
    assert latex_escape('A ("Title") "b"') == "A (``Title'') ``b''"


@needs_latex
@needs_siunitx
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_s_columns_compile_in_papers_of_one_and_two_columns(tmp_path: Path, options: str) -> None:
    boards = build_boards(runs_on(tmp_path, "abc", (0.05, 0.1)), Query())
    for layout in (BOARDS, SETS, METRICS):
        (tmp_path / f"{layout}.tex").write_text(as_latex(table_document(boards, layout), SIUNITX))
    packages = ("booktabs", "graphicx", "siunitx")
    (tmp_path / "paper.tex").write_text(paper([BOARDS, SETS, METRICS], options, packages))
    log = compile_latex(tmp_path, "paper")
    assert "Overfull" not in log
    assert "Missing character" not in log
    compile_latex(tmp_path, SETS)


# ------------------------------------------------------------------------------------ from Python


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runs_on(tmp_path / "results", ("scene", "yeast"), (0.05, 0.1))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("", {}),
        ("--layout sets", {"layout": "sets"}),
        (
            "--layout metrics --percent --digits 1",
            {"layout": "metrics", "percent": True, "digits": 1},
        ),
        ("--layout sets --display-names", {"layout": "sets", "display_names": True}),
        ("--rename mine=Ours", {"rename": {"mine": "Ours"}}),
        ("--align siunitx", {"align": "siunitx"}),
        ("--caption Ours --label tab:x", {"caption": "Ours", "label": "tab:x"}),
    ],
)
def test_python_writes_what_the_command_prints(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    arguments: dict[str, object],
) -> None:
    assert call(f"{words} --format latex", monkeypatch) == 0
    printed = capsys.readouterr().out.rstrip("\n")
    assert compare(results).to_latex(**arguments).rstrip("\n") == printed  # type: ignore[arg-type]


def test_a_chosen_metric_is_the_layout_s_metric_also_of_a_slice(results: Path) -> None:
    chosen = compare(results, metric=["hamming", "map"])
    assert chosen[:1].to_markdown(layout="sets").count("### ") == 2
    assert compare(results)[:1].to_markdown(layout="sets").count("### ") == 1
    assert '<th scope="colgroup"' in compare(results).to_html(layout="sets")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"layout": "set"}, "Did you mean sets"),
        ({"rename": {"min": "Ours"}}, "Did you mean mine"),
        ({"align": "siunits"}, "Did you mean siunitx"),
        ({"digits": 40}, "between 0 and 9"),
    ],
)
def test_mistakes_in_python_are_one_line(
    results: Path, arguments: dict[str, object], told: str
) -> None:
    boards: Boards = compare(results)
    with pytest.raises(UserError, match=told):
        boards.to_latex(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", ["--align siunitx", "--caption x", "--label x --format csv"])
def test_options_of_latex_need_its_format(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert call(words, monkeypatch) == 2
    assert "are for --format latex" in capsys.readouterr().err
