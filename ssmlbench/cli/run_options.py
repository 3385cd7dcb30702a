"""Options that commands share, as groups: those of the run spec, and where runs are made.

`with_options` adds groups to a command. The options of a run are derived from the fields of the run spec
that have a help text.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ssmlbench.cli.completion import COMPLETIONS, completing
from ssmlbench.cli.options import DataDir, LogTo, PluginFiles, SkipBad, key_values, typed_list
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.run_options import WHAT, WHERE, RunOption
from ssmlbench.core.spec import NUMBERS, OPTIONS
from ssmlbench.grid.request import GridRequest
from ssmlbench.protocol.regimes import REGIMES

CommandParameters = Sequence[inspect.Parameter]
Command = Callable[..., None]


def with_options(**groups: CommandParameters | type[Any]) -> Callable[[Command], Command]:
    """Replace arguments of a command by groups of options.

    A group is a dataclass of Annotated fields: the command gets an instance. Or it is a list of
    parameters: the command gets their values by name.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        members = {
            name: _fields_of(group) if isinstance(group, type) else list(group)
            for name, group in groups.items()
        }
        options = [p for name in own for p in members.get(name, [own[name]])]

        @functools.wraps(command)
        def call(**typed: Any) -> None:
            for name, group in groups.items():
                values = {m.name: typed.pop(m.name, m.default) for m in members[name]}
                typed[name] = group(**values) if isinstance(group, type) else values
            command(**typed)

        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
        call.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        return call

    return decorate


def _fields_of(group: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters of a command, in the panel that the class names."""
    hints = typing.get_type_hints(group, include_extras=True)
    fields = dataclasses.fields(group)
    return in_panel([parameter(f.name, hints[f.name], f.default) for f in fields], group.PANEL)


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """One option of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def in_panel(parameters: CommandParameters, panel: str) -> list[inspect.Parameter]:
    """The same options, shown in a panel of `--help`."""
    moved = []
    for one in parameters:
        kind, declared = typing.get_args(one.annotation)
        declared = copy.copy(declared)
        declared.rich_help_panel = panel
        moved.append(one.replace(annotation=Annotated[kind, declared]))
    return moved


# -------------------------------------------------------------------------- options of the runs


def run_parameters(without: Sequence[str] = ()) -> list[inspect.Parameter]:
    """An option for every field of the run spec that a user may set; an axis takes a list."""
    return [_run_parameter(option) for name, option in OPTIONS.items() if name not in without]


def _run_parameter(option: RunOption) -> inspect.Parameter:
    text = option.help
    if option.name == "regime":
        text = f"{text}: {', '.join(REGIMES)}; or several."
    switch = f"{option.flag}/--no-{option.key}" if option.kind is bool else option.flag
    default = option.default_text or (
        as_typed(option.default) if isinstance(option.default, str | int | float) else ""
    )
    complete = COMPLETIONS.get(option.name)
    if complete is None and option.choices:
        complete = completing(option.typed_choices)
    declared = typer.Option(
        switch,
        help=text,
        show_default=default or False,
        rich_help_panel=option.panel,
        autocompletion=complete,
    )
    kind: Any = str if option.axis else option.kind
    return parameter(option.name, Annotated[kind | None, declared])


@dataclass(frozen=True)
class RequestOptions:
    """The options of a grid request that are not fields of the run spec."""

    PANEL: ClassVar[str] = WHAT

    grid: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with the axes and settings; options of the command line win."
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value: a hyper-parameter; method.key=value: of that method only."
        ),
    ] = None
    plugin: PluginFiles = None
    data_dir: DataDir = None
    skip_bad: SkipBad = False

    def request(self, typed: Mapping[str, Any]) -> GridRequest:
        """The request of the run options, which override the grid file, if there is one."""
        from ssmlbench.grid.toml_file import read_grid

        values = {
            name: typed_list(value, OPTIONS[name].kind, OPTIONS[name].flag)
            if isinstance(value, str) and OPTIONS[name].axis
            else value
            for name, value in typed.items()
            if value is not None
        }
        settings = key_values(self.set_, "--set", "loss=bce")
        request = GridRequest(values, settings, plugins=tuple(self.plugin or ()))
        return request.over(read_grid(self.grid) if self.grid else None)


@dataclass(frozen=True)
class Where:
    """Where and how runs are made; no option here is part of the spec."""

    PANEL: ClassVar[str] = WHERE

    results: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("results")
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1 (one GPU of several), mps.")
    ] = "auto"
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Runs made at the same time.",
            show_default="one per GPU, or as many as the cores allow",
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads of a run.",
            show_default="1; fine-tuned encoders: all cores, or a GPU's share",
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(help="Threads of a run that decode images.", show_default="the cores it has"),
    ] = None
    decoded_cache: Annotated[
        bool,
        typer.Option(
            "--decoded-cache/--no-decoded-cache",
            help="Decode large image sets once, and keep the pixels on disk for all runs.",
        ),
    ] = True
    gpus: Annotated[
        int,
        typer.Option(
            help="GPUs that share each run of a fine-tuned encoder; with --device cpu, processes.",
            min=1,
        ),
    ] = 1
    micro_batch: Annotated[
        int | None,
        typer.Option(
            help="Rows that go through a fine-tuned encoder at a time; the batch stays the same.",
            show_default="all of a step; fewer after the device ran out of memory",
            min=1,
        ),
    ] = None
    checkpoint_activations: Annotated[
        bool,
        typer.Option(
            "--checkpoint-activations",
            help="Recompute activations of a fine-tuned encoder instead of storing them: less memory.",
        ),
    ] = False
    keep_model: Annotated[
        bool | None,
        typer.Option(
            "--keep-model/--no-keep-model",
            help="Store each run's model, for `ssmlbench predict`.",
            show_default="if it is at most 256 MB",
        ),
    ] = None
    keep_features: Annotated[
        bool,
        typer.Option(
            "--keep-features",
            help="Store the features of the sampled training rows, to compute VDFD yourself.",
        ),
    ] = False
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="The longest that a run may train, e.g. 90s, 30m, 2h; it fails then, and a longer "
            "limit continues it.",
            show_default="none",
        ),
    ] = None
    log: LogTo = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and failures.")] = False
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the runs and their states; make none."),
    ] = False


# ------------------------------------------------------------------------- choosing finished runs


def number_parameters() -> list[inspect.Parameter]:
    """An option for the number of every regime, by which finished runs are chosen."""
    return [
        parameter(
            option.name,
            Annotated[
                str | None,
                typer.Option(
                    option.flag,
                    help=f"{', '.join(option.regimes)}: only these values of {option.symbol}.",
                ),
            ],
        )
        for option in NUMBERS
    ]
