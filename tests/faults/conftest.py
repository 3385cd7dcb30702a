"""The world that faults are tried on, made once for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.world import World


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, cache: object) -> World:
    world = World.make(tmp_path_factory.mktemp("faults"))
    os.environ["SSMLBENCH_CACHE"] = str(cache)  # the first test writes into that of all tests
    return world


@pytest.fixture(autouse=True)
def own_cache(cache: object, made: World) -> Iterator[None]:
    """Each world has a cache of its own; other tests keep theirs."""
    yield
    os.environ["SSMLBENCH_CACHE"] = str(cache)
