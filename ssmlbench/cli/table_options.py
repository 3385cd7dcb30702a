"""The options by which `compare` shapes its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ssmlbench.cli.options import key_values
from ssmlbench.core.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.boards.render.latex import LatexStyle
    from ssmlbench.boards.render.names import RowNames
    from ssmlbench.boards.render.numbers import NumberStyle


@dataclass(frozen=True)
class TableOptions:
    """The shape of tables, and how numbers and names are written."""

    PANEL: ClassVar[str] = "How tables look"

    layout: Annotated[
        str,
        typer.Option(
            help="boards; sets: methods × (data sets × π), a table for each --metric (mAP if none is "
            "typed); metrics: methods × metrics, a table for each data set.",
        ),
    ] = "boards"
    digits: Annotated[
        int | None, typer.Option(help="Decimals.", show_default="4; 2 with --percent")
    ] = None
    percent: Annotated[bool, typer.Option("--percent", help="Metrics in percent.")] = False
    display_names: Annotated[
        bool,
        typer.Option("--display-names", help="Methods as papers write them, e.g. CAP for cap."),
    ] = False
    rename: Annotated[
        list[str] | None,
        typer.Option(
            help="name=text: what a method is called, e.g. --rename mine=Ours; may be repeated."
        ),
    ] = None
    align: Annotated[
        str,
        typer.Option(
            help="LaTeX: plain, or siunitx for S columns (the paper then loads that package)."
        ),
    ] = "plain"
    caption: Annotated[
        str, typer.Option(help="LaTeX: the caption instead of the title.", show_default="the title")
    ] = ""
    label: Annotated[
        str, typer.Option(help="LaTeX: the label, e.g. tab:main.", show_default="by the title")
    ] = ""

    @property
    def numbers(self) -> NumberStyle:
        """The format of numbers."""
        from ssmlbench.boards.render.numbers import NumberStyle

        return NumberStyle(self.digits, self.percent)

    @property
    def names(self) -> RowNames:
        """The names of rows."""
        from ssmlbench.boards.render.names import RowNames

        return RowNames(self.display_names, key_values(self.rename, "--rename", "mine=Ours"))

    def latex(self, format_: str) -> LatexStyle:
        """The style of LaTeX tables; a UserError if options of it are given for another format."""
        from ssmlbench.boards.render.latex import LatexStyle

        style = LatexStyle(self.align, self.caption, self.label)
        if format_ != "latex" and style != LatexStyle():
            raise UserError("--align, --caption and --label are for --format latex")
        return style
