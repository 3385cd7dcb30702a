"""Shows warnings for the user on one line each."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ssmlbench.core.errors import DamageWarning, LeftOutWarning, PluginWarning


def show_plainly() -> None:
    """Show our own warnings as one line, without a line of code; all others as before."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning | DamageWarning | LeftOutWarning):
            sys.stderr.write(f"warning: {message}\n")
        else:
            usual(message, category, *rest, **more)

    warnings.showwarning = show
