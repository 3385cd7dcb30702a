"""What is changed of Python's garbage collection is put back, also after an error."""

from __future__ import annotations

import gc

import pytest

from ssmlbench.core.garbage import RARE, no_collection, rare_collection


def fail_inside() -> None:
    with rare_collection(), no_collection():
        assert gc.get_threshold() == RARE
        assert not gc.isenabled()
        raise KeyError


def test_rare_and_no_collection_end_with_their_block() -> None:
    before = gc.get_threshold(), gc.isenabled()
    with pytest.raises(KeyError):
        fail_inside()
    assert (gc.get_threshold(), gc.isenabled()) == before


def test_a_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
