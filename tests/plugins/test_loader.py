"""Plugins: the built-in folders and a user's file go through one loader."""

from __future__ import annotations

import marshal
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.published import read_published
from ssmlbench.cli import main
from ssmlbench.cli.verbs import VERBS as ALL_VERBS
from ssmlbench.cli.verbs import load_verb
from ssmlbench.core.errors import UserError
from ssmlbench.grid.payload import RunPayload
from ssmlbench.plugins.digest import code_digest
from ssmlbench.plugins.loader import Plugins, load_file
from ssmlbench.runs.context import RunContext
from tests.conftest import ROOT

METHOD = '''
from ssmlbench.api import bce
from ssmlbench.api import Method

class Mine(Method):
    """Mine."""
    name = "mine"
    unlabelled_views = ()
    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_the_built_in_methods_and_data_sets_are_found(plugins: Plugins) -> None:
    assert {"bce", "cap", "bbam"} <= set(plugins.methods)
    assert "multidigits" in plugins.datasets


def test_every_method_file_holds_one_method_and_imports_no_other() -> None:
    for file in sorted((ROOT / "methods").glob("*.py")):
        module = load_file(file)
        own = [
            thing
            for thing in vars(module).values()
            if isinstance(thing, type)
            and thing.__module__ == module.__name__
            and "name" in vars(thing)
        ]
        assert len(own) == 1, file
        assert own[0].name == file.stem  # type: ignore[attr-defined]
        assert "import methods" not in file.read_text()
        assert "from methods" not in file.read_text()


def test_a_users_file_is_loaded_like_a_built_in_one(tmp_path: Path) -> None:
    plugins = Plugins([write(tmp_path, METHOD)])
    assert plugins.methods["mine"].name == "mine"


def test_an_unknown_name_is_answered_with_a_close_one(plugins: Plugins) -> None:
    with pytest.raises(UserError, match=r"Did you mean .*bbam"):
        plugins.methods["bbma"]


def test_an_unknown_data_set_is_answered_with_the_way_to_name_own_data(plugins: Plugins) -> None:
    with pytest.raises(UserError, match=r"There is: aapd, .* Your own data are typed as a path"):
        plugins.datasets["mine"]


def test_a_plugin_file_that_was_not_named_is_suggested(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, METHOD, "my_own.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"unknown method 'my-own'. .* add --plugin my_own.py$"):
        plugins.methods["my-own"]


def test_a_file_that_is_no_data_set_is_not_taken_for_a_name(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a,b", "data.xlsx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data set .*data.xlsx: cannot be read; expected"):
        plugins.data_set("data.xlsx")


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two plugins have the name of method 'cap'"):
        Plugins([write(tmp_path, METHOD.replace('"mine"', '"cap"'))])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("import nothing_of_that_name", "mine.py:1: does not import: ModuleNotFoundError"),
        ("x = 1\nclass (", "mine.py:2: does not import: SyntaxError"),
        (
            "import pytest\npytest.skip('later', allow_module_level=True)",
            "mine.py:2: .*Skipped: later",
        ),
        ("raise BaseExceptionGroup('two', [KeyboardInterrupt()])", "mine.py:1: .*two"),
        ("x = 1", "no plugin in it"),
        (METHOD.replace('    name = "mine"\n', ""), "mine.py:5: class Mine has no `name`"),
        (METHOD.replace('"mine"', '""'), "mine.py:7: class Mine has an empty `name`"),
        (
            METHOD.replace('"mine"', '["a"]'),
            r"mine.py:7: class Mine has the name \['a'\], which is no",
        ),
        (METHOD.replace('"mine"', '"a b"'), "mine.py:7: method 'a b': a name has letters"),
    ],
)
def test_a_file_that_is_no_plugin_says_why(tmp_path: Path, text: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        Plugins([write(tmp_path, text)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Plugins([tmp_path / "none.py"])


def test_an_edited_method_is_another_method_but_a_comment_is_none(tmp_path: Path) -> None:
    first = Plugins([write(tmp_path, METHOD, "a.py")]).methods["mine"]
    commented = Plugins([write(tmp_path, "# why\n\n" + METHOD, "b.py")]).methods["mine"]
    edited = Plugins([write(tmp_path, METHOD.replace(".mean()", ".sum()"), "c.py")]).methods["mine"]
    assert code_digest(first) == code_digest(commented)
    assert code_digest(first) != code_digest(edited)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig", "utf-8"])
def test_a_file_in_an_encoding_that_python_reads_is_a_plugin(tmp_path: Path, encoding: str) -> None:
    cookie = "" if encoding == "utf-8-sig" else f"# -*- coding: {encoding} -*-\n"
    text = f'{cookie}PLACE = "café"\n{METHOD}'.replace("\n", "\r\n")
    (tmp_path / "mine.py").write_bytes(text.encode(encoding))
    plain = Plugins([write(tmp_path, METHOD, "plain.py")]).methods["mine"]
    plugins = Plugins([tmp_path / "mine.py"])
    assert code_digest(plugins.methods["mine"]) == code_digest(plain)
    payload = RunPayload.of(plugins, RunContext(tmp_path, "cpu"))
    (tmp_path / "mine.py").unlink()
    (copy,) = payload._files()
    assert Path(copy).read_bytes() == text.encode(encoding)


def test_a_file_that_is_named_twice_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, METHOD)
    (tmp_path / "link.py").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    plugins = Plugins([file, "mine.py", "./mine.py", "link.py"])
    assert plugins.files == (str(file),)
    assert plugins.methods["mine"].name == "mine"


def test_ctrl_c_during_an_import_leaves_no_half_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, f"raise KeyboardInterrupt\n{METHOD}")
    with pytest.raises(KeyboardInterrupt):
        Plugins([file])
    write(tmp_path, METHOD)
    assert Plugins([file]).methods["mine"].name == "mine"


def test_import_datasets_at_the_root_is_hugging_faces() -> None:
    code = "import datasets; print(datasets.Dataset.__module__)"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "datasets.arrow_dataset"


def test_a_wheel_installed_elsewhere_has_every_plugin_and_the_papers_tables(
    tmp_path: Path, plugins: Plugins
) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    code = (
        "import ssmlbench; from ssmlbench.plugins.loader import Plugins; p = Plugins();"
        "from ssmlbench.boards.published import read_published;"
        "print(ssmlbench.__file__); print(*p.methods); print(*p.datasets); print(len(read_published()))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=target,
        capture_output=True,
        text=True,
        check=True,
    )
    where, methods, datasets, numbers = made.stdout.splitlines()
    assert Path(where).is_relative_to(target)
    assert methods.split() == list(plugins.methods)
    assert datasets.split() == list(plugins.datasets)
    assert int(numbers) == len(read_published())
    assert (target / "ssmlbench" / "boards" / "report" / "assets" / "page.html").is_file()


# What --plugin takes --------------------------------------------------------------------------------

RUN = ("--method", "bce", "--dataset", "multidigits", "--pi", "0.05", "--dry-run")
VERBS = {
    "run": RUN,
    "tune": (*RUN, "--trials", "1"),
    "methods": (),
    "datasets": (),
    "data prepare": ("multidigits",),
    "data verify": ("multidigits",),
    "data list": (),
    "data show": ("multidigits",),
    "doctor": ("--dry-run",),
    "analyse ablation": ("--method", "bbam", *RUN[2:]),
    "analyse sensitivity": ("--method", "cap", *RUN[2:], "--param", "positive_share"),
}
ON_RUNS = {
    "predict",
    "recommend",
    "analyse landscape",
}  # they train, or need what was trained: tests of their own


def verbs_with_plugins(commands: dict[str, Any], path: str = "") -> set[str]:
    found = set()
    for name, command in commands.items():
        if hasattr(command, "commands"):
            found |= verbs_with_plugins(command.commands, f"{path}{name} ")
        elif any("--plugin" in parameter.opts for parameter in command.params):
            found.add(f"{path}{name}")
    return found


def test_every_verb_with_a_plugin_option_is_tried_below() -> None:
    commands = {name: load_verb(name) for name in ALL_VERBS}
    assert verbs_with_plugins(commands) == {*VERBS, *ON_RUNS}


def write_plugin(kind: str, folder: Path) -> Path:
    folder.mkdir()
    if kind == "Python file":
        return write(folder, METHOD)
    if kind == "data folder":
        for split in ("train", "test"):
            write(folder, "text,labels\nx,a\ny,b\n", f"{split}.csv")
        return folder
    header = "@attribute height numeric\n@attribute big {0,1}\n@data\n1.5,1\n"
    write(folder, '<labels><label name="big"/></labels>', "toy.xml")
    write(folder, header, "toy-test.arff")
    return write(folder, header, "toy-train.arff")


@pytest.mark.parametrize("kind", ["Python file", "data folder", "ARFF file"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_every_kind_of_plugin(
    verb: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = write_plugin(kind, tmp_path / "plugin")
    monkeypatch.chdir(tmp_path)
    arguments = (*verb.split(), *VERBS[verb], "--plugin", str(plugin))
    monkeypatch.setattr(sys, "argv", ["ssmlbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_a_users_data_is_listed_wherever_data_sets_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_plugin("data folder", tmp_path / "mine")
    for verb in ("datasets", "data list"):
        monkeypatch.setattr(sys, "argv", ["ssmlbench", *verb.split(), "--plugin", str(folder)])
        with pytest.raises(SystemExit):
            main()
        assert "mine" in capsys.readouterr().out


def test_questions_about_data_sets_import_no_torch(tmp_path: Path) -> None:
    folder = write_plugin("data folder", tmp_path / "mine")
    code = (
        "import sys; from typer.testing import CliRunner; from ssmlbench.cli import app\n"
        f"for verb in ('datasets',), ('data', 'list'):\n"
        f"    r = CliRunner().invoke(app, [*verb, '--plugin', {str(folder)!r}])\n"
        "    assert r.exit_code == 0 and 'mine' in r.output, r.output\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def compile_another(file: Path, text: str) -> None:
    """Put code of another source into the place of what Python compiled of a file."""
    compiled = Path(cache_from_source(str(file)))
    compiled.parent.mkdir()
    code = compile(text, str(file), "exec")
    unchecked = (0b01).to_bytes(4, "little")  # Python does not compare it with its source
    compiled.write_bytes(MAGIC_NUMBER + unchecked + bytes(8) + marshal.dumps(code))


LEARNS = METHOD + '    shown = "source"\n'


def test_a_plugin_file_is_its_source_whatever_was_compiled(tmp_path: Path) -> None:
    """The digest of its code is that of the source."""
    file = tmp_path / "mine.py"
    file.write_text(LEARNS)
    compile_another(file, LEARNS.replace('"source"', '"compiled"'))
    assert load_file(file).Mine.shown == "source"


def test_a_plugin_file_is_digested_whatever_file_it_names(tmp_path: Path) -> None:
    file, other = tmp_path / "mine.py", tmp_path / "other.py"
    other.write_text(LEARNS)
    file.write_text(f"{LEARNS}\nMine.shown = 'changed'.lower()\n__file__ = {str(other)!r}\n")
    assert code_digest(load_file(file).Mine) != code_digest(load_file(other).Mine)


def test_a_compiled_helper_that_is_not_of_its_source_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "helper_of_mine.py"
    helper.write_text("def scale(x):\n    return x\n")
    compile_another(helper, "def scale(x):\n    return 1 - x\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(
        f"from helper_of_mine import scale\n{LEARNS}    def scores(self, logits):\n"
        "        return scale(logits.sigmoid())\n"
    )
    with pytest.raises(UserError, match=r"is not compiled from .*helper_of_mine\.py; delete it"):
        code_digest(load_file(file).Mine)
