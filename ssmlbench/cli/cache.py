"""`ssmlbench cache`: list and delete cached features of frozen encoders, and decoded images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssmlbench.cli.options import warn
from ssmlbench.core.console import Console
from ssmlbench.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ssmlbench.inputs.shards import ShardFolder

cache_app = typer.Typer(
    no_args_is_help=True, help="Cached features of frozen encoders, and decoded images."
)

FEATURES = ("data set", "split", "view", "encoder", "weights", "rows", "width", "MB", "state")
IMAGES = ("data set", "split", "pixels", "rows", "MB", "state")


@cache_app.command("list")
def list_cache() -> None:
    """List the cached features and decoded images with their sizes."""
    from ssmlbench.inputs.decoded_cache import cached_images, decoded_root
    from ssmlbench.inputs.feature_cache import cached_features, features_root

    _show(FEATURES, cached_features(), f"features in {features_root()}")
    if images := cached_images():
        _show(IMAGES, images, f"of decoded images in {decoded_root()}")


def _show(columns: Sequence[str], folders: Sequence[ShardFolder], where: str) -> None:
    from rich.table import Table

    table = Table(caption_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    total = 0.0
    for folder in folders:
        megabytes = folder.bytes / 2**20
        total += megabytes
        about = folder.about
        named = [folder.path.name] if about is None else _named(about)
        named += [""] * (len(columns) - 2 - len(named))
        table.add_row(*named, f"{megabytes:.1f}", "begun" if about is None else "complete")
    table.caption = f"{len(folders)} {where}, {total:.0f} MB"
    Console().print(table)


def _named(about: dict[str, Any]) -> list[str]:
    """The cells that describe an entry of the cache."""
    if "view" not in about:
        return [about["dataset"], about["split"], str(about["size"]), str(about["rows"])]
    view = about["view"] + (f" {about['draw'] + 1}" if about["view"] == "strong" else "")
    named = [about["dataset"], about["split"], view, about["backbone"], about["weights"]]
    return [*named, str(about["rows"]), str(about["features"])]


@cache_app.command("clear")
def clear_cache(
    dataset: Annotated[
        str | None, typer.Option(help="Only this data set's.", show_default="all")
    ] = None,
    begun: Annotated[bool, typer.Option("--begun", help="Only unfinished entries.")] = False,
    decoded: Annotated[bool, typer.Option("--decoded", help="Only decoded images.")] = False,
) -> None:
    """Delete cached features and decoded images; the next run that needs them computes them."""
    from ssmlbench.inputs.decoded_cache import cached_images
    from ssmlbench.inputs.feature_cache import cached_features

    removed, busy, freed = 0, 0, 0.0
    folders = [*(() if decoded else cached_features()), *cached_images()]
    if dataset and not any(folder.belongs_to(dataset) for folder in folders):
        known = {folder.about["dataset"] for folder in folders if folder.about}
        warn([f"--dataset {dataset}: nothing of it is cached.{did_you_mean(dataset, known)}"])
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
