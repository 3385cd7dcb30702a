"""Plugins of installed packages: found by entry points, and left out with one line if they do not load."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.cli import main
from ssmlbench.core.errors import PluginWarning, UserError
from ssmlbench.plugins.digest import code_digest
from ssmlbench.plugins.loader import Plugins, load_file
from tests.plugins.test_loader import METHOD, write

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
