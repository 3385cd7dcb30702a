"""Commands that messages suggest, written so that they work as they are typed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ssmlbench.core.data_options import DataAddress
from ssmlbench.core.paths import near
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec

HUB = "hf:"


@dataclass(frozen=True)
class Sources:
    """What a command needs beside a run's spec to make a run like it; result.json has it.

    options: what was typed that the runs of a grid share, as words of a command.
    """

    dataset: str = ""  # the address of own data; empty: the data set is known by its name
    plugins: tuple[str, ...] = ()  # Python files
    options: tuple[str, ...] = ()

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Self:
        """The sources that a result has stored; older results have none."""
        stored = result.get("sources")
        stored = stored if isinstance(stored, dict) else {}

        def words(name: str) -> tuple[str, ...]:
            values = stored.get(name)
            return tuple(map(str, values)) if isinstance(values, list) else ()

        return cls(str(stored.get("dataset") or ""), words("plugins"), words("options"))

    def as_dict(self) -> dict[str, Any]:
        """The sources as a result stores them."""
        return asdict(self)


def suggested(*words: str, plugins: Sequence[str] = (), results: Sequence[Path] | Path = ()) -> str:
    """A command in a message, without its quotes. results: folders, if they are not the default one."""
    parts = ["ssmlbench", *words]
    for file in plugins:
        parts += ["--plugin", str(near(Path(file)))]
    roots = [results] if isinstance(results, Path) else results
    if [near(root) for root in roots] != [Path("results")]:
        parts += [part for root in roots for part in ("--results", str(near(root)))]
    return shlex.join(parts)


def command(
    verb: str,
    spec: RunSpec,
    sources: Sources,
    *words: str,
    level: str | None = None,
    results: Path | None = None,
) -> str:
    """A command for runs of the spec's data set and regime.

    words: more of it, e.g. `--method`, `cap`. level: π or share; None: the spec's.
    """
    parts = [verb, "--dataset", near_address(sources.dataset) or spec.dataset]
    if spec.regime != RunSpec.regime:
        parts += ["--regime", spec.regime]
    if number := REGIME_NUMBERS.get(spec.regime):
        parts += [number.flag, level or spec.level]
    parts += [*words, *sources.options]
    return suggested(*parts, plugins=sources.plugins, results=results or ())


def near_address(text: str) -> str:
    """An address of own data as it is typed from here; `./mine`, since `mine` would be a name."""
    if not text or text.startswith(HUB):
        return text
    address = DataAddress.parse(text)
    path = str(near(Path(address.path)))
    path = path if os.sep in path else f".{os.sep}{path}"
    return DataAddress(path, address.options).text
