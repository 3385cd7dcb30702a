"""`ssmlbench methods`, `datasets`, `new`: lists of plugins, and new plugin files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from ssmlbench.cli.completion import complete_dataset, complete_method
from ssmlbench.cli.options import PluginFiles, load_plugins, wide_console
from ssmlbench.core.commands import suggested
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError

Long = Annotated[
    bool, typer.Option("--long", help="Papers, regimes, licences and files too; not cut off.")
]

new_app = typer.Typer(no_args_is_help=True, help="Write a plugin file to start from.")


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this method in full.", autocompletion=complete_method)
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Everything about all of them, as Markdown.")
    ] = False,
    long: Long = False,
    plugin: PluginFiles = None,
) -> None:
    """List the methods, or show everything about one."""
    from ssmlbench.cli.catalogue import compact, method_page, methods_markdown, overview
    from ssmlbench.plugins.catalogue import method_catalogue

    if markdown and (name is not None or long):
        raise UserError("--markdown is everything about all methods; leave NAME and --long out")
    catalogue = method_catalogue(load_plugins(plugin))
    console = Console()
    if markdown:
        console.out(methods_markdown(catalogue), highlight=False)
    elif name is None:
        _print_list(overview(catalogue) if long else compact(catalogue, wide_console().width))
    else:
        console.print(method_page(catalogue[name]))


def datasets_command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this data set in full.", autocompletion=complete_dataset),
    ] = None,
    long: Long = False,
    plugin: PluginFiles = None,
) -> None:
    """List the data sets, or show everything about one."""
    from ssmlbench.cli.catalogue import compact, overview
    from ssmlbench.plugins.catalogue import Catalogue, dataset_catalogue

    catalogue = dataset_catalogue(load_plugins(plugin))
    if name is not None:
        console = Console()
        console.print(overview(Catalogue(catalogue.kind, [catalogue[name]])))
        show = suggested("data", "show", name, plugins=plugin or ())
        console.print_line(f"`{show}` shows its labels and rows")
        return
    _print_list(overview(catalogue) if long else compact(catalogue, wide_console().width))


def _print_list(shown: RenderableType) -> None:
    """Print a list of plugins, and the command that shows more."""
    console = wide_console()
    console.print(shown, highlight=False)
    if isinstance(shown, str) and console.is_terminal:
        console.print("--long shows papers, regimes, licences and files", style="dim")


@new_app.command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="The method's name, e.g. my-method.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path(),
) -> None:
    """Write a commented, working method to start from."""
    _write("method", name, folder)


@new_app.command("estimator")
def new_estimator(
    name: Annotated[str, typer.Argument(help="The estimator's name, e.g. my-estimator.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path(),
) -> None:
    """Write a commented, working estimator to start from."""
    _write("estimator", name, folder)


@new_app.command("dataset")
def new_dataset(
    name: Annotated[str, typer.Argument(help="The data set's name, e.g. my-dataset.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path(),
) -> None:
    """Write a commented, working data set to start from."""
    _write("dataset", name, folder)


@new_app.command("encoder")
def new_encoder(
    name: Annotated[str, typer.Argument(help="The encoder's name, e.g. my-encoder.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path(),
) -> None:
    """Write a commented, working encoder to start from."""
    _write("encoder", name, folder)


RUN_IT = {
    "method": "--method {name} --dataset multidigits --pi 0.05",
    "estimator": "--method {name} --dataset multidigits --pi 0.05 --freeze",
    "dataset": "--method bce,cap --dataset {name} --pi 0.1",
    "encoder": "--backbone {name} --method bce --dataset multidigits --pi 0.05",
}
"""The options of `ssmlbench run` beside `--plugin FILE`, for each kind of plugin."""


def _write(kind: str, name: str, folder: Path) -> None:
    from ssmlbench.cli.templates import write_plugin

    plugins = load_plugins(None)
    names = {"dataset": list(plugins.datasets), "encoder": list(plugins.encoders)}
    file = write_plugin(kind, name, folder, names.get(kind, list(plugins.methods)))
    Console().print_line(
        f"wrote {file}\n  {suggested('check', str(file))}\n"
        f"  {suggested('run', *RUN_IT[kind].format(name=name).split(), plugins=[str(file)])}"
    )
