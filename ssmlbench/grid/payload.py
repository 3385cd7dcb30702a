"""The data that another machine needs to make a run: its context, and the text of plugin files."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ssmlbench.core.events import Closing, Notify
from ssmlbench.core.files import write_atomically
from ssmlbench.core.process_environment import fixed_environment, variable
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.run_one import run_one

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

VARIABLES = ("SSMLBENCH_CACHE", "SSMLBENCH_DATA", "SSMLBENCH_CHECKPOINT_SECONDS")


@dataclass(frozen=True)
class RunPayload:
    """Everything except its spec that a process on another machine needs to make a run."""

    context: RunContext
    plugins: tuple[tuple[str, bytes | None], ...]  # path, and content (None: own data)
    variables: Mapping[str, str]

    @classmethod
    def of(cls, plugins: Plugins, context: RunContext) -> RunPayload:
        """Read the plugin files and the environment variables of this process."""
        files = plugins.files
        contents = [Path(f).read_bytes() if f.endswith(".py") else None for f in files]
        variables = {name: text for name in VARIABLES if (text := variable(name)) is not None}
        return cls(context, tuple(zip(files, contents, strict=True)), variables)

    def run(self, spec: RunSpec, notify: Notify = lambda event: None) -> Closing:
        """Make the run in this process and return its last event."""
        from ssmlbench.plugins.loader import Plugins
        from ssmlbench.runs.execute import quieten

        os.environ.update(self.variables)
        quieten()
        with fixed_environment():  # this process imports plugin files as that of a command does
            return run_one(spec, Plugins(self._files()), self.context, notify)

    def _files(self) -> Sequence[str]:
        return [path if code is None else _file_with(path, code) for path, code in self.plugins]


def _file_with(path: str, code: bytes) -> str:
    """The plugin's path, if this machine has the same file there; else the path of a copy."""
    file = Path(path)
    with suppress(OSError):
        if file.read_bytes() == code:
            return path
    digest = hashlib.sha256(code).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"ssmlbench-plugins-{os.getuid()}" / digest
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    copy = folder / file.name
    if not copy.is_file() or copy.read_bytes() != code:
        write_atomically(copy, code, durable=False)
    return str(copy)
