"""Findings as files: a figure in three formats, and its numbers as CSV and JSON."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssmlbench.boards.analyses.contract import Findings
from ssmlbench.boards.analyses.drawing import save
from ssmlbench.boards.render.slugs import slugs
from ssmlbench.core.csv_cells import CsvWriter
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import write_output

FORMATS = ("pdf", "png", "svg")


def write_findings(found: Sequence[Findings], folder: Path) -> list[Path]:
    """Write every file of the findings; each is named after what it shows."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder --out {folder}: {error.strerror}") from None
    written = []
    for name, findings in zip(slugs([f"{f.name} {f.where}" for f in found]), found, strict=True):
        contents: dict[str, str | bytes] = {kind: save(findings.draw, kind) for kind in FORMATS}
        contents["csv"] = findings_csv(findings)
        contents["json"] = findings_json(findings)
        for kind, content in contents.items():
            file = folder / f"{name}.{kind}"
            try:
                write_output(file, content)
            except OSError as error:
                raise UserError(f"cannot write {file}: {error.strerror}") from None
            written.append(file)
    return written


def findings_csv(findings: Findings) -> str:
    """The records as CSV; a number that is not defined is empty."""
    columns = list(dict.fromkeys(key for record in findings.records for key in record))
    out = io.StringIO()
    records = ({key: _plain(value) for key, value in r.items()} for r in findings.records)
    CsvWriter(out).records(records, columns)
    return out.getvalue()


def findings_json(findings: Findings) -> str:
    """Title, notes and records as JSON; a number that is not defined is null."""
    records = [{key: _plain(value) for key, value in r.items()} for r in findings.records]
    facts = {
        "analysis": findings.name,
        "where": findings.where,
        "title": findings.table.title,
        "notes": list(findings.table.notes),
        "records": records,
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
