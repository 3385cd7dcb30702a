"""A paper is two files: its numbers and its names. No Python is written to add one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.papers import OurMethod, read_paper
from ssmlbench.boards.published import filtered, read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.rule_audit import audit_rules
from ssmlbench.boards.side_by_side import side_by_side
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from tests.support.board_runs import grid

Call = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "source,dataset,method,pi,metric,value,std,regime,unit\n"
TOML = """
name = "MINE"
title = "A title"
url = "https://example.org/mine"
decision_rule = "scores above 0.5"
other_methods = ["Their trick"]

[metrics]
F1 = "micro_f1"
HL = "hamming"
AP = "map"

[datasets]
"My set" = "mine"
VOC = "voc2012"

[methods]
"Full model" = "bbam"
"No balance" = { method = "bbam", settings = { balance = false } }

[selected_on_test]
methods = ["Full model"]
datasets = ["My set"]

[label_density]
source = "Table 9"
"My set" = { positives_per_row = "1.5", labels = 10 }
"""
ROWS = """T1,My set,Full model,0.1,AP,61.5,0.2,semi,percent
T1,My set,No balance,0.1,AP,60.0,,semi,percent
T1,My set,Their trick,0.1,AP,70.0,,semi,percent
"""


def add_paper(folder: Path, toml: str = TOML, rows: str = ROWS, name: str = "mine2026") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(toml, encoding="utf-8")
    (folder / f"{name}.csv").write_text(HEAD + rows, encoding="utf-8")
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_two_files_add_a_paper(tmp_path: Path, encoding: str) -> None:
    """With the mark of its encoding too, with which a spreadsheet program saves a CSV file."""
    folder = add_paper(tmp_path / "papers")
    for file in folder.iterdir():
        file.write_text(file.read_text(encoding="utf-8"), encoding=encoding)
    values = [v for v in read_published([folder]) if v.paper.key == "mine2026"]
    assert [(v.method, v.dataset, v.level, v.value) for v in values] == [
        ("bbam", "mine", "0.1", pytest.approx(0.615)),
        ("bbam (balance=false)", "mine", "0.1", pytest.approx(0.6)),
        ("Their trick", "mine", "0.1", pytest.approx(0.7)),
    ]
    assert [v.selected_on_test for v in values] == [True, False, False]
    paper = values[0].paper
    assert paper.citation == 'MINE ("A title", https://example.org/mine)'
    # 1.5 is 1.45 to 1.55 before rounding, of 10 labels
    density = paper.label_density["mine"]
    assert (density.interval.low, density.interval.high) == pytest.approx((0.145, 0.155))
    assert len(read_published([folder])) == len(read_published()) + 3


def test_a_row_joins_ours_by_method_and_settings(tmp_path: Path) -> None:
    def changed(value: bool) -> dict[str, object]:
        return {"config": {"balance": value, "scale": 8}, "changed": () if value else ("balance",)}

    runs = grid(tmp_path / "r", {"bbam": [0.5]}, dataset="mine", **changed(True))
    runs += grid(tmp_path / "r", {"bbam": [0.4]}, dataset="mine", **changed(False))
    query = Query(datasets=("mine",), metrics=("map",))
    values = filtered(read_published([add_paper(tmp_path / "papers")]), query)
    (table,) = side_by_side(values, build_boards(runs, query))
    differences = {
        row.first.paper_method: row.difference("map", "0.1") for row in table.rows if row.first
    }
    assert differences == {
        "Full model": pytest.approx(0.5 - 0.615),
        "No balance": pytest.approx(0.4 - 0.6),
        "Their trick": None,
    }
    assert len(table.rows) == 3  # no row of ours is left over


def test_a_run_matches_only_with_the_settings_of_the_paper() -> None:
    adaptive = OurMethod("hml", {"adaptive": True})

    def run(changed: tuple[str, ...] = (), **config: object) -> RunSpec:
        return RunSpec("hml", "toy", pi=0.1, config=config, changed=changed)

    assert adaptive.matches(run(("adaptive",), adaptive=True, scale=1))
    assert adaptive.matches(run((), adaptive=True))  # were it the default
    assert not adaptive.matches(run((), adaptive=False))
    assert not adaptive.matches(run(("adaptive", "scale"), adaptive=True, scale=2))
    assert not adaptive.matches(run())
    assert not OurMethod("bce").matches(run())


def test_two_papers_with_one_method_name_are_audited_apart(tmp_path: Path) -> None:
    toml = TOML.replace('"Full model" =', '"CAP" =').replace('["Full model"]', '["CAP"]')
    rows = "T1,VOC,CAP,0.1,F1,0.5,,semi,fraction\nT1,VOC,CAP,0.1,HL,0.1,,semi,fraction\n"
    folder = add_paper(tmp_path / "papers", toml, rows)
    before = audit_rules(read_published())
    after = audit_rules(read_published([folder]))
    (added,) = [row for row in after if row.first.paper.key == "mine2026"]
    assert added.ratios[0].value == pytest.approx(0.1)  # 0.1 / (2 · 0.5)
    assert [row.ratios for row in after if row is not added] == [row.ratios for row in before]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "MINE"\n', "", "name is missing"),
        ('name = "MINE"', "name = 3", "name: must be a text, not 3"),
        ('name = "MINE"', "name = ", "line 2"),
        ("url =", "uri =", "uri: no such key. Did you mean url?"),
        (
            'AP = "map"',
            'AP = "maap"',
            "[metrics] 'AP': we have no metric 'maap'. Did you mean map?",
        ),
        ('VOC = "voc2012"', "VOC = 12", "[datasets] 'VOC': must be a text, not 12"),
        ('= "bbam"\n', "= 1\n", "[methods] 'Full model': must be a text or {"),
        ("settings = { balance = false }", "balance = false", "'No balance' balance: no such key"),
        ('method = "bbam", ', "", "[methods] 'No balance' method: must be a text, not None"),
        ('["Their trick"]', '["Full model"]', "is in [methods] and in other_methods"),
        ('["Their trick"]', '"Their trick"', "other_methods: must be a list of texts"),
        ('methods = ["Full model"]', 'methods = ["Ful"]', "'Ful' is not in [methods]"),
        ('positives_per_row = "1.5"', "positives_per_row = 1.5", "must be the digits as printed"),
        ('"1.5"', '"many"', "positives_per_row: 'many' is not a number"),
        ('"1.5"', '"nan"', "positives_per_row: 'nan' is not a number"),
        ("labels = 10", "labels = 0", "labels: must be a whole number above 0, not 0"),
        ('"My set" = {', '"Other" = {', "[label_density] 'Other': not in [datasets]"),
    ],
)
def test_a_bad_description_is_one_line_with_file_and_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in TOML
    add_paper(tmp_path, TOML.replace(old, new))
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        read_paper(tmp_path / "mine2026.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'mine2026.toml'}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("T1,VOC,Full model,0.1,AP,0.5x,,semi,fraction", "value '0.5x' is not a number"),
        ("T1,VOC,Full model,0.1,AP,nan,,semi,fraction", "value 'nan' is not a number"),
        ("T1,VOC,Full model,0.1,AP,,,semi,fraction", "value '' is not a number"),
        ("T1,VOC,Full model,0.1,AP,0.5,x,semi,fraction", "std 'x' is not a number"),
        ("T1,VOC,Full model,,AP,0.5,,semi,fraction", "pi '': for semi it must be the regime's π"),
        ("T1,VOC,Full model,0.1,AP,0.5,,full,fraction", "pi '0.1': for full it must be empty"),
        ("T1,VOC,Full model,0.1,AP,0.5,,semmi,fraction", "regime 'semmi'. Did you mean semi?"),
        ("T1,VOC,Full model,0.1,AP,0.5,,semi,percents", "unit 'percents'. Did you mean percent"),
        ("T1,VOCC,Full model,0.1,AP,0.5,,semi,fraction", "'VOCC' is not in [datasets] of mine2026"),
        ("T1,VOC,Full model,0.1,XP,0.5,,semi,fraction", "'XP' is not in [metrics] of mine2026"),
        ("T1,VOC,New,0.1,AP,0.5,,semi,fraction", "'New' is neither in [methods] nor in other_meth"),
        ("T1,VOC,Full model,0.1,AP", "must have 9 fields"),
        ("T1,VOC,Full model,0.1,AP,0.5,,semi,fraction,more", "must have 9 fields"),
    ],
)
def test_a_bad_number_is_one_line_with_file_and_line(tmp_path: Path, row: str, said: str) -> None:
    add_paper(tmp_path, rows=ROWS + row + "\n")
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        read_published([tmp_path])
    assert str(caught.value).startswith(f"{tmp_path / 'mine2026.csv'}, line 5: ")
    assert "\n" not in str(caught.value)


def test_folders_that_hold_no_whole_paper_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder of published tables at"):
        read_published([tmp_path / "none"])
    with pytest.raises(UserError, match=r"a paper is a \.toml and a \.csv file"):
        read_published([tmp_path])
    folder = add_paper(tmp_path / "papers")
    (folder / "mine2026.csv").write_text("x,y\n")
    with pytest.raises(UserError, match="its columns must be source,dataset"):
        read_published([folder])
    (folder / "mine2026.csv").unlink()
    with pytest.raises(UserError, match=r"mine2026\.csv: .*No such file"):
        read_published([folder])
    (folder / "mine2026.toml").unlink()
    (folder / "other.csv").write_text(HEAD)
    with pytest.raises(UserError, match=r"other\.csv: other\.toml is missing beside it"):
        read_published([folder])
    with pytest.raises(UserError, match=r"bbam-neurips2024\.toml has the same name; rename one"):
        read_published([add_paper(tmp_path / "twin", name="bbam-neurips2024")])


def test_the_command_takes_a_folder_of_papers(tmp_path: Path, ssmlbench: Call) -> None:
    add_paper(tmp_path / "papers")
    made = ssmlbench("compare", "--papers", "papers", "--dataset", "mine", "--format", "json")
    assert made.returncode == 0, made.stderr
    cells = json.loads(made.stdout)["published"]
    assert {cell["paper_method"] for cell in cells} == {"Full model", "No balance", "Their trick"}
    rows = (
        "T1,VOC,Full model,0.1,F1,0.5,,semi,fraction\nT1,VOC,Full model,0.1,HL,0.1,,semi,fraction\n"
    )
    add_paper(tmp_path / "papers", rows=rows)
    audited = ssmlbench("compare", "--audit", "--papers", "papers", "--dataset", "voc2012")
    assert audited.returncode == 0, audited.stderr
    assert "0.1000" in audited.stdout
