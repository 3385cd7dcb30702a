"""`ssmlbench cache`: list and delete the cached features of frozen encoders."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

cache_app = typer.Typer(no_args_is_help=True, help="Cached features of frozen encoders.")


@cache_app.command("list")
def list_features() -> None:
    """List the cached features and their sizes."""
    from rich.table import Table

    from ssmlbench.inputs.feature_cache import cached_features, features_root

    table = Table(caption_justify="left")
    for column in (
        "data set",
        "split",
        "view",
        "encoder",
        "weights",
        "rows",
        "width",
        "MB",
        "state",
    ):
        table.add_column(column, overflow="fold")
    total = 0.0
    folders = cached_features()
    for folder in folders:
        megabytes = folder.bytes / 2**20
        total += megabytes
        about = folder.about
        if about is not None:
            view = about["view"] + (f" {about['draw'] + 1}" if about["view"] == "strong" else "")
            named = (about["dataset"], about["split"], view, about["backbone"], about["weights"])
            size = (str(about["rows"]), str(about["features"]))
        else:
            named, size = (folder.path.name, "", "", "", ""), ("", "")
        state = "complete" if about is not None else "begun"
        table.add_row(*named, *size, f"{megabytes:.1f}", state)
    table.caption = f"{len(folders)} in {features_root()}, {total:.0f} MB"
    Console().print(table)


@cache_app.command("clear")
def clear_features(
    dataset: Annotated[
        str | None, typer.Option(help="Only this data set's features.", show_default="all")
    ] = None,
    begun: Annotated[bool, typer.Option("--begun", help="Only unfinished features.")] = False,
) -> None:
    """Delete cached features; the next --freeze run computes them again."""
    from ssmlbench.inputs.feature_cache import cached_features

    removed, busy, freed = 0, 0, 0.0
    for folder in cached_features():
        if (begun and folder.complete) or (dataset and not folder.belongs_to(dataset)):
            continue
        megabytes = folder.bytes / 2**20
        if folder.remove():
            removed, freed = removed + 1, freed + megabytes
        else:
            busy += 1
    in_use = f"; {busy} in use by a run, kept" if busy else ""
    Console().print(f"removed {removed}, {freed:.0f} MB{in_use}", highlight=False)
