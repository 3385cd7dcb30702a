"""Errors that a user sees: mistakes in a command, failed runs, and plugins that do not load.

Any other exception that escapes is a bug and keeps its traceback.
"""


class UserError(Exception):
    """Something the user typed or wrote: one line that says what was wrong and what to type instead.

    The command line prints the line and exits with code 2.
    """


class RunFailed(Exception):
    """A run that started and could not finish (a loss that is not finite, a plugin that raised)."""

    def __init__(self, message: str, member: str = "", literal: str = ""):
        """member: the plugin's function to look at; literal: a text in it, e.g. a term's name."""
        super().__init__(message)
        self.member = member
        self.literal = literal


class Diverged(RunFailed):
    """A loss or weights that are not finite: the same spec would fail again."""


class ContractError(RunFailed):
    """A plugin that does not keep to its contract, in the contract's words."""


class PluginWarning(UserWarning):
    """An installed plugin that cannot be used. The other plugins still work."""
