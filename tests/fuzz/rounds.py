"""Rounds of hypothesis until a time is over: each is short, so that the whole ends when it should."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.attack import Target, attack
from tests.fuzz.edits import Edit, edited, edits

ROUND = 100
"""Contents between two looks at the clock."""


class Broken(AssertionError):
    """A content that a parser does not answer with a clean error."""

    def __init__(self, content: bytes, cause: BaseException):
        super().__init__(f"{type(cause).__name__}: {cause}; the content is {content[:2000]!r}")
        self.content = content
        self.cause = cause


def try_content(target: Target, content: bytes, folder: Path) -> None:
    """Read one content; Broken if it is a bug."""
    try:
        attack(target, content, folder)
    except Exception as error:
        raise Broken(content, error) from error


def fuzz_round(target: Target, contents: int, folder: Path, number: int) -> None:
    """Try so many contents. Nothing is made smaller: hypothesis may take minutes over that."""
    seeds = target.seeds()

    @seed(number)
    @settings(
        max_examples=contents,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), edits)
    def one(content: bytes, changes: list[Edit]) -> None:
        try_content(target, edited(content, changes), folder)

    one()


def fuzz_for(target: Target, seconds: float, folder: Path, seed: int) -> int:
    """Rounds until the time is over, at least one; returns how many contents were tried."""
    end, rounds = time.monotonic() + seconds, 0
    while not rounds or time.monotonic() < end:
        fuzz_round(target, ROUND, folder, seed + rounds)
        rounds += 1
    return rounds * ROUND
