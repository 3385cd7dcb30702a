"""A path that starts with ~ and names nobody's home is one line of error, wherever it is typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ssmlbench
from ssmlbench.cli.show import show
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import cache_root
from ssmlbench.inputs.encoders.lookup import find_encoder
from ssmlbench.inputs.encoders.model_folders import has_model, model_folder
from ssmlbench.plugins.loader import Plugins

NOBODY = "~nobody-of-this-name/model"
TYPED: dict[str, Callable[[], Any]] = {
    "a model": lambda: has_model(NOBODY),
    "a model's folder": lambda: model_folder(NOBODY),
    "an encoder of images": lambda: find_encoder(Plugins().encoders, NOBODY[:-6], "image"),
    "a run": lambda: show(NOBODY),
}


@pytest.mark.parametrize("what", sorted(TYPED))
def test_the_home_of_nobody_is_one_line(what: str) -> None:
    with pytest.raises(UserError, match="there is no such user"):
        TYPED[what]()


def test_one_function_replaces_the_tilde() -> None:
    root = Path(ssmlbench.__file__).parent
    users = [f.relative_to(root) for f in root.rglob("*.py") if ".expanduser()" in f.read_text()]
    assert users == [Path("core/paths.py")]


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SSMLBENCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UserError, match="set SSMLBENCH_CACHE"):
        cache_root()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_root() == Path("/somewhere/ssmlbench")
