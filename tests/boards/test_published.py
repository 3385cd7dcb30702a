"""The papers' numbers: read whole, under our names, beside ours; and what their audit finds."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.papers import Paper
from ssmlbench.boards.published import PublishedValue, filtered, read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS
from ssmlbench.boards.render.rule_audit import audit_document
from ssmlbench.boards.render.side_by_side import side_by_side_document
from ssmlbench.boards.rule_audit import AuditedRow, audit_rules, find_misprints, ratio_of
from ssmlbench.boards.side_by_side import side_by_side
from ssmlbench.boards.source_audit import find_disagreements
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.metrics import METRICS, evaluate
from tests.support.board_runs import grid

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def entries() -> list[PublishedValue]:
    return read_published()


@pytest.fixture(scope="module")
def audited(entries: list[PublishedValue]) -> dict[tuple[str, str], AuditedRow]:
    return {(row.dataset, row.method): row for row in audit_rules(entries)}


def test_every_published_number_is_there(entries: list[PublishedValue]) -> None:
    # specs: BBAM T2 360, T3 200, T4 48; HML 23 + 12 + 24 + 4; EM+APL 60: 731 rows. T4 repeats
    # BBAM's 24 cells of T2 (2 data sets × 4 π × 3 metrics), which then name both tables.
    by_paper = Counter(entry.paper.key for entry in entries)
    more = {"cap-readme": 8, "aevlp-iccv2025": 20, "boostlu-cvpr2023": 24, "vlpl-readme": 4}
    papers = {"bbam-neurips2024": 584, "hml-eccv2022": 63, "em-apl-eccv2022": 60}
    assert by_paper == {**papers, **more}
    assert sum(len(entry.sources) for entry in entries) == 731 + 56
    assert sum(len(entry.sources) == 2 for entry in entries) == 24


def test_percent_and_fraction_are_one_unit(entries: list[PublishedValue]) -> None:
    (role,) = [
        e
        for e in entries
        if (e.method, e.dataset, e.paper.key) == ("role", "voc2012", "hml-eccv2022")
    ]
    assert (role.digits, role.value, role.decimals) == ("87.9", pytest.approx(0.879), 3)
    assert role.rounding == pytest.approx(0.0005)
    assert all(0 < entry.value < 1 for entry in entries)


def test_the_papers_names_are_ours_where_we_have_the_method(
    entries: list[PublishedValue], plugins: Plugins
) -> None:
    for paper in {entry.paper for entry in entries}:
        for method in paper.methods.values():
            config = plugins.methods[method.name].Config()
            assert all(hasattr(config, key) for key in method.settings), method
    assert {entry.dataset for entry in entries} <= set(plugins.datasets)


# ----------------------------------------------------------------------------------- side by side


def table_of(entries: list[PublishedValue], runs: list[Any], **query: Any) -> Any:
    asked = Query(decision="top-k", **query)
    (table,) = side_by_side(filtered(entries, asked), build_boards(runs, asked))
    return table


def test_ours_stands_beside_theirs_with_the_difference(
    tmp_path: Path, entries: list[PublishedValue]
) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6], "freematch": [0.4]}, dataset="voc2012")
    table = table_of(entries, runs, datasets=("voc2012",), regimes=("semi",), metrics=("map",))
    by_method = {line.method: line for line in table.rows}
    # BBAM's Table 2: CAP on VOC at π = 0.1 has mAP 0.8216; ours is (0.5 + 0.6) / 2
    assert by_method["cap"].difference("map", "0.1") == pytest.approx(0.55 - 0.8216)
    assert by_method["cap"].difference("map", "0.05") is None
    assert by_method["freematch"].published == {}
    assert table.levels == ["0.05", "0.1", "0.15", "0.2"]
    text = TEXT_FORMATS["markdown"](side_by_side_document([table], audit_rules(entries), "top-k"))
    (cap,) = [line for line in text.splitlines() if line.startswith("| cap ")]
    assert "| CAP † |" in cap
    assert "| 0.8216 | **0.5500 ± 0.0707** | -0.2716 |" in cap
    assert "NeurIPS 2024, slides, https://openreview.net" in text
    assert "selected on the test set" in text


def test_a_row_of_two_papers_stays_two_rows(entries: list[PublishedValue]) -> None:
    table = table_of(entries, [], datasets=("voc2012",), regimes=("single-positive",))
    sources = [line.first.sources for line in table.rows if line.method == "ls"]
    assert sources == [("EM+APL-ECCV22-poster",), ("HML-ECCV22-T2",)]
    assert any(line.method == "HML margin: No Margin" for line in table.rows)


def test_marks_say_which_published_values_fit_the_oracle_rule(
    entries: list[PublishedValue],
) -> None:
    table = table_of(entries, [], datasets=("ohsumed",))
    text = TEXT_FORMATS["markdown"](side_by_side_document([table], audit_rules(entries), "top-k"))
    micro = [line for line in text.splitlines() if "T3 |" in line][:5]
    assert [line.count("‡") for line in micro] == [
        4,
        4,
        0,
        0,
        0,
    ]  # softmatch, flatmatch; the others
    assert "no finished run here yet" in text


def test_filters_take_our_names_and_the_papers(entries: list[PublishedValue]) -> None:
    def methods(**query: Any) -> set[str]:
        return {entry.method for entry in filtered(entries, Query(**query))}

    assert methods(methods=("hml",)) == {"hml (adaptive=false)", "hml (adaptive=true)"}
    assert methods(methods=("S2ML2-BBAM",)) == {"bbam"}
    assert {
        e.level for e in filtered(entries, Query(numbers={"pi": (0.1,)}, regimes=("semi",)))
    } == {"0.1"}
    assert filtered(entries, Query(metrics=("seconds_per_epoch",))) == []


def test_the_command_shows_the_papers_without_any_run(ssmlbench: Call) -> None:
    made = ssmlbench("compare", "--published", "--dataset", "coco2014", "--format", "json")
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert {cell["dataset"] for cell in found["published"]} == {"coco2014"}
    assert all(cell["measured"] is None for cell in found["published"])
    none = ssmlbench("compare", "--published", "--dataset", "multidigits")
    assert none.returncode == 2
    assert "no paper here has such numbers" in none.stderr


def test_the_command_takes_top_k_beside_the_papers_and_shows_the_rest_too(
    tmp_path: Path, ssmlbench: Call
) -> None:
    grid(tmp_path / "results", {"cap": [0.5]}, dataset="aapd")
    grid(tmp_path / "results", {"cap": [0.5]}, dataset="mine")
    made = ssmlbench("compare", "--published", "--method", "cap", "--metric", "micro_f1")
    assert made.returncode == 0, made.stderr
    assert "ours‡ π=0.1" in made.stdout
    assert "mine · semi π = 0.1" in made.stdout
    asked = ssmlbench("compare", "--published", "--method", "cap", "--decision", "threshold")
    assert "ours π=0.1" in asked.stdout


# --------------------------------------------------------------------------------------- the audit


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_audits_identity_holds_for_any_label_sets(data: st.DataObject) -> None:
    rows, labels = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 6))
    bits = st.lists(st.booleans(), min_size=rows * labels, max_size=rows * labels)
    truth = np.array(data.draw(bits)).reshape(rows, labels)
    predicted = np.array(data.draw(bits)).reshape(rows, labels)
    found = evaluate(predicted.astype(float), truth, predicted)
    # cleared of the division, so that it also says something at Micro-F1 = 1 and for empty sets
    density = (truth.mean() + predicted.mean()) / 2
    assert found["hamming"] == pytest.approx(2 * (1 - found["micro_f1"]) * density)


SECTION_6 = """
voc2012 softmatch .086 .065 .063 .058
voc2012 flatmatch .055 .054 .061 .057
voc2012 mime .043 .060 .056 .056
voc2012 drml .079 .075 .069 .077
voc2012 cap .104 .099 .097 .101
voc2012 bbam .074 .081 .078 .076
coco2014 softmatch .028 .029 .030 .031
coco2014 flatmatch .028 .030 .031 .031
coco2014 mime .022 .024 .025 .025
coco2014 drml .031 .032 .033 .032
coco2014 cap .060 .059 .058 .065
coco2014 bbam .0363 .0362 .0361 .0365
awa2 softmatch .359 .356 .358 .357
awa2 flatmatch .355 .358 .360 .362
awa2 mime .209 .269 .300 .255
awa2 drml .360 .361 .364 .363
awa2 cap .498 .465 .445 .451
awa2 bbam .3751 .3752 .3786 .3752
ohsumed softmatch .0723 .0723 .0723 .0723
ohsumed flatmatch .0723 .0723 .0723 .0723
ohsumed drml .078 .073 .075 .072
ohsumed cap .076 .099 .090 .106
ohsumed bbam .0701 .0705 .0433 .0706
aapd softmatch .0448 .0448 .0448 .0448
aapd flatmatch .0448 .0448 .0448 .0448
aapd drml .047 .049 .044 .046
aapd cap .051 .058 .064 .075
aapd bbam .0445 .0443 .0443 .0443
"""
"""The table of the specification's section 6."""


def test_the_audit_reproduces_the_table_of_the_specification(
    audited: dict[tuple[str, str], AuditedRow],
) -> None:
    lines = [line.split() for line in SECTION_6.strip().splitlines()]
    assert {(dataset, method) for dataset, method, *_ in lines} == set(audited)
    for dataset, method, *numbers in lines:
        row = audited[dataset, method]
        assert [ratio.level for ratio in row.ratios] == ["0.05", "0.1", "0.15", "0.2"]
        for ratio, number in zip(row.ratios, numbers, strict=True):
            # half of its last digit, and that of the four digits it was rounded from (.0985 → .099)
            half = 0.5 * 10.0 ** -len(number.lstrip(".")) + 0.5e-4
            assert abs(ratio.value - float(number)) <= half, (dataset, method, ratio)


def test_only_four_rows_fit_the_oracle_rule(audited: dict[tuple[str, str], AuditedRow]) -> None:
    fitting = {key for key, row in audited.items() if row.top_k}
    assert fitting == {(d, m) for d in ("ohsumed", "aapd") for m in ("softmatch", "flatmatch")}
    assert {key for key, row in audited.items() if row.constant} == fitting
    assert audited["ohsumed", "cap"].inferred
    assert not audited["coco2014", "cap"].inferred


def test_predicted_densities_on_coco_are_those_of_the_specification(
    audited: dict[tuple[str, str], AuditedRow],
) -> None:
    def shares(method: str) -> list[float]:
        row = audited["coco2014", method]
        return [share for ratio in row.ratios if (share := row.predicted_share(ratio)) is not None]

    assert all(share == pytest.approx(1, abs=0.03) for share in shares("bbam"))
    assert (round(shares("softmatch")[0], 1), round(shares("softmatch")[-1], 1)) == (0.5, 0.7)
    assert (min(shares("cap")), max(shares("cap"))) == pytest.approx((2.2, 2.6), abs=0.05)


def test_rounding_is_an_interval_around_the_ratio() -> None:
    def printed(metric: str, digits: str) -> PublishedValue:
        paper = Paper("p", "P", "", {}, {}, {})
        return PublishedValue(
            paper, ("T",), "d", "D", "semi", "0.1", "M", None, metric, digits, "fraction", None
        )

    ratio = ratio_of(printed("micro_f1", "0.50"), printed("hamming", "0.10"))
    assert ratio.value == pytest.approx(0.1)
    # 0.095 / (2 · 0.505) and 0.105 / (2 · 0.495)
    assert ratio.interval.low == pytest.approx(0.095 / 1.01)
    assert ratio.interval.high == pytest.approx(0.105 / 0.99)


def test_the_probable_misprints_are_those_of_the_specification(
    entries: list[PublishedValue], audited: dict[tuple[str, str], AuditedRow]
) -> None:
    found = {
        (m.value.dataset, m.value.method, m.value.metric): m.reason
        for m in find_misprints(entries, list(audited.values()))
    }
    assert found.keys() == {
        ("ohsumed", "bbam", "hamming"),
        ("awa2", "softmatch", "one_loss"),
        ("aapd", "softmatch", "one_loss"),
        ("aapd", "flatmatch", "one_loss"),
    }
    assert "0.0243" in found["ohsumed", "bbam", "hamming"]
    assert "value of voc2012 at the same π" in found["ohsumed", "bbam", "hamming"]
    assert "0.08876" in found["awa2", "softmatch", "one_loss"]


def test_the_audit_comes_in_every_format_and_states_its_identity(
    entries: list[PublishedValue],
) -> None:
    rows = audit_rules(entries)
    differing = find_disagreements(entries)
    page = audit_document(rows, find_misprints(entries, rows), differing)
    for style in ("markdown", "latex", "json"):
        text = TEXT_FORMATS[style](page)
        assert "predicted density + true density" in text
    table = list(csv.DictReader(io.StringIO(TEXT_FORMATS["csv"](page))))
    kinds = Counter(row["kind"] for row in table)
    assert kinds.pop("disagreement") == sum(len(row.values) for row in differing)
    assert kinds == {"ratio": 28 * 4, "misprint": 4}


def test_the_command_audits_one_data_set_with_the_density_of_all(ssmlbench: Call) -> None:
    made = ssmlbench("compare", "--audit", "--dataset", "ohsumed", "--method", "bbam")
    assert made.returncode == 0, made.stderr
    assert "True density 0.0723" in made.stdout
    assert "probable copying error" in made.stdout
    assert "softmatch" not in made.stdout
    none = ssmlbench("compare", "--audit", "--dataset", "multidigits")
    assert none.returncode == 2
    assert "no published row" in none.stderr


def test_the_audit_finds_what_two_sources_print_differently(entries: list[PublishedValue]) -> None:
    found = {
        (
            row.first.dataset,
            row.first.regime,
            row.first.level,
            row.first.method,
            row.first.metric,
        ): [(value.digits, value.paper.key) for value in row.values]
        for row in find_disagreements(entries)
    }
    boost, vlpl = "boostlu-cvpr2023", "vlpl-readme"
    expected = {
        "voc2012": [("88.27", boost), ("89.2", vlpl)],
        "coco2014": [("70.7", boost), ("71.0", vlpl)],
        "nuswide": [("47.4", vlpl), ("48.76", boost)],
        "cub": [("19.5", vlpl), ("19.56", boost)],  # 19.5 is at most 19.55
    }
    for dataset, values in expected.items():
        assert found[dataset, "single-positive", "", "llr", "map"] == values
    # BCE with one positive and every negative stands in a regime of its own: no disagreement
    assert ("voc2012", "single-positive-negatives", "", "bce", "map") not in found
    # "mime" is printed for other regimes by two papers: other rows
    assert not [key for key in found if key[3] == "mime"]


def test_numbers_that_differ_by_rounding_only_do_not_disagree() -> None:
    def printed(key: str, digits: str, std: float | None = None) -> PublishedValue:
        paper = Paper(key, key, "", {}, {}, {})
        row = ("d", "D", "full", "", "M", None, "map", digits, "percent", std)
        return PublishedValue(paper, ("T",), *row)

    assert find_disagreements([printed("a", "70.7"), printed("b", "70.70")]) == []
    assert find_disagreements([printed("a", "70.7"), printed("b", "70.74")]) == []
    (row,) = find_disagreements([printed("a", "70.7"), printed("b", "70.76")])
    assert row.spread == pytest.approx(0.0006)
    assert not row.within_deviations
    (row,) = find_disagreements([printed("a", "70.0", 0.003), printed("b", "70.5", 0.003)])
    assert row.within_deviations


def test_the_command_shows_sources_that_differ_where_there_is_no_ratio(ssmlbench: Call) -> None:
    made = ssmlbench("compare", "--audit", "--dataset", "cub", "--method", "llr")
    assert made.returncode == 0, made.stderr
    assert "19.5 (VLPL); 19.56 (BoostLU)" in made.stdout


def test_every_metric_of_the_papers_is_one_of_ours(entries: list[PublishedValue]) -> None:
    assert {entry.metric for entry in entries} == set(METRICS)
