"""The public names: typed as they are loaded, lazy, and the verbs as Python functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ssmlbench
from ssmlbench import api
from ssmlbench.core.errors import UserError
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
    functions = {"compare", "datasets", "methods"}
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
from ssmlbench.api import DatasetAdapter, RunResult, UserError, between
heavy = {{"torch", "torchvision", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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
        ({"regime": {"full": 1}}, {"asl"}),
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
        ({"decision": "lucky"}, "calibrated"),
        ({"convention": "relesed"}, "Did you mean released"),
        ({"method": "cap"}, "none of the 1 finished runs fits"),
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
