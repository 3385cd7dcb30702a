"""Plugins: the built-in folders and a user's file go through one loader."""

from __future__ import annotations

import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.published import read_published
from ssmlbench.cli import main
from ssmlbench.cli.verbs import VERBS as ALL_VERBS
from ssmlbench.cli.verbs import load_verb
from ssmlbench.core.errors import PluginWarning, UserError
from ssmlbench.core.registry import Registry
from ssmlbench.plugins import loader
from ssmlbench.plugins.catalogue import method_catalogue
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
    with pytest.raises(UserError, match="two plugins have the name of method 'cap'"):
        Plugins([write(tmp_path, METHOD.replace('"mine"', '"cap"'))])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("import nothing_of_that_name", "mine.py:1: does not import: ModuleNotFoundError"),
        ("x = 1\nclass (", "mine.py:2: does not import: SyntaxError"),
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


# What --plugin takes --------------------------------------------------------------------------------

RUN = ("--method", "bce", "--dataset", "multidigits", "--pi", "0.05", "--dry-run")
VERBS = {
    "run": RUN,
    "tune": (*RUN, "--trials", "1"),
    "methods": (),
    "datasets": (),
    "data prepare": ("multidigits",),
    "data verify": ("multidigits",),
    "data list": (),
    "data show": ("multidigits",),
    "doctor": ("--dry-run",),
    "analyse ablation": ("--method", "bbam", *RUN[2:]),
    "analyse sensitivity": ("--method", "cap", *RUN[2:], "--param", "positive_share"),
}
ON_RUNS = {
    "predict",
    "recommend",
    "analyse landscape",
}  # they train, or need what was trained: tests of their own


def verbs_with_plugins(commands: dict[str, Any], path: str = "") -> set[str]:
    found = set()
    for name, command in commands.items():
        if hasattr(command, "commands"):
            found |= verbs_with_plugins(command.commands, f"{path}{name} ")
        elif any("--plugin" in parameter.opts for parameter in command.params):
            found.add(f"{path}{name}")
    return found


def test_every_verb_with_a_plugin_option_is_tried_below() -> None:
    commands = {name: load_verb(name) for name in ALL_VERBS}
    assert verbs_with_plugins(commands) == {*VERBS, *ON_RUNS}


def write_plugin(kind: str, folder: Path) -> Path:
    folder.mkdir()
    if kind == "Python file":
        return write(folder, METHOD)
    if kind == "data folder":
        for split in ("train", "test"):
            write(folder, "text,labels\nx,a\ny,b\n", f"{split}.csv")
        return folder
    header = "@attribute height numeric\n@attribute big {0,1}\n@data\n1.5,1\n"
    write(folder, '<labels><label name="big"/></labels>', "toy.xml")
    write(folder, header, "toy-test.arff")
    return write(folder, header, "toy-train.arff")


@pytest.mark.parametrize("kind", ["Python file", "data folder", "ARFF file"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_every_kind_of_plugin(
    verb: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = write_plugin(kind, tmp_path / "plugin")
    monkeypatch.chdir(tmp_path)
    arguments = (*verb.split(), *VERBS[verb], "--plugin", str(plugin))
    monkeypatch.setattr(sys, "argv", ["ssmlbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_a_users_data_is_listed_wherever_data_sets_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_plugin("data folder", tmp_path / "mine")
    for verb in ("datasets", "data list"):
        monkeypatch.setattr(sys, "argv", ["ssmlbench", *verb.split(), "--plugin", str(folder)])
        with pytest.raises(SystemExit):
            main()
        assert "mine" in capsys.readouterr().out


def test_questions_about_data_sets_import_no_torch(tmp_path: Path) -> None:
    folder = write_plugin("data folder", tmp_path / "mine")
    code = (
        "import sys; from typer.testing import CliRunner; from ssmlbench.cli import app\n"
        f"for verb in ('datasets',), ('data', 'list'):\n"
        f"    r = CliRunner().invoke(app, [*verb, '--plugin', {str(folder)!r}])\n"
        "    assert r.exit_code == 0 and 'mine' in r.output, r.output\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Installed plugins ----------------------------------------------------------------------------------

INSTALLED = """
[ssmlbench.methods]
mine = lab_plugins.methods:Mine
[ssmlbench.datasets]
all = lab_plugins.data
"""
DATASET = """
from ssmlbench.api import DatasetAdapter, Row

class First(DatasetAdapter):
    name, kind, backbone = "first", "text", "bert-base-uncased"
    def label_names(self):
        return ["a"]
    def rows(self, split):
        yield Row("x", (0,))

class Second(First):
    name = "second"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions, with one of two modules and three plugins in it."""
    package = tmp_path / "lab_plugins"
    package.mkdir()
    write(package, "", "__init__.py")
    write(package, METHOD, "methods.py")
    write(package, DATASET, "data.py")
    install(tmp_path, "lab-plugins", INSTALLED)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] == "lab_plugins"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def install(site: Path, distribution: str, entry_points: str) -> None:
    folder = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    write(folder, f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", "METADATA")
    write(folder, entry_points, "entry_points.txt")


def test_installed_plugins_are_found_by_class_and_by_module(site: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins = Plugins()
        assert "mine" in plugins.methods
        assert {"first", "second", "multidigits"} <= set(plugins.datasets)
        assert "small-cnn" in plugins.encoders
    edited = write(site, METHOD.replace(".mean()", ".sum()"))
    assert code_digest(plugins.methods["mine"]) != code_digest(load_mine(edited))


def load_mine(file: Path) -> Any:
    return vars(load_file(file))["Mine"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("lab_plugins.nothing:Mine", "ModuleNotFoundError"),
        ("lab_plugins.methods:Yours", "AttributeError"),
        ("lab_plugins.data:First", "no class derived from Method or Estimator in it"),
        ("lab_plugins.data", "no class derived from Method or Estimator in it"),
        ("lab_plugins.methods:bce", "no class derived from Method or Estimator in it"),
        ("lab_plugins.broken", "ZeroDivisionError"),
        ("lab_plugins.nameless", "class Mine has no `name`"),
    ],
)
def test_a_broken_installed_plugin_is_one_line_and_the_others_work(
    value: str,
    reason: str,
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(site / "lab_plugins", "1 / 0", "broken.py")
    write(site / "lab_plugins", METHOD.replace('    name = "mine"\n', ""), "nameless.py")
    install(site, "unlucky-lab", f"[ssmlbench.methods]\nbad = {value}\n")
    with pytest.warns(PluginWarning, match="distribution unlucky-lab") as warned:
        methods = Plugins().methods
    assert {"mine", "bce"} <= set(methods)
    assert len(warned) == 1
    assert reason in str(warned[0].message)
    monkeypatch.setattr(sys, "argv", ["ssmlbench", "methods"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 0
    assert "mine" in said.out
    (line,) = said.err.strip().splitlines()
    assert line.startswith("warning: distribution unlucky-lab")


def test_two_installed_plugins_of_one_name_are_refused(site: Path) -> None:
    write(site / "lab_plugins", METHOD.replace('"mine"', '"cap"'), "taken.py")
    install(site, "another-lab", "[ssmlbench.methods]\ncap = lab_plugins.taken:Mine\n")
    with pytest.raises(UserError, match=r"two plugins have the name of method 'cap'.*taken\.py"):
        _ = Plugins().methods
    assert "multidigits" in Plugins().datasets  # commands about data sets still work


def test_a_built_in_method_is_loaded_when_it_is_asked_for() -> None:
    files = sorted((ROOT / "methods").glob("*.py"))
    assert [file.stem for file in files if not loader._holds_its_namesake_only(file)] == []
    asked = (
        "import sys; from ssmlbench.plugins.loader import Plugins; methods = Plugins().methods; "
        "assert 'forest' in methods and len(list(methods)) == len(methods); methods['bce']; "
        "sys.exit('sklearn.ensemble' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", asked], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ('class A(Method):\n    name = "mine"\n', True),
        ('class A(Method):\n\tname = "mine"\n', True),
        ('class A(Method):\n    name = "other"\n', False),
        ('class A(Method):\n    name = "mine"\nclass B(Method):\n    name = "b"\n', False),
        ('class A(Method):\n    name: str = "mine"\n', False),
        ("A = make('mine')\n", False),
    ],
)
def test_a_file_that_says_its_name_otherwise_is_loaded_at_once(
    tmp_path: Path, text: str, alone: bool
) -> None:
    file = write(tmp_path, text)
    assert loader._holds_its_namesake_only(file) is alone


def test_an_announced_class_is_added_once_and_a_second_of_its_name_is_refused() -> None:
    first, second = type("First", (), {"name": "x"}), type("Second", (), {"name": "x"})
    loaded = []

    def load() -> list[type]:
        loaded.append(first)
        return [first]

    registry: Registry[object] = Registry("method")
    registry.announce("x", load)
    assert "x" in registry
    assert list(registry) == ["x"]
    assert not loaded
    assert registry["x"] is registry["x"] is first
    assert len(loaded) == len(registry) == 1
    with pytest.raises(UserError, match="two plugins have the name of method 'x'"):
        registry.announce("x", lambda: [second])
    other: Registry[object] = Registry("method")
    other.announce("x", load)
    with pytest.raises(UserError, match="two plugins have the name of method 'x'"):
        other.add(second)


def test_a_class_whose_file_does_not_load_says_so_each_time() -> None:
    def load() -> list[type]:
        raise UserError("broken.py: does not import")

    registry: Registry[object] = Registry("method")
    registry.announce("x", load)
    for _ in range(2):
        with pytest.raises(UserError, match=r"broken\.py"):
            _ = registry["x"]


def test_the_list_of_methods_is_kept_and_read_again_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path))
    first = method_catalogue(Plugins())
    (file,) = tmp_path.glob("catalogue/*.json")
    asked = Plugins()
    again = method_catalogue(asked)
    assert "methods" not in vars(asked)  # no class was loaded for it
    assert [again[name] for name in again] == [first[name] for name in first]
    file.write_text(file.read_text().replace("cap", "cat"))  # damaged: read off the classes
    assert list(method_catalogue(Plugins())) == list(first)
    mine = write(tmp_path, METHOD)
    assert "mine" in method_catalogue(Plugins([mine]))
    assert "mine" not in method_catalogue(Plugins())
    monkeypatch.setattr("ssmlbench.plugins.catalogue.code_state", lambda: "edited")
    method_catalogue(Plugins())
    (other,) = tmp_path.glob("catalogue/*.json")
    assert other != file
