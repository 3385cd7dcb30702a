"""The parts of a --backbone name, one of which may be a path on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from ssmlbench.core.paths import from_home

TIMM = "timm:"
"""The prefix of timm's models: timm:NAME, timm:FOLDER, timm:owner/name, timm:NAME@FILE."""


def split_backbone(backbone: str) -> tuple[str, str]:
    """`timm:resnet18@/weights/mine.pth` → (`timm:resnet18@`, `/weights/mine.pth`).

    The second part is a name, a hub id or a path; the first is empty for all but timm's models.
    """
    if not backbone.startswith(TIMM):
        return "", backbone
    rest = backbone.removeprefix(TIMM)
    architecture, at, file = rest.partition("@")
    if at and "/" not in architecture:
        return f"{TIMM}{architecture}@", file
    return TIMM, rest


def absolute_backbone(backbone: str) -> str:
    """The backbone with an absolute path, so that it means the same in every process."""
    prefix, path = split_backbone(backbone)
    where = from_home(path)
    is_folder = os.path.isdir(where)  # noqa: PTH112 (a Path raises an error for a name that is too long)
    return f"{prefix}{where.absolute()}" if is_folder or prefix.endswith("@") else backbone


def portable_backbone(backbone: str) -> str:
    """The backbone's name on every machine: of a path, only the last part."""
    prefix, path = split_backbone(backbone)
    return f"{prefix}{Path(path).name}" if Path(path).is_absolute() else backbone
