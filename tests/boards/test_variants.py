"""Ablations and sensitivity of a method: the planned runs, the findings, and their place in the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ssmlbench.boards.analyses.board_variants import ablations_found, sensitivities_found
from ssmlbench.boards.analyses.contract import run_cells
from ssmlbench.boards.analyses.gradients import gradient_imbalance
from ssmlbench.boards.analyses.output import write_findings
from ssmlbench.boards.analyses.variants import (
    VariantRuns,
    ablation_findings,
    sensitivity_findings,
)
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.analyses import analysis_sections
from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.grid.request import GridRequest
from ssmlbench.grid.variants import BASE, ablations, values_of
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Finished, read_finished
from tests.support.analysed_runs import write_run

REQUEST = GridRequest({"method": ("bbam",), "dataset": ("toy",), "pi": (0.1,)})


def test_ablations_are_the_method_as_it_is_and_each_declared_change(plugins: Plugins) -> None:
    variants = {variant.name: variant for variant in ablations(REQUEST, plugins)}
    assert next(iter(variants)) == BASE
    assert variants["without balancing"].request.settings == {"bbam.balance": "false"}
    assert variants["every negative"].request.settings == {"bbam.negatives_per_positive": "none"}
    other = variants["CAP's pseudo-labels, no angles"].request
    assert other.values["method"] == ("cap",)
    assert other.settings == {"cap.loss": "bce"}


def test_hmls_tables_4_and_5_are_its_ablations(plugins: Plugins) -> None:
    request = GridRequest({"method": ("hml",), "dataset": ("toy",), "regime": ("single-positive",)})
    changes = [dict(variant.changes) for variant in ablations(request, plugins)]
    for wanted in (
        *({"head": "linear"}, {"adaptive": "true"}),  # Table 4, beside HML as it is
        *({"margin": "0"}, {"margin_on": "positives"}, {"margin_on": "negatives"}),  # Table 5
    ):
        assert wanted in changes


def test_sensitivity_goes_over_the_declared_range_one_at_a_time_or_together(
    plugins: Plugins,
) -> None:
    alone = values_of(REQUEST, plugins, ["scale", "margin_size"], {}, together=False)
    scales = [v.changes["scale"] for v in alone if "scale" in v.changes]
    assert (scales[0], scales[-1]) == ("5", "40")
    assert "20" in scales  # the default
    assert all(len(variant.changes) == 1 for variant in alone)
    typed = {"scale": ("10", "20"), "margin_size": ("0.2",)}
    both = values_of(REQUEST, plugins, ["scale", "margin_size"], typed, together=True)
    assert [dict(v.changes) for v in both] == [
        {"scale": "10", "margin_size": "0.2"},
        {"scale": "20", "margin_size": "0.2"},
    ]


@pytest.mark.parametrize(
    ("parameters", "typed", "message"),
    [
        (["scal"], {}, "has no such hyper-parameter. Did you mean scale"),
        (["smoothing"], {}, "declares no range"),
        (["scale"], {"scale": ("x",)}, "must be a number"),
        (["scale"], {"margin": ("1",)}, "margin is not in --param"),
    ],
    ids=["unknown", "no range", "not a number", "another"],
)
def test_what_cannot_be_varied_is_one_line(
    parameters: list[str], typed: dict[str, tuple[str, ...]], message: str, plugins: Plugins
) -> None:
    with pytest.raises(UserError, match=message):
        values_of(REQUEST, plugins, parameters, typed, together=False)


def test_findings_of_variants_have_every_metric_and_are_drawn(tmp_path: Path) -> None:
    for scale, quality in ((10.0, 0.3), (20.0, 0.5)):
        for seed in (0, 1, 2):
            config = {"config": {"scale": scale}, "changed": ("scale",)}
            write_run(tmp_path / "r", quality, method="bbam", seed=seed, **config)
    runs, _ = read_finished([tmp_path / "r"])
    variants = [
        VariantRuns(
            name, {"scale": name}, [r for r in runs if r.spec.config["scale"] == float(name)]
        )
        for name in ("20", "10")
    ]
    query = Query(metrics=("map", "hamming"))
    ablation = ablation_findings("bbam", "toy", variants, query)
    worse = next(r for r in ablation.records if (r["variant"], r["metric"]) == ("10", "map"))
    assert worse["difference"] < 0
    assert worse["seeds"] == 3
    curve = sensitivity_findings("bbam", "toy", variants, ["scale"], False, query)
    assert {record["scale"] for record in curve.records} == {"10", "20"}
    assert len(write_findings([ablation, curve], tmp_path / "out")) == 10


def test_the_commands_refuse_what_they_cannot_run() -> None:
    def said(*words: str) -> str:
        return str(CliRunner().invoke(app, ["analyse", *words]).exception)

    where = ("--dataset", "multidigits", "--pi", "0.1")
    assert "declares no ablations" in said("ablation", "--method", "fixmatch", *where)
    assert "takes one method" in said("ablation", "--method", "cap,bbam", *where)
    assert "one or two" in said("sensitivity", "--method", "bbam", "--param", "a,b,c", *where)


def test_the_report_shows_ablations_and_sensitivity_that_the_runs_hold(tmp_path: Path) -> None:
    for scale, quality in ((10.0, 0.3), (20.0, 0.5), (40.0, 0.4)):
        for seed in (0, 1, 2):
            changed = () if scale == 20 else ("scale",)
            more = {"config": {"scale": scale, "loss": "bce"}, "changed": changed}
            write_run(tmp_path, quality, method="bbam", seed=seed, **more)
    runs, _ = read_finished([tmp_path])
    found = {s.name: s for s in analysis_sections(build_boards(runs, Query()), Query())}
    (ablation,), (curve,) = found["ablation"].figures, found["sensitivity"].figures
    assert "ablation of bbam" in ablation.title
    assert "sensitivity of bbam" in curve.title
    cell = run_cells(build_boards(runs, Query()))
    (differences,) = ablations_found(cell, Query())
    by_hand = np.mean([_map(runs, 10.0, seed) - _map(runs, 20.0, seed) for seed in (0, 1, 2)])
    record = next(
        r for r in differences.records if r["variant"] == "scale=10" and r["metric"] == "map"
    )
    assert record["difference"] == pytest.approx(by_hand)
    (over,) = sensitivities_found(cell, Query())
    assert [r["scale"] for r in over.records if r["metric"] == "map"] == ["10", "20", "40"]


def _map(runs: list[Finished], scale: float, seed: int) -> float:
    (one,) = (r for r in runs if (r.spec.config["scale"], r.spec.seed) == (scale, seed))
    return float(one.result["metrics"]["calibrated"]["default"]["map"])


def test_the_imbalance_of_gradients_is_worked_by_hand(tmp_path: Path) -> None:
    # 4 observed positives with scores that add up to 3; hidden positives and negatives add up to 2.5
    # and 1.5; a label has 2 positives and 8 negatives: 10 rows. |(4 − 3) − (2.5 + 1.5)| / 10 = 0.3.
    side = {
        "scores": np.zeros((1, 3, 50), np.float32),
        "score_sums": np.array([[3.0, 2.5, 1.5]], np.float32),
        "supervised": np.zeros((1, 6, 3), np.float32),
    }
    side["scores"][0, 0, 40] = 4
    side["supervised"][0, 4:, 0] = [2, 8]
    write_run(tmp_path, 0.5, side, method="hml")
    (run,), _ = read_finished([tmp_path])
    assert gradient_imbalance(run) == pytest.approx(0.3)
    variants = [VariantRuns("1", {"margin": "1"}, [run])]
    found = sensitivity_findings("hml", "toy", variants, ["margin"], False, Query(), gradients=True)
    assert [r["mean"] for r in found.records if r["metric"] == "gradients"] == [pytest.approx(0.3)]


def test_a_run_without_sums_of_scores_says_how_to_make_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 0.5, method="hml")
    (run,), _ = read_finished([tmp_path])
    with pytest.raises(UserError, match=f"--gradients: {folder} has no sums.*delete that folder"):
        gradient_imbalance(run)
