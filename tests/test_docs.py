"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

from ssmlbench.cli.check import check_plugins
from ssmlbench.core.console import Console
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.plugins.loader import Plugins, load_file
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.schema import COST_FIELDS, RESULT_VERSION, MadeWith, Result
from tests.cli.test_usage_mistakes import commands
from tests.conftest import ROOT

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OTHER_OPTIONS = {
    *("--help", "--version", "--install-completion", "--show-completion"),  # of `ssmlbench` itself
    *("--nproc-per-node", "--nnodes"),  # of torchrun
    *("--keep", "--found", "--on"),  # of the fuzzer and the benchmarks
}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "leaderboards" / "README.md"]


def test_every_data_set_is_on_the_data_page(plugins: Plugins) -> None:
    page = (ROOT / "docs" / "datasets.md").read_text()
    assert [name for name in plugins.datasets if f"`{name}`" not in page] == []


def test_the_protocol_page_has_the_table_of_regimes() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    table = page.partition("| regime | what is known |\n| --- | --- |\n")[2].partition("\n\n")[0]
    first = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]
    assert [cell.split("`")[1] for cell in first] == list(REGIMES)
    flags = {name: REGIME_NUMBERS[name].flag for name in REGIMES if name in REGIME_NUMBERS}
    assert [cell for cell in first if "--" in cell and flags[cell.split("`")[1]] not in cell] == []


def test_the_results_page_has_every_field_of_the_schema() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    named = set(re.findall(r"`([a-z_.]+)`", page))
    for field in Result.__annotations__:
        assert field in named or any(name.startswith(f"{field}.") for name in named), field
    for field in MadeWith.__annotations__:
        assert {f"made_with.{field}", f".{field}"} & named, field
    assert {f"cost.{field}" for field in COST_FIELDS} <= named
    assert f"Version {RESULT_VERSION}." in page


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(
            r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()
        ):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_architecture_page_names_every_room_and_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "ssmlbench"
    rooms = {folder.name for folder in package.iterdir() if (folder / "__init__.py").is_file()}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == rooms
    assert len(rooms) <= 12
    assert {file.stem for file in package.glob("*.py")} == {"__init__", "__main__", "api"}
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", page)
    assert [p for p in paths if not (package / p).exists() and not (ROOT / p).exists()] == []


def test_the_step_on_the_plugin_page_passes_the_check(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    block = page.partition("```python\ndef setup")[2].partition("```")[0]
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom torch import nn\nfrom ssmlbench.api import Method, bce\n\n\n"
        'class Mine(Method):\n    """Mine."""\n\n    name = "mine"\n    unlabelled_views = ()\n\n'
        + indent(f"def setup{block}", "    ")
    )
    console = Console(record=True, width=200)
    assert check_plugins(str(file), console), console.export_text()
    assert "warning" not in console.export_text().lower()


def test_the_tables_of_the_documents_are_what_their_commands_print() -> None:
    tables = load_file(ROOT / "docs" / "tables.py")
    for page in tables.PAGES:
        text = page.read_text()
        assert tables.TABLE.search(text), f"{page.name} has no table"
        assert tables.with_tables(text) == text, f"{page.name} is stale: run `make tables`"


def test_options_named_in_the_documents_exist() -> None:
    """After `ssmlbench VERB` its own options; elsewhere those of any verb, or of another tool."""
    verbs = {
        words: {flag for own in command.params for flag in (*own.opts, *own.secondary_opts)}
        for words, command in commands()
    }
    known = set().union(*verbs.values()) | OTHER_OPTIONS
    for page in PAGES:
        text = page.read_text().replace("\\\n", "")
        for line in re.findall(r"(?:^|[\s`])ssmlbench ([a-z][^`\n#]*)", text):
            words = tuple(line.split())
            verb = next((words[:n] for n in (2, 1) if words[:n] in verbs), None)
            wrong = set(OPTION.findall(line)) - verbs[verb] if verb else set()
            assert wrong <= {"--help"}, f"{page.name}: ssmlbench {line}"
        named = {flag for code in re.findall(r"`([^`\n]*)`", text) for flag in OPTION.findall(code)}
        assert named <= known, f"{page.name}: {named - known}"


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / "README.md").read_text()
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert commands[-1] == "make test"


def test_files_named_in_the_documents_exist() -> None:
    """Paths of the checkout between backticks: a moved module left stale names behind."""
    for page in PAGES:
        for name in re.findall(
            r"`((?:ssmlbench|tests|docs|benchmarks)/[\w./-]+)`", page.read_text()
        ):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_tests_named_in_the_documents_exist() -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= tests, f"{page.name}: {named - tests}"
