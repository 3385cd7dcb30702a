"""Reads TOML files of the user; every mistake in them is an error of one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError, plain_reason
from ssmlbench.core.plain_files import plain_bytes


def read_toml(file: Path, name: str = "") -> dict[str, Any]:
    """The tables of a file. name: of the file in error messages; empty for its path."""
    name = name or str(file)
    try:
        return tomllib.loads(plain_bytes(file).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read ({plain_reason(error)})") from None
    except RecursionError:
        raise UserError(f"{name}: not TOML: its lists or tables are nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
        raise UserError(f"{name}: not TOML: {error}") from None
