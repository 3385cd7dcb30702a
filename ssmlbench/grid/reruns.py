"""Which damaged runs `ssmlbench doctor --rerun` repeats: those that the present code makes as they were.

To begin a run deletes what is left of it. A result that an older version of the code made, and whose scores
are damaged, still has its metrics: it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssmlbench.core.commands import Sources, near_address, suggested
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import PROTOCOL_VERSION, RunSpec
from ssmlbench.grid.repairs import Finding
from ssmlbench.runs.finished import Finished, read_result
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.core.registry import Registry
    from ssmlbench.plugins.loader import Plugins

AGAIN = "the same `ssmlbench run` makes the run again; so does `ssmlbench doctor --rerun`"
"""The remedy for a damaged run that the present version can make again."""
ANEW = "an older version made it; the same `ssmlbench run` makes a new run, in another folder"
"""The remedy for one that it cannot."""


def reruns(findings: Iterable[Finding]) -> Iterator[RunSpec]:
    """The runs that have to be repeated and whose spec is known, each once."""
    seen = set()
    for finding in findings:
        if finding.spec is not None and finding.spec.hash not in seen:
            seen.add(finding.spec.hash)
            yield finding.spec


def is_of_this_version(folder: RunFolder, spec: RunSpec) -> bool:
    """Whether the spec of a run, as this version reads it, is that of a run in this folder."""
    same_folder = folder.path.name == f"{spec.seed}-{spec.hash}"
    return same_folder and spec.protocol == PROTOCOL_VERSION


def obstacle(folder: RunFolder, spec: RunSpec, plugins: Plugins, results: Path) -> str:
    """Why the present code does not make a run again, and what to type; empty if it does."""
    if missing := _missing(spec, plugins):
        run = read_result(folder.path)
        sources = Sources.of_result(run.result) if isinstance(run, Finished) else Sources()
        files = [*filter(None, [near_address(sources.dataset)]), *sources.plugins] or ["FILE"]
        typed = suggested("doctor", "--rerun", plugins=files, results=results)
        return f"{' and '.join(missing)} must be loaded; type `{typed}`"
    if changed := _changed(spec, plugins):
        name = folder.path.name.partition("-")[2] or folder.path.name
        typed = suggested("runs", "delete", name[:8], results=results)
        return f"{changed}; `{typed}` deletes it, and the same `ssmlbench run` makes a new one"
    return ""


def _missing(spec: RunSpec, plugins: Plugins) -> list[str]:
    """The data set, method and encoder that are not loaded."""
    needed: list[tuple[str, str, Registry[Any]]] = [
        ("data set", spec.dataset, plugins.datasets),
        ("method", spec.method, plugins.methods),
    ]
    if spec.encoder_code:
        needed.append(("encoder", spec.backbone, plugins.encoders))
    return [f"{kind} {name}" for kind, name, known in needed if name not in known]


def _changed(spec: RunSpec, plugins: Plugins) -> str:
    """What has changed since the run was made; empty if nothing has."""
    from ssmlbench.inputs.encoders.weights import check_weights
    from ssmlbench.runs.execute import open_task
    from ssmlbench.runs.train import check_code, encoder_class

    try:
        encoder = encoder_class(spec, plugins)
        check_code(spec, plugins.methods[spec.method], encoder)
        check_weights(encoder, spec)
        open_task(spec, plugins)
    except UserError as error:
        return str(error).partition(";")[0]
    return ""
