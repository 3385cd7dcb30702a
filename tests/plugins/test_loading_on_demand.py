"""Built-in plugins are announced by their files' names, and loaded when they are first needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.registry import Registry
from ssmlbench.plugins import loader
from ssmlbench.plugins.catalogue import method_catalogue
from ssmlbench.plugins.loader import Plugins
from tests.conftest import ROOT
from tests.plugins.test_loader import METHOD, write


def test_a_built_in_method_is_loaded_when_it_is_asked_for() -> None:
    files = sorted((ROOT / "methods").glob("*.py"))
    assert [file.stem for file in files if not loader._is_named_as_its_plugin(file)] == []
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
    assert loader._is_named_as_its_plugin(file) is alone


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
