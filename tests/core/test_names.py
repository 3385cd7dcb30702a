"""What plugins, data sets and labels may be called; nothing leaves the results folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import check_label, check_name
from ssmlbench.core.registry import Registry
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.schema import SchemaError, parse_spec

SPEC = RunSpec(method="bce", dataset="toy", pi=0.1)
ESCAPES = ["../../out", "/etc/x", "a/b", "a\\b", "..", ".", "", "a\0b", "\x1b[31mred", "a\nb"]


@pytest.mark.parametrize(
    "name", [*ESCAPES, "-rf", ".hidden", "=1+1", "a b", "ünï", "a" * 101, "a."]
)
def test_a_name_that_is_no_name_is_refused_at_registration(name: str) -> None:
    with pytest.raises(UserError):
        check_name(name, "method")
    plugin = type("Plugin", (), {"name": name})
    with pytest.raises(UserError):
        Registry[object]("method").add(plugin)


@pytest.mark.parametrize("name", ["cap", "bert-base-uncased", "C++", "my_data.v2", "0", "A" * 100])
def test_usual_names_are_names(name: str) -> None:
    check_name(name, "method")


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("field", ["method", "dataset"])
def test_a_run_never_leaves_the_results_folder(name: str, field: str, tmp_path: Path) -> None:
    spec = dataclasses.replace(SPEC, **{field: name})
    with pytest.raises(UserError, match="cannot be the name"):
        RunFolder.of(tmp_path, spec)
    with pytest.raises(SchemaError, match="which is not a name"):
        parse_spec({**SPEC.as_dict(), field: name})


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        " a",
        "a\n",
        "\x1b]0;title\x07",
        "a\u202eb",
        "\ud800",
        "a\u2028b",
        "x" * 301,
        "\u200b",
        "\u2060 \u200d",
    ],
)
def test_a_label_with_hidden_characters_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="rename it"):
        check_label(name, "data set mine")


@pytest.mark.parametrize("name", ["-ve", "=SUM", "naïve", "می‌خواهم", "法律", "👩‍🔬", "a, b; c"])
def test_a_label_may_be_in_any_script(name: str) -> None:
    check_label(name, "data set mine")
