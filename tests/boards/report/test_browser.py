"""The report in a real browser: sorting, choosing, themes, widths, print; and not one request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.report import write_report
from ssmlbench.runs.finished import read_finished
from tests.support import chromium
from tests.support.chromium import Chromium
from tests.support.report_runs import write_results

pytestmark = pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium here")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    query = Query(metrics=("map", "hamming"))
    boards = build_boards(read_finished([write_results(folder / "results")])[0], query)
    write_report(boards, query, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def page(browser: Chromium, report: Path) -> Chromium:
    browser.look(1280)
    browser.open(report)
    return browser


FIRST = "document.querySelector('#boards table.leaders')"
NAMES = f"Array.from({FIRST}.tBodies[0].rows, row => row.cells[0].textContent.slice(0, 5))"
SORTED = f"Array.from({FIRST}.tHead.rows[0].cells, th => th.getAttribute('aria-sort'))"
FIGURES_SHOWN = (
    "Array.from(document.querySelectorAll('#training .toggle')).filter(f => !f.hidden).length"
)


def test_nothing_is_asked_for_and_nothing_complains(page: Chromium, report: Path) -> None:
    assert page.requests == [report.as_uri()]
    assert page.complaints == []
    assert page.run("document.scripts.length") == 1
    assert page.run("document.images.length") == 0


def test_a_click_sorts_best_first_and_the_next_turns_it_round(page: Chromium) -> None:
    assert page.run(NAMES) == ["cap (", "bce", "<scri", "long-"]
    at = f"{FIRST}.tHead.rows[0].cells[0].querySelector('button').getBoundingClientRect()"
    page.run(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    page.click(*page.run(f"[{at}.x + 5, {at}.y + 5]"))
    assert page.run(NAMES) == ["<scri", "bce", "cap (", "long-"]
    page.click(*page.run(f"[{at}.x + 5, {at}.y + 5]"))
    assert page.run(NAMES) == ["long-", "cap (", "bce", "<scri"]
    assert page.run(SORTED)[:2] == ["descending", None]


def test_the_keyboard_sorts_too(page: Chromium) -> None:
    page.run(f"{FIRST}.tHead.rows[0].cells[1].querySelector('button').focus()")
    page.press("Tab")
    page.press("Enter", "\r")
    assert page.run(SORTED)[2] == "descending"  # mAP: more is better
    assert page.run(NAMES)[0] == "cap ("
    page.press("Enter", "\r")
    assert page.run(SORTED)[2] == "ascending"
    assert page.run(NAMES)[0] == "long-"


def test_missing_numbers_stay_last(page: Chromium) -> None:
    page.run(f"{FIRST}.tBodies[0].rows[0].cells[2].textContent = '–'")
    button = f"{FIRST}.tHead.rows[0].cells[2].querySelector('button')"
    for _ in range(2):
        page.run(f"{button}.click()")
        assert page.run(NAMES)[-1] == "cap ("


def test_a_box_shows_and_hides_a_methods_curves(page: Chromium) -> None:
    assert page.run(FIGURES_SHOWN) == 4
    page.run("document.querySelector('input[data-shows]').focus()")
    page.press(" ", " ")
    assert page.run(FIGURES_SHOWN) == 3


SHOWN = (
    "Array.from(document.querySelectorAll('#summary tbody tr')).filter(r => !r.hidden)"
    ".map(r => r.cells[0].textContent.slice(0, 5))"
)


def test_filters_choose_rows_columns_and_boards(page: Chromium) -> None:
    def choose(control: str, value: str) -> None:
        box = f"document.getElementById('filter-{control}')"
        page.run(f"{box}.value = {value!r}; {box}.dispatchEvent(new Event('input'))")

    choose("method", "cap, long")
    assert page.run(SHOWN) == ["cap (", "long-"]
    assert "2 methods" in page.run("document.getElementById('filter-count').textContent")
    choose("method", "")
    choose("dataset", "toy")
    shown = "Array.from(document.querySelectorAll('#boards article')).filter(a => !a.hidden).length"
    assert page.run(shown) == 1
    columns = (
        "Array.from(document.querySelectorAll('#summary tbody tr:first-child td'))"
        ".filter(c => !c.hidden).length"
    )
    assert page.run(columns) == 4  # three levels and the rank
    choose("dataset", "")
    assert page.run(columns) == 7
    choose("tier", "labelled")
    assert page.run(SHOWN) == []  # these runs did not record it
    choose("tier", "")
    assert len(page.run(SHOWN)) == 4


def test_the_summary_sorts_by_a_column_below_a_shared_heading(page: Chromium) -> None:
    header = "document.querySelector('#summary thead tr:last-child').cells[1]"
    page.run(f"{header}.querySelector('button').click()")
    assert page.run(f"{header}.getAttribute('aria-sort')") == "descending"
    assert page.run(SHOWN)[0] == "cap ("
    page.run(f"{header}.querySelector('button').click()")
    assert page.run(SHOWN)[0] == "long-"


def test_columns_of_a_boards_tables_are_below_each_other(page: Chromium) -> None:
    lefts = (
        "Array.from(document.querySelectorAll('#boards article:first-of-type table.leaders'),"
        " t => Array.from(t.tBodies[0].rows[0].cells, c => Math.round(c.getBoundingClientRect().left)))"
    )
    first, *others = page.run(lefts)
    assert others
    assert others == [first] * len(others)


@pytest.mark.parametrize("width", [360, 390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_never_scrolls_sideways(page: Chromium, width: int, dark: bool) -> None:
    page.look(width, dark=dark)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    beyond = (
        "Array.from(document.querySelectorAll('body *')).filter(e => !e.closest('.scroll') && "
        "!e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert page.run(beyond) == []
    # the text of every drawing lies inside the drawing
    outside = (
        "Array.from(document.querySelectorAll('svg text')).filter(t => { const a = "
        "t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect(); return a.width && "
        "(a.left < b.left - 2 || a.right > b.right + 2) }).map(t => t.textContent)"
    )
    assert page.run(outside) == []


def test_tables_scroll_inside_their_box_on_a_phone(page: Chromium) -> None:
    page.look(360)
    box = f"{FIRST}.parentElement"
    assert page.run(f"{box}.scrollWidth > {box}.clientWidth")
    page.run(f"{box}.scrollLeft = 100")
    assert page.run(f"{FIRST}.tBodies[0].rows[0].cells[0].getBoundingClientRect().left") < 20


def test_dark_mode_turns_paper_ink_and_figures(page: Chromium) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    line = (
        "getComputedStyle(document.querySelector(\"#quality path[stroke='var(--hue-1)']\")).stroke"
    )
    text = "getComputedStyle(document.querySelector('#quality text')).fill"
    light = [page.run(each) for each in (ground, line, text)]
    assert light == ["rgb(255, 255, 255)", "rgb(0, 114, 178)", "rgb(17, 20, 24)"]
    page.look(1280, dark=True)
    dark = [page.run(each) for each in (ground, line, text)]
    assert dark == ["rgb(20, 23, 27)", "rgb(86, 180, 233)", "rgb(232, 234, 237)"]


def test_print_is_light_without_controls_and_fits_the_paper(page: Chromium) -> None:
    page.look(690, dark=True, media="print")  # A4 less its margins
    assert (
        page.run("getComputedStyle(document.documentElement).getPropertyValue('--paper')")
        == "#ffffff"
    )
    assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.run("getComputedStyle(document.querySelector('.toggles')).display") == "none"
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("getComputedStyle(document.querySelector('.filters')).display") == "none"
    broken = (
        "Array.from(document.querySelectorAll('#summary td')).filter(c => "
        "c.getBoundingClientRect().right > innerWidth || c.getClientRects().length !== 1).length"
    )
    assert page.run(broken) == 0
    assert page.send("Page.printToPDF")["data"].startswith("JVBERi")  # %PDF-


def test_headings_repeat_on_every_printed_page(page: Chromium) -> None:
    """Chromium repeats only plain text: a button, or a cell that sticks, is empty on the next page."""
    page.look(690, media="print")
    heads = "Array.from(document.querySelectorAll('table thead, table thead *, caption'))"
    kept = f"{heads}.filter(e => getComputedStyle(e).position !== 'static').length"
    assert page.run(kept) == 0
    boxes = (
        f"{heads}.filter(e => e.tagName === 'BUTTON' && getComputedStyle(e).display !== 'contents')"
    )
    assert page.run(f"{boxes}.length") == 0
    assert page.run(f"getComputedStyle({FIRST}.tHead).display") == "table-header-group"
    about = "Array.from(document.querySelectorAll('h2, h3, .about'), e => getComputedStyle(e).breakAfter)"
    assert set(page.run(about)) == {"avoid"}  # no page ends with a heading
    # a short table, with its caption, stays on one page
    assert page.run(f"getComputedStyle({FIRST}).breakInside") == "avoid"
