"""Prepares a data set in a new process, if plugin files were imported in this one.

A plugin file may change libraries when it is imported; the prepared data are those of all later runs.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ssmlbench.core.data_options import DataAddress
from ssmlbench.core.errors import UserError
from ssmlbench.core.process_environment import environment_without_plugins
from ssmlbench.core.registry import source_file

if TYPE_CHECKING:
    from ssmlbench.core.console import Console
    from ssmlbench.data import DatasetAdapter

START = "import sys; sys.path[:] = {path!r}; from ssmlbench.cli import main; main()"


def prepare_apart(adapter: DatasetAdapter, skip_bad: bool, console: Console) -> None:
    """Prepare the data set in a process that imports no plugin file but its own, if any.

    Nothing happens if no other plugin file was imported here; `prepare` then does it.
    """
    from ssmlbench.plugins.watch import imported_files

    own = str(source_file(type(adapter)))
    others = imported_files() - {own}
    if not others or (typed := _typed(adapter)) is None:
        return
    words = ["data", "prepare", typed, *(["--skip-bad"] if skip_bad else [])]
    words += ["--data-dir", str(adapter.data_dir)] if adapter.data_dir is not None else []
    words += ["--plugin", own] if own in imported_files() else []
    environment, folder, path = environment_without_plugins()
    console.print(
        f"preparing {adapter.name} in another process, without the plugin files", highlight=False
    )
    done = subprocess.run(
        [sys.executable, "-c", START.format(path=path), *words],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.strip()
    if done.returncode:
        raise UserError(said.removeprefix("error: ") or f"{adapter.name} could not be prepared")
    if said:
        sys.stderr.write(f"{said}\n")


def _typed(adapter: DatasetAdapter) -> str | None:
    """The data set as a word of a command; None for one of the hub, which is read as it was found."""
    home = getattr(adapter, "home", None)
    if home is None:
        return adapter.name
    options = getattr(adapter, "options", None)
    return DataAddress(str(home), options).text if options is not None and home.exists() else None
