"""An option that is declared in the run spec is known to the command line and to the grid file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import ssmlbench
from ssmlbench.cli import app
from ssmlbench.cli.run_options import RequestOptions
from ssmlbench.cli.verbs import USAGE_ERROR, _plainly, load_verb
from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.run_options import PANELS, RunOption
from ssmlbench.core.spec import OPTIONS
from ssmlbench.grid.request import GridRequest
from ssmlbench.grid.toml_file import BY_KEY, OTHER_KEYS, read_grid, where_keys
from ssmlbench.protocol.regimes import REGIMES
from tests.cli.test_usage_mistakes import commands, options_with_values
from tests.support.run_options import another_value

COMMANDS = {name: load_verb(name) for name in ("run", "tune")}


def parsed(*arguments: str) -> GridRequest:
    """The request that `ssmlbench run` makes of its arguments."""
    typed = COMMANDS["run"].make_context("run", list(arguments)).params
    source = RequestOptions(typed["grid"], typed["set_"], typed["plugin"])
    return source.request({name: typed[name] for name in OPTIONS})


def in_request(option: RunOption, value: Any) -> Any:
    return (value,) if option.axis else value


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_can_be_typed_and_written_in_a_grid_file(
    option: RunOption, tmp_path: Path
) -> None:
    value = another_value(option)
    words = [option.flag, as_typed(value)]
    if option.kind is bool:
        words = [option.flag if value else f"--no-{option.key}"]
    written = f'"{value}"' if isinstance(value, str) else as_typed(value)
    file = tmp_path / "grid.toml"
    file.write_text(f"{option.key} = {written}\n")
    expected = {option.name: in_request(option, value)}
    assert parsed(*words).values == read_grid(file).values == expected


def wrong_value(option: RunOption) -> Any:
    """A value of the wrong type, or no choice of the field."""
    return 5 if option.kind is str and not option.choices else "ten"


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_wrong_value_of_every_option_is_one_line_in_plain_words(
    option: RunOption, tmp_path: Path
) -> None:
    value = wrong_value(option)
    kinds = {
        int: "must be a whole number",
        float: "must be a number",
        bool: "must be true or false",
    }
    expected = kinds.get(option.kind, "must be a text")
    file = tmp_path / "grid.toml"
    file.write_text(f"{option.key} = {value!r}\n")
    if option.choices:
        choices = ", ".join(sorted(option.typed_choices))
        said = f"^{option.flag} ten: no such choice. There is: {choices}.$"
        with pytest.raises(UserError, match=said):
            option.check(read_grid(file).values[option.name])
    else:
        with pytest.raises(UserError, match=rf"{option.key} = .{{1,5}}: {expected}"):
            read_grid(file)
    if option.kind not in (int, float):
        return
    with pytest.raises(UserError, match=f"{option.name}='ten': {expected}"):
        ssmlbench.run(method="bce", dataset="multidigits", **{option.name: "ten"})
    several = "must be whole numbers" if option.kind is int else "must be numbers"
    for typed in ("ten", "", *(["1.5"] if option.kind is int else [])):
        expected = several if option.axis else expected
        said = expected if typed else f"{option.flag} is empty"
        with pytest.raises((UserError, USAGE_ERROR)) as found:
            parsed(option.flag, typed)
        error = found.value
        text = str(error) if isinstance(error, UserError) else _plainly(error)
        assert text.startswith(option.flag), text
        assert said in text or "is not a valid" in text, "the second: older versions of Typer"


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_number_outside_the_bounds_of_its_option_is_one_line(option: RunOption) -> None:
    if option.kind not in (int, float):
        return
    below = option.least - 1 if option.least is not None else option.above
    high = float("inf") if option.most is None and option.below is None else 2.0**33
    for value in (below, high, *([float("nan")] if option.kind is float else [])):
        if option.kind is int and value == float("inf"):
            continue
        with pytest.raises(UserError, match=f"^{option.flag} .*: must "):
            option.check(value)


def test_what_is_typed_wins_over_the_file_option_by_option(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text("epochs = 3\nlr = 0.5\nseeds = 4\n")
    request = parsed("--grid", str(file), "--epochs", "5", "--seed", "7")
    assert request.values == {"epochs": 5, "lr": 0.5, "seed": (7,)}


@pytest.mark.parametrize("command", ["run", "tune"])
def test_help_shows_every_option_with_its_default_in_a_panel(command: str) -> None:
    params = {param.name: param for param in COMMANDS[command].params}
    for name, option in OPTIONS.items():
        if command == "tune" and name == "seed":
            continue  # its own: one seed
        assert params[name].rich_help_panel == option.panel
        assert option.help in params[name].help
        assert params[name].show_default or not option.default_text
    panels = [param.rich_help_panel for param in params.values() if param.name != "help"]
    assert set(panels) == set(PANELS)
    assert all(regime in params["regime"].help for regime in REGIMES)


def test_every_option_of_run_is_a_key_of_the_grid_file_or_says_where_runs_are_made() -> None:
    flags = {param.opts[0].removeprefix("--") for param in COMMANDS["run"].params}
    # How own data is read is part of the data set there: `dataset = "mine?holdout=0.2"`.
    own_data = {field.name.replace("_", "-") for field in dataclasses.fields(DataOptions)}
    known = {*BY_KEY, *OTHER_KEYS, *where_keys(), *own_data, "tuned", "help"}
    assert flags - known == set()


def test_both_seed_and_seeds_are_refused() -> None:
    from ssmlbench.core.errors import UserError

    with pytest.raises(UserError, match="--seed and --seeds"):
        app(["run", "--seed", "1", "--seeds", "2"], standalone_mode=False)


def test_every_command_that_prepares_data_has_the_options_of_own_data() -> None:
    flags = {f"--{name.replace('_', '-')}" for name in DataOptions.names()}
    preparing = {
        " ".join(path): {flag for option in options_with_values(command) for flag in option.opts}
        for path, command in commands()
        if any("--skip-bad" in option.opts for option in command.params)
    }
    assert {"run", "tune", "recommend", "analyse ablation", "data prepare"} <= preparing.keys()
    switches = {"--drop-leaks", "--allow-outside"}  # that have no value
    assert [verb for verb, known in preparing.items() if flags - switches - known] == []
