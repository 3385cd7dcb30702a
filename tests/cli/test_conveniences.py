"""What people type: `--seed 0-4`, `--method all`, lists that fit a terminal, completion, `runs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.cli.completion import complete_dataset, complete_method
from ssmlbench.cli.options import typed_list
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.plugins import catalogue
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.folder import RunFolder
from tests.support.board_runs import grid


@pytest.mark.parametrize(
    ("typed", "seeds"),
    [("3", (3,)), ("0-4", (0, 1, 2, 3, 4)), ("0-1,7", (0, 1, 7)), (" 2 - 3 ", (2, 3))],
)
def test_seeds_as_people_type_them(typed: str, seeds: tuple[int, ...]) -> None:
    assert typed_list(typed, int, "--seed") == seeds


@pytest.mark.parametrize("typed", ["4-0", "a-b", "1-", ","])
def test_seeds_that_are_none(typed: str) -> None:
    with pytest.raises(UserError):
        typed_list(typed, int, "--seed")


def test_a_number_with_a_minus_is_no_range() -> None:
    assert typed_list("1e-3,0.1", float, "--lr") == (0.001, 0.1)


def test_all_methods_are_those_that_can_do_it(tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        app,
        [
            "run",
            "--method",
            "all",
            "--dataset",
            "multidigits",
            "--pi",
            "0.1",
            "--dry-run",
            "--results",
            str(tmp_path / "results"),
        ],
        env={"COLUMNS": "200"},
    )
    assert answer.exit_code == 0, answer.output
    methods = Plugins().methods
    for name in methods:
        can = "semi" in methods[name].regimes and not hasattr(methods[name], "fit")
        assert (f" {name} " in answer.output) == can, name
        assert (f" {name}" in left_out(answer.output)) != can, name


def left_out(output: str) -> set[str]:
    """The methods, each with a space in front of it, that the line on `--method all` names."""
    line = next(line for line in output.splitlines() if "--method all leaves out" in line)
    return set(line.partition(":")[2].partition(":")[2].partition(";")[0].split(","))


def test_a_method_that_can_do_one_regime_of_two_is_left_out_in_part(tmp_path: Path) -> None:
    typed = ["run", "--method", "all", "--dataset", "multidigits", "--pi", "0.1", "--dry-run"]
    typed += ["--regime", "semi,single-positive", "--results", str(tmp_path / "results")]
    named = left_out(CliRunner().invoke(app, typed, env={"COLUMNS": "200"}).output)
    assert " cap (in part)" in named
    assert " knn" in named
    assert not {" an", " an (in part)"} & named


def test_the_methods_that_an_error_lists_begin_with_all(tmp_path: Path) -> None:
    typed = ["run", "--method", "zzz", "--dataset", "multidigits", "--pi", "0.1"]
    answer = CliRunner().invoke(app, [*typed, "--results", str(tmp_path / "results")])
    assert "There is: all, " in str(answer.exception or answer.output)


@pytest.mark.parametrize("verb", ["methods", "datasets"])
def test_lists_fit_eighty_columns(verb: str) -> None:
    answer = CliRunner().invoke(app, [verb], env={"COLUMNS": "80"})
    plugins = Plugins()
    names = list(plugins.methods if verb == "methods" else plugins.datasets)
    lines = answer.output.splitlines()
    assert [line.split(" ")[0] for line in lines[1:]] == names  # one line each
    assert max(map(len, lines)) <= 80
    long = CliRunner().invoke(app, [verb, "--long"], env={"COLUMNS": "80"}).output
    assert len(long) > 2 * len(answer.output)
    assert max(map(len, long.splitlines())) <= 80
    titles = [row["title"] for row in getattr(catalogue, verb)().rows()]
    said = " ".join(long.split())  # no word is torn, as it was in columns of eight characters
    assert [title for title in titles if " ".join(title.split()) not in said] == []


def test_the_page_of_a_method_fits_eighty_columns_and_cuts_nothing() -> None:
    for name, method in catalogue.methods().items():
        page = CliRunner().invoke(app, ["methods", name], env={"COLUMNS": "80"}).output
        said = " ".join(page.split())
        for each in method.hyperparameters:
            assert f"{each.name}={each.default}" in said
            assert " ".join(each.meaning.split()) in said
        assert [d for d in method.differences if " ".join(d.split()) not in said] == []
        assert max(map(len, page.splitlines())) <= 80


def test_the_shell_completes_names() -> None:
    assert "bbam" in complete_method("bb")
    assert complete_method("bce,bb") == ["bce,bbam"]
    assert complete_dataset("multid") == ["multidigits"]
    assert set(complete_method("")) == set(Plugins().methods)
    assert set(complete_dataset("")) == set(Plugins().datasets)


def test_completion_is_offered() -> None:
    answer = CliRunner().invoke(
        app,
        [],
        prog_name="ssmlbench",
        env={
            "_SSMLBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": "ssmlbench run --method bba",
            "COMP_CWORD": "3",
        },
    )
    assert answer.output.split() == ["bbam"]


# ------------------------------------------------------------------------------------------ runs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    grid(tmp_path / "results", {"bce": [0.5, 0.6], "cap": [0.7, 0.8]})
    return tmp_path / "results"


def runs(*typed: object) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["runs", *map(str, typed)], env={"COLUMNS": "100"})
    error = f"error: {answer.exception}" if isinstance(answer.exception, UserError) else ""
    return answer.exit_code, answer.output + error


def ids(results: Path) -> list[str]:
    return [line.split()[0] for line in runs("list", "--results", results)[1].splitlines()[1:-1]]


def test_runs_are_listed_and_chosen(results: Path) -> None:
    assert len(ids(results)) == 4
    code, shown = runs("list", "--results", results, "--method", "cap")
    assert code == 0
    assert "cap" in shown
    assert "bce" not in shown


def test_any_folder_name_is_listed_as_it_is(results: Path) -> None:
    for method in ("[bold]", "[/red]", "\x1b[31m", "標籤"):
        folder = results / "[b]" / "semi" / method.replace("/", "") / "0-ab"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text("{}")
    (results / "[" / "b]" / "semi" / "0-ab").mkdir(parents=True)  # a folder below: "[/b]"
    (results / "[" / "b]" / "semi" / "0-ab" / "result.json").write_text("{}")
    code, shown = runs("list", "--results", results)
    assert code == 0
    assert "[bold]" in shown
    assert "\x1b" not in shown
    assert shown.splitlines()[-1] == "9 runs"


def test_a_run_is_shown_in_one_way(results: Path) -> None:
    first = ids(results)[0]
    code, shown = runs("show", first, "--results", results, "--long")
    assert code == 0
    assert "method" in shown  # an option of the run
    assert "decision" in shown
    assert "calibrated" in shown
    assert "no results per label" in shown
    again = CliRunner().invoke(
        app, ["show", first, "--results", str(results), "--long"], env={"COLUMNS": "100"}
    )
    assert again.output == shown
    # the folder names the run too, here and where runs are deleted
    folder = next(file.parent for file in results.rglob("result.json") if first in file.parent.name)
    assert runs("show", folder, "--long")[1] == shown
    assert "deleted 1 run" in runs("delete", folder, "--yes", "--results", results)[1]


def test_a_run_that_is_not_finished_is_shown_with_its_state(results: Path) -> None:
    spec = RunSpec(method="bce", dataset="toy", pi=0.1, seed=9)
    RunFolder.of(results, spec).record_failure(spec, "mine.py:3: loss returned nothing")
    code, shown = runs("show", spec.hash[:7], "--results", results)
    assert code == 0
    assert "state: failed: mine.py:3: loss returned nothing" in shown


def test_ids_that_begin_alike_are_asked_for_again(results: Path) -> None:
    from ssmlbench.runs.choose import named_run

    with pytest.raises(UserError, match="2 runs have ids that start with it; type more of the id"):
        named_run("ab", [("abc", Path("x")), ("abd", Path("y"))], [results])


def test_runs_are_deleted_only_when_said(results: Path) -> None:
    first, *others = ids(results)
    assert "delete 1 run?" in runs("delete", first, "--results", results)[1]
    shown = runs("delete", first, "--results", results)[1]
    assert "error: there was no answer, so nothing is deleted; add --yes" in shown
    assert len(ids(results)) == 4
    assert "deleted 1 run" in runs("delete", first, "--yes", "--results", results)[1]
    assert ids(results) == others


def test_ctrl_c_is_no_answer(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(question: str) -> bool:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None

    monkeypatch.setattr(typer, "confirm", interrupted)
    assert runs("delete", ids(results)[0], "--results", results)[0] == 130
    assert len(ids(results)) == 4


def test_failed_runs_are_deleted_together(results: Path) -> None:
    spec = RunSpec(method="bce", dataset="toy", pi=0.1, seed=9)
    RunFolder.of(results, spec).record_failure(spec, "mine.py:3: loss returned nothing")
    assert "deleted 1 run" in runs("delete", "--failed", "--yes", "--results", results)[1]
    assert len(ids(results)) == 4


@pytest.mark.parametrize("typed", ["zzzz", " "])
def test_an_id_that_is_none(results: Path, typed: str) -> None:
    said = runs("show", typed, "--results", results)[1]
    assert f"`ssmlbench runs list --results {results}` shows the ids" in said


def test_stored_scores_are_evaluated_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from ssmlbench.protocol.metrics import evaluate_rules
    from ssmlbench.runs.scores import StoredScores

    random = np.random.default_rng(0)
    scores, truth = random.random((12, 3)).astype(np.float32), random.random((12, 3)) < 0.5
    for file in results.rglob("result.json"):
        StoredScores(scores, truth).write(file.parent / "scores.safetensors")
        result = json.loads(file.read_text())
        result["metrics"] = evaluate_rules(scores, truth, {})
        file.write_text(json.dumps(result))
    assert runs("evaluate", "--results", results) == (
        0,
        "4 runs evaluated again, 0 differ from what they stored\n",
    )
    result["metrics"]["threshold"]["default"]["map"] += 0.01
    file.write_text(json.dumps(result))
    code, shown = runs("evaluate", "--results", results)
    assert code == 2
    assert "differs: map (threshold, default)" in shown
