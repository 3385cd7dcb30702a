"""The live table in a real terminal: no line is lost, and nothing of the table is left behind."""

from __future__ import annotations

import pytest

from tests.support.pseudo_terminal import screen_after

GRID = """
import os, subprocess, sys, time
from ssmlbench.core.console import Console
from ssmlbench.core.events import Done, EpochEnded, Failed, Started, TrainingStarted, Warned
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.display import Display

specs = [
    RunSpec(method="softmatch", dataset="multidigits", pi=0.05, seed=seed, epochs=3) for seed in range(6)
]
console = Console()
console.print("before")
with Display(console, len(specs)) as display:
    for spec in specs:
        for event in (Started(), TrainingStarted()):
            display.report(spec, event)
        for epoch in (1, 2, 3):
            display.report(spec, EpochEnded(epoch, 3, {"labelled": 0.5}, seconds_per_epoch=2.0))
            time.sleep(0.02)
            if spec.seed in (1, 2):
                DISTURB
        if spec.seed == 4:
            display.report(spec, Warned("a label has no labelled positive " + 6 * "and more words "))
            display.report(spec, Failed("mine.py:3: loss returned nothing"))
        else:
            display.report(spec, Done(0.5, 6.0))
    time.sleep(0.6)
console.print("after")
"""

DISTURBANCES = {
    "nothing": "pass",
    "print": "print('foreign line')",
    "stderr": "os.write(2, b'foreign line\\n')",
    "child": "subprocess.run(['echo', 'foreign line'])",
    "bar": "os.write(2, b'10%\\r50%\\rforeign line\\n')",
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_every_line_stays_and_the_table_goes(columns: int, disturbance: str) -> None:
    lines = screen_after(GRID.replace("DISTURB", DISTURBANCES[disturbance]), columns)
    text = "".join(line.ljust(columns) for line in lines)
    for number in range(1, 7):
        assert text.count(f"[{number}/6] softmatch multidigits semi-0.05 seed {number - 1}:") == 1
    assert text.count("failed: mine.py:3: loss returned nothing") == 1
    assert text.count("and more words") == 6
    assert text.count("foreign line") == (0 if disturbance == "nothing" else 6)
    assert not set("┏┓┃━└┘│") & set(text)
    written = [line for line in lines if line]
    assert written[0] == "before"
    assert written[-1] == "after"


@pytest.mark.parametrize("rows", [8, 24])
def test_a_table_higher_than_the_terminal_loses_no_line(rows: int) -> None:
    many = GRID.replace("DISTURB", "pass").replace(
        "    for spec in specs:\n",
        (
            "    for spec in specs:\n        display.report(spec, Started())\n    for spec in specs:\n"
        ),
    )  # all runs at the same time
    lines = screen_after(many, 80, rows)
    assert [line[:5] for line in lines if line.startswith("[")] == [f"[{i}/6]" for i in range(1, 7)]
    assert not set("┏┓┃━└┘│") & set("".join(lines))
