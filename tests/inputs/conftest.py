"""The miniatures of tests.support.tiny_models, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.plugins.loader import Plugins
from tests.support.tiny_models import save_tiny_bert, write_data_plugin


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="module")
def plugin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_plugin(tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="module")
def tiny(plugin_file: Path) -> Plugins:
    return Plugins([plugin_file])
