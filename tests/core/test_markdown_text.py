"""Names of plugins and values of hyper-parameters are text in Markdown: no HTML, no links, no new lines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ssmlbench.boards.from_python import compare
from ssmlbench.core.markdown_text import markdown_cell, markdown_code, markdown_text
from tests.support.board_runs import BASE, finished

HOSTILE = "<script>alert(1)</script>\n# x | [y](javascript:1) \x1b[31m\u202e`"


def test_html_links_and_control_characters_are_shown_as_text() -> None:
    assert markdown_text("a < b, <b>c</b> <!-- d") == "a < b, &lt;b>c&lt;/b> &lt;!-- d"
    assert markdown_text("[a](http://b) [c]") == "[a]\\(http://b) [c]"
    assert markdown_text("a\n# b\x1b\u202e") == "a # b\ufffd\ufffd"
    assert markdown_cell("a  |\tb") == "a \\| b"
    assert markdown_code("a|<b>") == "`a\\|<b>`"
    assert markdown_code("a`<b>") == "a`&lt;b>"


def test_a_board_shows_a_hostile_value_as_text(tmp_path: Path) -> None:
    spec = dataclasses.replace(BASE, config={"loss": HOSTILE}, changed=("loss",))
    finished(tmp_path, spec, 0.5)
    boards = compare(tmp_path)
    page = boards.to_markdown()
    assert "<script" not in page
    assert "](" not in page
    assert "\n# x" not in page
    for text in (page, boards.to_html(), boards.to_latex()):
        assert all(c.isprintable() or c == "\n" for c in text)
    assert "<script" not in boards.to_html()
