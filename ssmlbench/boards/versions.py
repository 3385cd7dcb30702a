"""Versions of a method's code: a row of a board is one version.

The newest version of a method, over all runs that were read, goes by the method's name. The name of
every other version has a short digest and the day of its last run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.plugins.digest import DIGEST_PREFIX, is_old_digest
from ssmlbench.runs.finished import Finished

NEWEST, ALL = "newest", "all"
SHORT = 7
"""Digits of a digest in a row's name."""


def short_digest(code: str) -> str:
    """The first digits of a code digest, without the prefix that all of them have."""
    return code.removeprefix(DIGEST_PREFIX)[:SHORT]


@dataclass(frozen=True)
class Versions:
    """The versions of the methods that have several, newest first; with the day of the last run."""

    days: Mapping[str, Mapping[str, str]]  # method → code → day

    @classmethod
    def of(cls, runs: Iterable[Finished]) -> Versions:
        """The versions in the runs."""
        found: dict[str, dict[str, list[Finished]]] = defaultdict(lambda: defaultdict(list))
        for run in runs:
            found[run.spec.method][run.spec.code].append(run)
        days = {}
        for method, codes in found.items():
            if len(codes) > 1:
                last = {code: max(r.finished_at for r in codes[code]) for code in codes}
                newest_first = sorted(
                    last, key=lambda code: (not is_old_digest(code), last[code], code), reverse=True
                )
                days[method] = {code: last[code][:10] for code in newest_first}
        return cls(days)

    def label(self, spec: RunSpec) -> str:
        """`@3f2a91b 2026-11-16` for a run of older code; empty for the newest."""
        codes = self.days.get(spec.method)
        if not codes or next(iter(codes)) == spec.code:
            return ""
        return f"@{short_digest(spec.code)} {codes[spec.code]}"

    def row_name(self, spec: RunSpec) -> str:
        """The name of the row that a run belongs to."""
        return f"{spec.variant} {self.label(spec)}".rstrip()

    def shown(self, runs: Sequence[Finished], wanted: Sequence[str]) -> list[Finished]:
        """The runs whose version is shown among these runs of one setting.

        wanted: `newest`, `all`, or the starts of digests; a method of which no digest is named shows
        its newest version.
        """
        if ALL in wanted or not self.days:
            return list(runs)
        kept = self._kept({(run.spec.method, run.spec.code) for run in runs}, wanted)
        return [run for run in runs if run.spec.code in kept[run.spec.method]]

    def _kept(
        self, present: set[tuple[str, str]], wanted: Sequence[str]
    ) -> dict[str, Sequence[str]]:
        kept: dict[str, Sequence[str]] = {}
        for method in {method for method, _ in present}:
            codes = [
                code
                for code in self.days.get(method) or [c for m, c in present if m == method]
                if (method, code) in present
            ]
            named = [code for code in codes if any(map(_digits(code).startswith, wanted))]
            kept[method] = named or codes[:1]
        return kept

    def check(self, wanted: Sequence[str], runs: Iterable[Finished]) -> None:
        """Raise a UserError for a digest that no run has."""
        digests = {_digits(run.spec.code) for run in runs}
        for typed in wanted:
            if typed not in (NEWEST, ALL) and not any(d.startswith(typed) for d in digests):
                raise UserError(
                    f"--versions {typed}: no run has code with such a digest; newest, all, or the first "
                    "digits of a digest as `--versions all` shows them after @"
                )


def _digits(code: str) -> str:
    return code.removeprefix(DIGEST_PREFIX)
