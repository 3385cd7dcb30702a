"""`ssmlbench cache`: list and delete cached features of frozen encoders, and decoded images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ssmlbench.cli.options import load_plugins
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ssmlbench.inputs.shards import ShardFolder

cache_app = typer.Typer(
    no_args_is_help=True, help="Cached features of frozen encoders, and decoded images."
)


@cache_app.command("list")
def list_cache() -> None:
    """List the cached features and decoded images with their sizes."""
    from ssmlbench.inputs.cache_folders import (
        cached_features,
        cached_images,
        decoded_root,
        features_root,
    )

    features, images = cached_features(), cached_images()
    _show(("data set", "encoder", "weights"), features, f"features in {features_root()}")
    if images:
        _show(("data set", "pixels"), images, f"decoded images in {decoded_root()}")


def _show(columns: Sequence[str], folders: Sequence[ShardFolder], where: str) -> None:
    """A row for each data set and encoder: a row for each view would be a dozen of them."""
    from rich.table import Table

    table = Table(caption_justify="left")
    for column in (*columns, "parts", "MB", "state"):
        table.add_column(column, overflow="fold")
    alike: dict[tuple[str, ...], list[ShardFolder]] = {}
    for folder in folders:
        alike.setdefault(_named(folder, len(columns)), []).append(folder)
    for named, group in alike.items():
        state = "complete" if group[0].about else "begun"
        table.add_row(*named, _parts(group), f"{_megabytes(group):.1f}", state)
    table.caption = f"{len(folders)} parts: {where}, {_megabytes(folders):.0f} MB"
    Console().print(table)


def _named(folder: ShardFolder, columns: int) -> tuple[str, ...]:
    """The cells that entries of one data set and encoder have in common."""
    if (about := folder.about) is None:
        return (folder.path.name, *[""] * (columns - 1))
    if "view" not in about:
        return about["dataset"], str(about["size"])
    encoder = Path(about["backbone"]).name  # a model's folder may be deep
    return about["dataset"], encoder, about["weights"]


def _parts(folders: Sequence[ShardFolder]) -> str:
    """The splits and views of entries; a strong view has several draws."""
    known = [about for folder in folders if (about := folder.about)]
    counts = Counter(f"{about['split']} {about.get('view', '')}".strip() for about in known)
    return ", ".join(f"{part} × {n}" if n > 1 else part for part, n in counts.items())


def _megabytes(folders: Iterable[ShardFolder]) -> float:
    return sum(folder.bytes for folder in folders) / 2**20


def _check_known(dataset: str, cached: Iterable[str]) -> None:
    """Raise a UserError unless there is a data set of this name: built in, installed or prepared."""
    from ssmlbench.data.prepared import prepared_names

    known = {*load_plugins(None).datasets, *prepared_names(), *cached}
    if dataset not in known:
        raise UserError(f"--dataset {dataset}: no such data set.{did_you_mean(dataset, known)}")


@cache_app.command("clear")
def clear_cache(
    dataset: Annotated[
        str | None, typer.Option(help="Only this data set's.", show_default="all")
    ] = None,
    begun: Annotated[bool, typer.Option("--begun", help="Only unfinished entries.")] = False,
    decoded: Annotated[bool, typer.Option("--decoded", help="Only decoded images.")] = False,
) -> None:
    """Delete cached features and decoded images; the next run that needs them computes them."""
    from ssmlbench.inputs.cache_folders import cached_features, cached_images

    removed, busy, freed = 0, 0, 0.0
    folders = [*(() if decoded else cached_features()), *cached_images()]
    if dataset and not any(folder.belongs_to(dataset) for folder in folders):
        _check_known(dataset, {folder.about["dataset"] for folder in folders if folder.about})
    for folder in folders:
        if (begun and folder.complete) or (dataset and not folder.belongs_to(dataset)):
            continue
        megabytes = folder.bytes / 2**20
        if folder.remove():
            removed, freed = removed + 1, freed + megabytes
        else:
            busy += 1
    in_use = f"; {busy} in use by a run, kept" if busy else ""
    Console().print(f"removed {removed}, {freed:.0f} MB{in_use}", highlight=False)
