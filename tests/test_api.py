"""The public names: typed as they are loaded, lazy, and the verbs as Python functions."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmlbench
from ssmlbench import api
from ssmlbench.core.checksums import with_checksum
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.plugins.loader import load_file
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.run_result import RunResult
from tests.conftest import ROOT
from tests.support.board_runs import grid

# The names -------------------------------------------------------------------------------------------


def type_checking_imports(file: Path) -> dict[str, tuple[str, ...]]:
    """Module → names, of the imports that only type checkers read; each as `name as name`."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                assert all(each.asname == each.name for each in line.names), ast.unparse(line)
                found[line.module or ""] = tuple(each.name for each in line.names)
    return found


def test_what_type_checkers_read_is_what_is_loaded() -> None:
    assert type_checking_imports(ROOT / "ssmlbench" / "api.py") == api.HOMES


@pytest.mark.parametrize("name", api.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(api, name)
    assert getattr(ssmlbench, name) is value
    assert name in dir(ssmlbench)
    if callable(value):
        assert value.__doc__, name
        assert not value.__doc__.startswith(f"{name}("), f"{name} has no docstring of its own"


def test_the_names_of_a_notebook_are_typed_on_the_package_too() -> None:
    (names,) = type_checking_imports(ROOT / "ssmlbench" / "__init__.py").values()
    functions = {"compare", "datasets", "methods", "run"}
    assert functions <= set(names) <= set(api.__all__)
    assert (ROOT / "ssmlbench" / "py.typed").is_file()


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    for module in (ssmlbench, api):
        with pytest.raises(AttributeError, match="bbam"):
            _ = module.bbam


def test_nothing_imports_torch_until_something_runs(tmp_path: Path) -> None:
    grid(tmp_path, {"bce": [0.5, 0.7]})
    code = f"""
import sys
import ssmlbench, ssmlbench.api
boards = ssmlbench.compare({str(tmp_path)!r})
assert "bce" in repr(boards) and "bce" in boards._repr_html_() and "bce" in boards.to_latex()
assert len(boards.to_pandas()) == 5
assert "multidigits" in ssmlbench.datasets()
assert callable(ssmlbench.run)
from ssmlbench.api import DatasetAdapter, RunResult, UserError, between
heavy = {{"torch", "torchvision", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# run -------------------------------------------------------------------------------------------------

METHOD = """
from ssmlbench.api import Method, bce

class Mine(Method):
    name = "mine"
    unlabelled_views = ()
    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty rows of two features and two labels: a run takes a fraction of a second."""
    random = np.random.default_rng(0)
    header = "@attribute x numeric\n@attribute y numeric\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n"
    for split in ("train", "test"):
        points = random.normal(size=(40, 2))
        rows = [f"{x:.3f},{y:.3f},{int(x > 0)},{int(y > 0)}" for x, y in points]
        (tmp_path / f"toy-{split}.arff").write_text(header + "\n".join(rows))
    (tmp_path / "toy.xml").write_text('<labels><label name="a"/><label name="b"/></labels>')
    return tmp_path / "toy.arff"


def test_one_run_is_a_result_with_metrics_scores_and_history(data: Path, tmp_path: Path) -> None:
    results = tmp_path / "out"
    result = ssmlbench.run("bce", data, pi=0.5, epochs=2, results=results)
    assert isinstance(result, ssmlbench.RunResult)
    assert (result.spec.method, result.spec.epochs, result.spec.pi) == ("bce", 2, 0.5)
    assert result.folder.is_relative_to(results)
    assert result.scores.scores.shape == result.scores.truth.shape == (40, 2)
    assert result.history["epoch"].tolist() == [1, 2]
    assert result.metrics("top-k")["map"] == result.metrics()["map"]
    assert 0.0 <= result.metrics()["micro_f1"] <= 1.0
    assert result.cost["seconds"] > 0
    assert f"map {result.metrics()['map']:.4f}" in repr(result)
    assert "bce toy semi-0.5 seed 0" in result._repr_html_()
    with pytest.raises(UserError, match="Did you mean calibrated"):
        result.metrics("calibrate")
    finished = (result.folder / "result.json").stat().st_mtime_ns
    again = ssmlbench.run("bce", str(data), pi="0.5", epochs="2", results=str(results))
    assert again.folder == result.folder
    assert (result.folder / "result.json").stat().st_mtime_ns == finished  # never made twice


def test_metrics_that_a_result_lacks_are_computed_from_its_scores(
    data: Path, tmp_path: Path
) -> None:
    made = ssmlbench.run("bce", data, pi=0.5, epochs=1, results=tmp_path / "out")
    expected = made.metrics("top-k", "released")
    file = made.folder / "result.json"
    result = json.loads(file.read_text())
    del result["metrics"]["top-k"]  # as a version without this rule would have written it
    file.write_text(json.dumps(with_checksum(result)))
    again = ssmlbench.run("bce", data, pi=0.5, epochs=1, results=tmp_path / "out")
    assert again.metrics("top-k", "released") == pytest.approx(expected)
    (made.folder / "scores.safetensors").unlink()  # `run` would make the run again
    kept = RunResult(read_finished([tmp_path / "out"])[0][0])
    assert kept.metrics("top-k", "released") == again.metrics("top-k", "released")
    (made.folder / "computed.json").unlink()
    lost = RunResult(read_finished([tmp_path / "out"])[0][0])
    with pytest.raises(UserError, match=r"no scores\.safetensors to compute it from"):
        lost.metrics("top-k")


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ({"method": "bce", "seeds": 2}, [("bce", 0.5, 0), ("bce", 0.5, 1)]),
        ({"method": ["bce", "cap"]}, [("bce", 0.5, 0), ("cap", 0.5, 0)]),
        ({"method": "bce,cap"}, [("bce", 0.5, 0), ("cap", 0.5, 0)]),
        ({"method": ("bce",)}, [("bce", 0.5, 0)]),
        ({"method": "bce", "pi": np.array([0.25, 0.5])}, [("bce", 0.25, 0), ("bce", 0.5, 0)]),
        ({"method": "bce", "seed": [3]}, [("bce", 0.5, 3)]),
        ({"grid": "grid.toml"}, [("cap", 0.5, 0)]),
    ],
)
def test_a_list_is_a_grid(
    arguments: dict[str, object],
    runs: list[tuple[str, float, int]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text('methods = ["cap"]\n')
    arguments = {"pi": 0.5, **arguments}
    made = ssmlbench.run(dataset=data, epochs=1, **arguments)  # type: ignore[arg-type]
    assert isinstance(made, ssmlbench.RunResults)
    assert [(run.spec.method, run.spec.pi, run.spec.seed) for run in made] == runs
    assert (tmp_path / "results").is_dir()
    frame = made.to_pandas()
    assert frame["map"].tolist() == [run.metrics()["map"] for run in made]
    assert made._repr_html_().count("<tr") == len(made) + 1


def test_hyper_parameters_and_options_are_given_as_values(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    made = ssmlbench.run(
        ["cap", "mine"],
        data,
        pi=0.5,
        settings={"cap.positive_share": 0.75, "cap.loss": "bce"},
        plugin=tmp_path / "mine.py",
        results=tmp_path / "out",
        epochs=1,
        scaling="none",
        lr=0.01,
        freeze=False,
    )
    assert made[0].spec.changed == ("loss", "positive_share")
    assert made[0].spec.config["positive_share"] == 0.75
    assert (made[1].spec.method, made[1].spec.scaling, made[1].spec.lr) == ("mine", "none", 0.01)


def test_a_class_of_a_module_is_a_method_and_one_without_source_is_refused(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    mine = load_file(tmp_path / "mine.py").Mine
    arguments = {"pi": 0.5, "epochs": 1, "results": tmp_path / "out"}
    assert ssmlbench.run(mine, data, **arguments).spec.method == "mine"
    assert len(ssmlbench.run([mine, "bce"], data, **arguments)) == 2
    with pytest.raises(UserError, match="worker processes do not have the class Mine"):
        ssmlbench.run([mine, "bce"], data, jobs=2, **arguments)
    typed: dict[str, object] = {"__name__": "notebook"}
    exec(METHOD, typed)  # as a notebook's cell does: there is no file
    with pytest.raises(UserError, match=r"Mine: its source is not available.*plugin=FILE"):
        ssmlbench.run(typed["Mine"], data, **arguments)  # type: ignore[call-overload]


def test_a_run_leaves_torch_as_it_was(data: Path, tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(False)  # earlier tests may have left it on
    torch.set_num_threads(2)
    torch.manual_seed(7)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(7))
    try:
        ssmlbench.run("bce", data, pi=0.5, epochs=1, results=tmp_path / "out")
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.equal(torch.rand(3), expected)
    finally:
        torch.set_num_threads(1)


def test_a_run_that_fails_raises_and_stops_no_other(data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(METHOD.replace("return {", "1 / 0; return {"))
    arguments = {"pi": 0.5, "epochs": 1, "plugin": tmp_path / "bad.py", "results": tmp_path / "out"}
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        ssmlbench.run("mine", data, **arguments)
    with pytest.warns(UserWarning, match="failed: mine toy"):
        made = ssmlbench.run(["mine", "bce"], data, **arguments)
    assert [run.spec.method for run in made] == ["bce"]
    assert [spec.method for spec, _ in made.failed] == ["mine"]
    assert "failed: " in repr(made)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"method": "bbma"}, "Did you mean bbam"),
        ({"method": None}, "--method is missing"),
        ({"pi": None}, "--pi is missing"),
        ({"pi": 2}, "(0, 1]"),
        ({"pi": "few"}, "pi='few': must be a number"),
        ({"epoch": "labeled"}, "Did you mean labelled"),
        ({"epochs": 1.5}, "epochs=1.5: must be a whole number"),
        ({"epoch": 1}, "for a number type --epochs 1"),
        ({"epochs": [1, 2]}, "epochs=[1, 2]: must be a whole number"),
        ({"freeze": "perhaps"}, "freeze='perhaps': must be True or False"),
        ({"epoch_s": 1}, "run() has no argument 'epoch_s'. Did you mean epoch"),
        ({"settings": {"los": 1}}, "has no hyper-parameter 'los'"),
        ({"jobs": 0}, "--jobs 0"),
        ({"device": "tpu"}, "tpu"),
        ({"seeds": 0}, "--seeds 0"),
        ({"dataset": "./nowhere"}, "no such file or folder"),
    ],
)
def test_a_mistake_in_a_request_is_a_user_error(
    arguments: dict[str, object], answer: str, data: Path, tmp_path: Path
) -> None:
    usual = {"method": "bce", "dataset": data, "pi": 0.5, "results": tmp_path / "out"}
    with pytest.raises(UserError) as error:
        ssmlbench.run(**{**usual, **arguments})  # type: ignore[call-overload]
    assert answer in str(error.value)
    assert not (tmp_path / "out").exists()


# compare ---------------------------------------------------------------------------------------------


def test_boards_come_from_python_as_from_the_command_line(tmp_path: Path) -> None:
    grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]})
    boards = ssmlbench.compare(tmp_path, metric="map", decision="threshold")
    assert len(boards) == 1
    assert [row.name for row in boards[0].rows] == ["cap", "bce"]
    frame = boards.to_pandas().set_index("method")
    assert frame.loc["bce", "mean"] == pytest.approx(0.6)
    assert "0.8500" in boards.to_markdown()
    assert repr(boards) == boards.to_markdown()
    assert boards._repr_html_() == boards.to_html()
    assert isinstance(boards[:1], ssmlbench.Boards)


@pytest.mark.parametrize(
    ("arguments", "methods"),
    [
        ({"method": "bce,cap"}, {"bce", "cap"}),
        ({"method": ["bce", "cap"]}, {"bce", "cap"}),
        ({"method": ("cap",)}, {"cap"}),
        ({"pi": 0.1}, {"bce", "cap"}),
        ({"pi": "0.1"}, {"bce", "cap"}),
        ({"pi": [0.1, 1]}, {"bce", "cap", "mime"}),
        ({"regime": "partial-positive", "share": 0.5}, {"role"}),
        ({"regime": {"full": 1}.keys()}, {"asl"}),
    ],
)
def test_runs_are_chosen_by_a_value_a_list_or_the_command_lines_text(
    arguments: dict[str, object], methods: set[str], tmp_path: Path
) -> None:
    grid(tmp_path, {"bce": [0.5], "cap": [0.8]}, pi=0.1)
    grid(tmp_path, {"mime": [0.5]}, pi=1.0)
    grid(tmp_path, {"role": [0.5]}, regime="partial-positive", pi=None, share=0.5)
    grid(tmp_path, {"asl": [0.5]}, regime="full", pi=None)
    arguments = {"regime": "semi", **arguments}
    boards = ssmlbench.compare(tmp_path, **arguments)  # type: ignore[arg-type]
    assert {row.name for board in boards for row in board.rows} == methods


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"metric": "mapp"}, "Did you mean map"),
        ({"metrics": "map"}, "compare() has no argument 'metrics'. Did you mean metric?"),
        ({"decision": "lucky"}, "calibrated"),
        ({"convention": "relesed"}, "Did you mean released"),
        ({"method": "cap"}, "--method cap: none of the 1 finished runs fits. There is: "),
        ({"regime": "semy"}, "--regime semy: no such choice. Did you mean semi"),
        (
            {"selection": "best"},
            "--selection best: no such choice. Did you mean last? There is: last, ",
        ),
        ({"pi": "few"}, "pi='few': must be a number"),
        ({"pi": True}, "pi=True: must be a number"),
        ({"method": 3}, "method=3: must be a text"),
        ({"method": []}, "method is empty"),
        ({"shares": 0.5}, "Did you mean share"),
        ({"results": "nowhere"}, "no results folder"),
    ],
)
def test_a_mistake_is_a_user_error_with_the_answer(
    arguments: dict[str, object], answer: str, tmp_path: Path
) -> None:
    grid(tmp_path, {"bce": [0.5]})
    with pytest.raises(UserError) as error:
        ssmlbench.compare(**{"results": tmp_path, **arguments})  # type: ignore[arg-type]
    assert answer in str(error.value)


def test_a_result_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    grid(tmp_path, {"bce": [0.5], "cap": [0.5]})
    next(tmp_path.rglob("cap/*/result.json")).write_text("{")
    with pytest.warns(UserWarning, match=r"cap.*result\.json"):
        boards = ssmlbench.compare([tmp_path])
    assert [row.name for row in boards[0].rows] == ["bce"]


# methods and datasets --------------------------------------------------------------------------------


def test_methods_are_a_typed_table() -> None:
    methods = ssmlbench.methods()
    bbam = methods["bbam"]
    assert "NeurIPS 2024" in bbam.paper
    assert bbam.regimes == ("semi",)
    parameter = next(p for p in bbam.hyperparameters if p.name == "negatives_per_positive")
    assert (parameter.default, parameter.kind) == ("5", "float | none")
    assert "bbam" in repr(methods)
    assert methods.to_pandas().loc["bbam", "regimes"] == "semi"
    assert methods._repr_html_().count("<tr>") == len(methods) + 1
    with pytest.raises(UserError, match="Did you mean bbam"):
        methods["bbma"]


def test_data_sets_are_a_typed_table_with_the_users_own(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("text,labels\nx,<b>\n")
    datasets = ssmlbench.datasets(plugin=tmp_path)
    assert datasets["multidigits"].kind == "image"
    assert datasets[tmp_path.name].file == tmp_path
    assert "&" in ssmlbench.datasets()._repr_html_()  # escaped


# docs/python.md --------------------------------------------------------------------------------------


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 4
    scope: dict[str, object] = {}
    for example in examples:
        exec(example, scope)
    assert [run.spec.method for run in scope["results"]] == ["bce", "cap"]  # type: ignore[attr-defined]
    assert "bce" in repr(scope["boards"])
