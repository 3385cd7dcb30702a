"""The grid files of the papers' tables: each is expanded by a dry run and compared row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssmlbench.boards.published import PublishedValue, read_published
from ssmlbench.cli import app
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.grid.toml_file import read_grid
from ssmlbench.plugins.loader import Plugins
from tests.conftest import ROOT
from tests.support.raw_layouts import LAYOUTS

GRIDS = ROOT / "leaderboards" / "grids"
DATASETS = ("voc2012", "coco2014", "nuswide", "cub")
Row = tuple[str, str, str]  # data set, regime, our method with its settings


@pytest.fixture(autouse=True, scope="module")
def raw_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small copies of the raw layouts of the papers' data sets."""
    folder = tmp_path_factory.mktemp("raw")
    for name in DATASETS:
        LAYOUTS[name][1](folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSMLBENCH_DATA", str(folder))
        patch.setenv("SSMLBENCH_CACHE", str(folder / "cache"))
        yield


def expanded(name: str) -> list[RunSpec]:
    """The runs of a grid file, after a dry run of it. No pretrained weights are needed for that."""
    request = read_grid(GRIDS / name).overridden_by(GridRequest({"weights": "none"}))
    specs = expand(Plugins(()), request)
    assert f"{len(specs)} run" in dry_run(name)
    return specs


def dry_run(name: str, *more: str) -> str:
    words = ["run", "--grid", str(GRIDS / name), "--dry-run", "--weights", "none", *more]
    said = CliRunner().invoke(app, [*words, "--device", "cpu"], env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    return said.output


def rows_of(specs: list[RunSpec]) -> set[Row]:
    return {(spec.dataset, spec.regime, spec.variant) for spec in specs}


def printed(paper: str, source: str) -> set[Row]:
    def is_row(value: PublishedValue) -> bool:
        return value.paper.key == paper and any(s.endswith(source) for s in value.sources)

    return {(v.dataset, v.regime, v.method) for v in read_published() if is_row(v)}


@pytest.mark.parametrize(
    ("grid", "paper", "source", "not_printed"),
    [
        # the source of Table 2 prints no number for EPR on COCO (specs/protocol.md)
        ("hml-table2.toml", "hml-eccv2022", "T2", {("coco2014", "single-positive", "epr")}),
        ("hml-table3.toml", "hml-eccv2022", "T3", set()),
        ("em-apl-table.toml", "em-apl-eccv2022", "poster", set()),
    ],
    ids=["HML table 2", "HML table 3", "EM + APL"],
)
def test_a_grid_file_has_the_rows_of_its_table(
    grid: str, paper: str, source: str, not_printed: set[Row]
) -> None:
    assert rows_of(expanded(grid)) == printed(paper, source) | not_printed


def test_the_runs_of_a_paper_are_set_as_the_paper_says() -> None:
    for spec in expanded("em-apl-table.toml"):
        assert (spec.backbone, spec.image_size, spec.epochs) == ("resnet50", 448, 10)
        assert (spec.warmup_epochs, spec.selection, spec.lr) == (0, "val", 1e-5)


def test_figure_4_goes_over_the_share_of_positives_and_partial_is_one_word_away() -> None:
    specs = expanded("hml-figure4.toml")
    assert {spec.share for spec in specs} == {0.1, 0.3, 0.5, 0.7, 0.9}
    assert {spec.regime for spec in specs} == {"partial-positive"}
    assert {spec.variant for spec in specs} == {
        *("an", "ls", "wan", "hml (adaptive=true)"),
        *("epr (kappa=1.44)", "role (kappa=1.44)"),
    }
    assert f"{len(specs)} run" in dry_run("hml-figure4.toml", "--regime", "partial")


def test_every_grid_file_is_tested() -> None:
    own = Path(__file__)
    text = own.read_text() + own.with_name("test_board_grids.py").read_text()
    assert [file.name for file in GRIDS.iterdir() if f'"{file.name}"' not in text] == []
