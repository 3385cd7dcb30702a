"""The plugin files that `ssmlbench new` writes."""

from __future__ import annotations

import re
from collections.abc import Container
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from ssmlbench.core.errors import UserError

CALLED = {
    "method": "a method",
    "estimator": "a method",  # one list of names for both
    "dataset": "a data set",
    "encoder": "an encoder",
}
"""The kinds of plugin with a template, and their names in messages."""


def write_plugin(kind: str, name: str, folder: Path, taken: Container[str] = ()) -> Path:
    """Write NAME as a plugin file in `folder`; no file is overwritten, and no name is used twice.

    kind: "method", "estimator", "dataset" or "encoder".
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise UserError(
            f"{name!r} cannot be the name of {CALLED[kind]}: use a small letter, then small letters, "
            f"digits, - and _, e.g. my-{kind}"
        )
    if name in taken:
        raise UserError(f"there is {CALLED[kind]} called {name!r} already; choose another name")
    file = folder / f"{name.replace('-', '_')}.py"
    if not file.exists() and find_spec(file.stem) is not None:
        raise UserError(
            f"{file} would hide the module {file.stem} from programs that start there; choose another name"
        )
    template = Template((files(__package__) / f"{kind}.py.txt").read_text(encoding="utf-8"))
    title = re.sub(r"[-_]+", " ", name).title()
    text = template.substitute(title=title, class_name=title.replace(" ", ""), name=name, file=file)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UserError(f"{file} exists; choose another name or --folder") from None
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    return file
