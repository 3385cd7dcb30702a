"""status prints any text, and reads files of any version, damaged or not, without a traceback."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.cli.status import _print_errors, page
from ssmlbench.core.console import Console
from ssmlbench.core.keep_alive import FRESH_SECONDS
from ssmlbench.grid.status import read_states

NASTY = [
    "[/red] closing a tag that nobody opened",
    "[bold]loud[/bold] [link=http://x]y[/link] [",
    "tensor([[1., 2.]]) has shape [2, 3]",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \r\b",
    "half a pair \ud83d, \u202eright to left",
    "",
    "\n\n",
    "x" * 10_000,
]

texts = st.one_of(st.sampled_from(NASTY), st.text())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=5,
)


def shown(root: Path) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # as a terminal: surrogates are errors
    console = Console(file=file, width=200, force_terminal=True)
    states = read_states([root])
    console.print(page(states))
    _print_errors([state for state in states if state.state == "failed"], console)
    json.dumps([state.as_dict() for state in states])
    file.flush()
    return file.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", NASTY, ids=[str(i) for i in range(len(NASTY))])
def test_any_text_in_an_error_is_shown_as_it_is(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "toy" / "semi-0.1" / "bce" / "0-abc"
    folder.mkdir(parents=True)
    facts = {"error": text, "traceback": text, "attempts": 2, "time": 1.0}
    (folder / "error.json").write_text(json.dumps(facts))
    said = shown(tmp_path)
    assert "failed" in said
    assert "\x1b]0;title" not in said
    assert "\x1b[31mred" not in said
    for word in text.split()[:1]:
        if word.isascii() and word.isprintable() and len(word) < 50:
            assert word in said


KEYS = {
    "progress.json": [
        "epoch",
        "epochs",
        "doing",
        "seconds_per_epoch",
        "losses",
        "resumed",
        "host",
        "pid",
        "began",
        "time",
    ],
    "error.json": ["error", "traceback", "attempts", "host", "time"],
    "spec.json": [
        "method",
        "dataset",
        "regime",
        "pi",
        "seed",
        "config",
        "changed",
        "tuned",
        "checksum",
    ],
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KEYS)).flatmap(
        lambda name: st.tuples(
            st.just(name), st.dictionaries(st.sampled_from(KEYS[name]), values, max_size=6)
        )
    ),
    texts,
)
def test_any_content_of_a_run_folder_is_survived(
    found: tuple[str, dict[str, Any]], raw: str
) -> None:
    name, content = found
    with tempfile.TemporaryDirectory() as scratch:
        for number, text in enumerate((json.dumps(content), raw)):
            folder = Path(scratch) / "toy" / "semi-0.1" / "bce" / f"{number}-abc"
            folder.mkdir(parents=True)
            (folder / "error.json").write_text('{"error": "why"}')
            (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        shown(Path(scratch))


def test_a_time_left_that_is_not_a_number_is_a_dash() -> None:
    from ssmlbench.core.eta import duration

    assert [duration(value) for value in (None, float("nan"), float("inf"))] == ["-"] * 3


def test_a_beat_is_much_shorter_than_what_counts_as_dead() -> None:
    from ssmlbench.core.keep_alive import BEAT_SECONDS

    assert BEAT_SECONDS * 3 < FRESH_SECONDS
