"""Plugins: the built-in folders and a user's file go through one loader."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ssmlbench.boards.published import read_published
from ssmlbench.core.errors import UserError
from ssmlbench.plugins.digest import code_digest
from ssmlbench.plugins.loader import Plugins, load_file
from tests.conftest import ROOT

METHOD = '''
from ssmlbench.api import bce
from ssmlbench.api import Method

class Mine(Method):
    """Mine."""
    name = "mine"
    unlabelled_views = ()
    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_the_built_in_methods_and_data_sets_are_found(plugins: Plugins) -> None:
    assert {"bce", "cap", "bbam"} <= set(plugins.methods)
    assert "multidigits" in plugins.datasets


def test_every_method_file_holds_one_method_and_imports_no_other() -> None:
    for file in sorted((ROOT / "methods").glob("*.py")):
        module = load_file(file)
        own = [
            thing
            for thing in vars(module).values()
            if isinstance(thing, type)
            and thing.__module__ == module.__name__
            and "name" in vars(thing)
        ]
        assert len(own) == 1, file
        assert own[0].name == file.stem  # type: ignore[attr-defined]
        assert "import methods" not in file.read_text()
        assert "from methods" not in file.read_text()


def test_a_users_file_is_loaded_like_a_built_in_one(tmp_path: Path) -> None:
    plugins = Plugins([write(tmp_path, METHOD)])
    assert plugins.methods["mine"].name == "mine"


def test_an_unknown_name_is_answered_with_a_close_one(plugins: Plugins) -> None:
    with pytest.raises(UserError, match=r"Did you mean .*bbam"):
        plugins.methods["bbma"]


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two plugins call themselves method 'cap'"):
        Plugins([write(tmp_path, METHOD.replace('"mine"', '"cap"'))])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("import nothing_of_that_name", r"mine.py \(line 1\) does not import: ModuleNotFoundError"),
        ("x = 1\nclass (", r"line 2\) does not import: SyntaxError"),
        ("x = 1", "no plugin in it"),
        (METHOD.replace('    name = "mine"\n', ""), "class Mine has no `name`"),
    ],
)
def test_a_file_that_is_no_plugin_says_why(tmp_path: Path, text: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        Plugins([write(tmp_path, text)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Plugins([tmp_path / "none.py"])


def test_an_edited_method_is_another_method_but_a_comment_is_none(tmp_path: Path) -> None:
    first = Plugins([write(tmp_path, METHOD, "a.py")]).methods["mine"]
    commented = Plugins([write(tmp_path, "# why\n\n" + METHOD, "b.py")]).methods["mine"]
    edited = Plugins([write(tmp_path, METHOD.replace(".mean()", ".sum()"), "c.py")]).methods["mine"]
    assert code_digest(first) == code_digest(commented)
    assert code_digest(first) != code_digest(edited)


def test_import_datasets_at_the_root_is_hugging_faces() -> None:
    code = "import datasets; print(datasets.Dataset.__module__)"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "datasets.arrow_dataset"


def test_a_wheel_installed_elsewhere_has_every_plugin_and_the_papers_tables(
    tmp_path: Path, plugins: Plugins
) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    code = (
        "import ssmlbench; from ssmlbench.plugins.loader import Plugins; p = Plugins();"
        "from ssmlbench.boards.published import read_published;"
        "print(ssmlbench.__file__); print(*p.methods); print(*p.datasets); print(len(read_published()))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=target,
        capture_output=True,
        text=True,
        check=True,
    )
    where, methods, datasets, numbers = made.stdout.splitlines()
    assert Path(where).is_relative_to(target)
    assert methods.split() == list(plugins.methods)
    assert datasets.split() == list(plugins.datasets)
    assert int(numbers) == len(read_published())
    assert (target / "ssmlbench" / "boards" / "report" / "assets" / "page.html").is_file()
