"""Commands that messages suggest: each works when it is typed, with own data and plugins too."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.commands import Sources, command, near_address, suggested
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.request import GridRequest
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.finished import read_finished
from tests.support.analysed_runs import write_run

PLUGIN = '''
from ssmlbench.api import Estimator


class Mean(Estimator):
    """The mean of the labelled rows."""

    name = "mean"

    def fit(self, labelled, unlabelled):
        self.prior = labelled.prior

    def scores(self, features):
        return self.prior + 0 * features[:, :1]
'''

ADDRESS = "my toy?vector_column=x%2Cy&label_column=tags"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with own data, whose columns must be named, and a plugin; it is the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    random = np.random.default_rng(0)
    (tmp_path / "my toy").mkdir()
    for split, count in (("train", 40), ("test", 20)):
        lines = [f"{x:.3f},{y:.3f},{'a|b' if x > y else 'b'}" for x, y in random.random((count, 2))]
        (tmp_path / "my toy" / f"{split}.csv").write_text("\n".join(["x,y,tags", *lines]) + "\n")
    (tmp_path / "mean.py").write_text(PLUGIN)
    return tmp_path


def typed(text: str, *more: str) -> tuple[int, str]:
    """What a command of a message answers."""
    words = shlex.split(text)
    assert words[0] == "ssmlbench"
    answer = CliRunner().invoke(app, [*words[1:], *more])
    return answer.exit_code, answer.output


def refused(*words: str) -> str:
    """The command that the one line of an error has between backquotes."""
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UserError)
    found = re.findall(r"`(ssmlbench [^`]*)`", str(error))
    assert len(found) == 1, error
    assert "\n" not in str(error)
    return str(found[0])


def run_of(here: Path, method: str, *options: str, **changes: Any) -> Path:
    """A finished run of own data by a plugin, made with options, in a results folder of its own."""
    plugins = Plugins([here / "mean.py"])
    name = plugins.data_set(ADDRESS)
    folder = write_run(here / "my results", 0.5, method=method, dataset=name, **changes)
    result = json.loads((folder / "result.json").read_text())
    result["sources"] = plugins.sources(name, options).as_dict()
    (folder / "result.json").write_text(json.dumps(result))
    return folder


ANALYSES = {
    "vdfd": "bbam,cap",
    "pseudo-labels": "cap,bbam",
    "correlation": "hml",
    "budget": "mean",
    "labels": "mean",
    "scores": "mean",
    "gallery": "mean",
    "pair mean cap": "mean,cap",
    "landscape": "bce,cap",
}


@pytest.mark.parametrize("analysis", ANALYSES)
def test_commands_of_analyses_make_what_is_missing(here: Path, analysis: str) -> None:
    run_of(here, "mean", "--epochs", "7").joinpath("scores.safetensors").unlink()
    if analysis.startswith("pair"):
        run_of(here, "cap", "--epochs", "7")
    text = refused("analyse", *analysis.split(), "--results", "my results")
    words = shlex.split(text)
    assert words[words.index("--method") + 1] == ANALYSES[analysis]
    assert "--epochs" in words
    assert "mean.py" in words
    # A finished run is not repeated, so what it lacks is made in another folder.
    again = analysis in ("labels", "scores", "gallery") or analysis.startswith("pair")
    assert words[words.index("--results") + 1] == "my results" + ("-again" if again else "")
    code, said = typed(text, "--dry-run")
    assert code == 0, said
    runs = 3 if analysis == "budget" else len(ANALYSES[analysis].split(","))
    assert f"{runs} to make" in said or f"{runs} runs" in said, said


def test_a_command_of_tune_has_the_options_of_the_run(here: Path) -> None:
    del here
    options = ["--method", "bce", "--pi", "0.5", "--epochs", "3", "--plugin", "mean.py"]
    own = ["--dataset", "my toy", "--label-column", "tags", "--vector-column", "x,y"]
    text = refused("run", "--tuned", *options, *own, "--results", "other")
    assert {"tune", "--epochs", "mean.py", "other"} <= set(shlex.split(text))
    code, said = typed(text, "--dry-run")
    assert code == 0, said


@pytest.mark.slow
def test_a_result_tells_what_its_command_needs(here: Path) -> None:
    own = ["--dataset", "my toy", "--label-column", "tags", "--vector-column", "x,y"]
    more = ["--pi", "0.5", "--plugin", "mean.py", "--scaling", "none", "--jobs", "1"]
    answer = CliRunner().invoke(app, ["run", "--method", "mean", *own, *more])
    assert answer.exit_code == 0, answer.output
    runs, _ = read_finished([here / "results"])
    sources = Sources.of_result(runs[0].result)
    assert sources.plugins == (str(here / "mean.py"),)
    assert sources.options == ("--scaling", "none")
    code, said = typed(command("run", runs[0].spec, sources, "--method", "mean"))
    assert code == 0
    assert "already done" in said


def test_a_planned_run_knows_what_its_command_needs(here: Path) -> None:
    plugins = Plugins([here / "mean.py"])
    name = plugins.data_set(ADDRESS)
    dispatch = Dispatch(RunContext(here / "results")).typed(["--epochs", "3"])
    plan = dispatch.plan(
        [RunSpec("mean", name, pi=0.5, backbone="vector"), RunSpec("bce", "multidigits", pi=0.5)],
        plugins,
    )
    own = Sources(str(here / ADDRESS), (str(here / "mean.py"),), ("--epochs", "3"))
    assert plan.context.sources == {name: own, "multidigits": replace(own, dataset="")}
    assert Sources.of_result(json.loads(json.dumps({"sources": own.as_dict()}))) == own


def test_words_of_a_command_are_quoted_and_near(here: Path) -> None:
    results = here / "a b"
    text = suggested("compare", plugins=[str(here / "mean.py")], results=results)
    assert text == "ssmlbench compare --plugin mean.py --results 'a b'"
    assert suggested("compare", results=here / "results") == "ssmlbench compare"
    assert near_address(str(here / "toy")) == "./toy"
    assert near_address("hf:owner/name@abc") == "hf:owner/name@abc"
    assert near_address(f"{here / 'toy'}?holdout=0.2") == "./toy?holdout=0.2"
    spec = RunSpec("cap", "toy", regime="given")
    assert command("run", spec, Sources()) == "ssmlbench run --dataset toy --regime given"
    old = Sources.of_result({"sources": "damaged"})
    assert old == Sources()


def test_options_are_written_as_they_are_typed(here: Path) -> None:
    del here
    request = GridRequest(
        {"epochs": 5, "lr": 0.01, "freeze": True, "normalise": False, "pi": (0.1,)}
    )
    words = ("--epochs", "5", "--lr", "0.01", "--freeze", "--no-normalise")
    assert request.words == words
