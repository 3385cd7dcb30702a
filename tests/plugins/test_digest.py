"""The digest of a plugin's code: what it covers, and what it does not depend on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import PLUGIN_PREFIX
from ssmlbench.core.paths import builtin_root
from ssmlbench.plugins.digest import DIGEST_PREFIX, CodeReader, code_digest, is_old_digest
from ssmlbench.plugins.loader import Plugins, load_file

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "ssmlbench" / "kit"

CODED = {"an", "wan", "ls", "nls", "l1r", "l2r", "epr", "entmin", "em", "em_apl"}
LARGE = {"llr", "llct", "llcp"}
ROLES = {"role", "role_li"}
RANKED = {"cap", "bbam", "hml"}
PARTIAL = CODED | LARGE | ROLES | {"asl", "focal"}


def texts(plugins: Plugins, edited: dict[str, str]) -> dict[str, list[str]]:
    """What is digested of every built-in method, with some files' text edited."""
    reader = CodeReader(builtin_root() / "methods", PLUGIN_PREFIX, edited)
    return {name: reader.texts(plugins.methods[name]) for name in plugins.methods}


@pytest.fixture(scope="module")
def unchanged(plugins: Plugins) -> dict[str, list[str]]:
    return texts(plugins, {})


def kit_file(definition: str) -> Path:
    (file,) = [
        f for f in KIT.rglob("*.py") if re.search(rf"^{definition}\b", f.read_text(), re.MULTILINE)
    ]
    return file


def changed(
    plugins: Plugins, unchanged: dict[str, list[str]], file: Path, old: str, new: str
) -> set[str]:
    """The methods whose digest is another after one edit."""
    text = file.read_text()
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file.name}"
    after = texts(plugins, {str(file): text.replace(old, new)})
    return {name for name in after if after[name] != unchanged[name]}


# ------------------------------------------------------------------------------- built-in methods

EDITS = {
    # definition that is edited: (old, new, the methods that use it)
    "def soft_loss": ("return soft_loss_of(logits.", "return 2 * soft_loss_of(logits.", {"mime"} | ROLES),
    "def soft_loss_of": ("q = (-logits)", "q = 1 - (logits)", CODED | ROLES | {"mime"}),
    "def coded_loss": ("known = positive * observed", "known = 1.0 * observed", CODED),
    "EPSILON": ("EPSILON = 1e-5", "EPSILON = 1e-6", CODED | ROLES | {"mime"}),
    "def asymmetric_loss": ("weight = (1 -", "weight = (2 -", {"cap", "asl", "d2l_mat"}),
    "def angles": ("cosines.clamp(-MAX", "cosines.clamp(-0.9 * MAX", {"bbam", "hml"}),
    "MAX_COSINE": ("MAX_COSINE = 1 - 1e-6", "MAX_COSINE = 1 - 1e-5", {"bbam", "hml"}),
    "def class_aware_labels": (" positives = (prior * n)", " positives = (n * prior)", RANKED),
    "def nth_largest": ("len(scores)) - 1", "len(scores)) - 2", RANKED | {"em_apl"}),
    "def moved_thresholds": ("m * tau +", "tau * m +", {"freematch", "flatmatch"}),
    "def large_losses": ("u >= t", "u > t", LARGE),
    "def positives_penalty": ("- kappa) /", "- kappa) * 2 /", {"epr"} | ROLES),
    "def expected_positives": ("pool.prior.sum()", "pool.prior.mean()", {"epr"} | ROLES),
    "class EntropyMethod": ("p, -self.config.alpha", "p, self.config.alpha", {"em", "em_apl"}),
    "class LargeLossMethod": ("return (epoch - 1) *", "return epoch *", {"llr", "llct"}),
    "class PenalisedMethod": ("penalty * self.norm", "penalty + self.norm", {"l1r", "l2r"}),
    "class EstimatedLabelsMethod": ("self.config.label_lr *", "2 * self.config.label_lr *", ROLES),
    # The class: its entries' loss is overridden by some, its terms by others.
    "class PartialMethod": (
        '"entries": self.entry_loss(logits, observed).mean()',
        '"entries": self.entry_loss(logits, observed).sum()',
        PARTIAL - ROLES - {"em_apl", "llcp"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("definition", EDITS)
def test_an_edited_definition_of_the_kit_changes_the_methods_that_use_it(
    definition: str, plugins: Plugins, unchanged: dict[str, list[str]]
) -> None:
    old, new, users = EDITS[definition]
    assert changed(plugins, unchanged, kit_file(definition), old, new) == users


def test_the_contract_is_the_protocols(plugins: Plugins, unchanged: dict[str, list[str]]) -> None:
    edit = ("return logits.sigmoid()", "return logits.tanh()")
    assert changed(plugins, unchanged, KIT / "method.py", *edit) == set()


def test_an_edited_method_file_changes_that_method_alone(
    plugins: Plugins, unchanged: dict[str, list[str]]
) -> None:
    file = builtin_root() / "methods" / "softmatch.py"
    assert changed(plugins, unchanged, file, "RARE = 1e-6", "RARE = 1e-5") == {"softmatch"}


def test_words_annotations_and_imports_change_nothing(
    plugins: Plugins, unchanged: dict[str, list[str]]
) -> None:
    edits = {
        "methods/cap.py": [
            ('"""Each label takes', '"""A label takes'),
            ("# ranks: logits will do", "# logits"),
            ("    regimes = ", "    # which regimes\n    regimes = "),
            ('"γ⁺ of ASL"', '"γ⁺: another word"'),
            ("search=between(0.5, 1.0)", "search=between(0.25, 1.0)"),
            ("gets no pseudo-positive (released: all rows)", "has none"),
            ("from torch import Tensor\n", "import math\nimport torch\nfrom torch import Tensor\n"),
            ("-> dict[str, Tensor]:", "-> dict[str, torch.Tensor]:"),
            ("    asymmetric_loss,\n", ""),
            ("    return asymmetric_loss(", "    return api.asymmetric_loss("),
            (
                "from ssmlbench.api import (",
                "from ssmlbench import api\nfrom ssmlbench.api import (",
            ),
        ],
        "kit/losses.py": [
            ('"""arccos, kept', '"""Kept'),
            ("from torch.nn import functional as F", "import torch.nn.functional as fun"),
            ("F.", "fun."),
            ("logits: Tensor, targets: Tensor) -> Tensor:", "logits, targets):"),
        ],
    }
    edited = {}
    for end, pairs in edits.items():
        file = (builtin_root() if end.startswith("methods") else ROOT / "ssmlbench") / end
        text = file.read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        edited[str(file)] = text
    assert texts(plugins, edited) == unchanged


def test_moved_renamed_and_reformatted_files_change_no_digest(
    tmp_path: Path, plugins: Plugins
) -> None:
    """In a copy: losses.py is renamed, a family moves, all is written anew without its layout."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("ssmlbench", "methods", "datasets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    kit = tmp_path / "ssmlbench" / "kit"
    (kit / "losses.py").rename(kit / "entry_terms.py")
    (kit / "families" / "entropy.py").rename(kit / "unknowns.py")
    (tmp_path / "methods" / "cap.py").rename(tmp_path / "methods" / "class_aware.py")
    for file in [*(tmp_path / "ssmlbench").rglob("*.py"), *(tmp_path / "methods").glob("*.py")]:
        text = file.read_text().replace("kit.losses", "kit.entry_terms")
        text = text.replace("kit.families.entropy", "kit.unknowns")
        file.write_text(text)
    rewrite = (
        "import ast, pathlib, sys\n"
        "files = [*pathlib.Path('ssmlbench/kit').rglob('*.py'), *pathlib.Path('methods').iterdir()]\n"
        "for file in files:\n"
        "    file.write_text(ast.unparse(ast.parse(file.read_text())))\n"
        "from ssmlbench.plugins.loader import Plugins\n"
        "from ssmlbench.plugins.digest import code_digest\n"
        "plugins = Plugins()\n"
        "print(*(f'{name}={code_digest(plugins.methods[name])}' for name in plugins.methods))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", rewrite], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    found = dict(pair.split("=") for pair in made.stdout.split())
    assert found == {name: code_digest(plugins.methods[name]) for name in plugins.methods}


def test_all_digests_together_are_fast(plugins: Plugins) -> None:
    before = time.process_time()
    texts(plugins, {})
    assert time.process_time() - before < 1.5  # a third of a second on a quiet machine


def test_public_names_of_the_kit_are_defined_once() -> None:
    reader = CodeReader(builtin_root() / "methods", PLUGIN_PREFIX)
    assert {name for name, homes in reader.homes().items() if len(homes) > 1} == set()


# ------------------------------------------------------------------------------- users' plugins

HELPERS = """
def base(x):
    return x.mean()

def unused(x):
    return x.max()
"""

PLUGIN = '''
from functools import partial
import operator

import my_helpers
from my_helpers import base as reduced
from ssmlbench.api import Method, bce

SCALE = 2.0
UNUSED = 5.0
TABLE = {"mean": lambda x: reduced(x)}
TABLE["sum"] = my_helpers.base
halved = partial(operator.mul, 0.5)

def logged(function):
    return function

def doubled(x):
    return SCALE * x

class _Base(Method):
    rules = {"twice": doubled}

    def entry(self, logits, targets):
        return self.rules["twice"](bce(logits, targets))

    def overridden(self):
        return 1.0

class Mine(_Base):
    """Words."""
    name = "mine"

    @logged
    def loss(self, labelled, unlabelled):
        entries = self.entry(labelled.logits("strong"), labelled.observed)
        return {"labelled": halved(TABLE["mean"](entries)) * self.overridden()}

    def overridden(self):
        return super().overridden()

    def never_called(self):
        return unused_helper()

def unused_helper():
    return 3
'''


@pytest.fixture
def digest_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The digest of the plugin after edits: pairs of texts in the plugin, or in its helper file."""
    count = 0

    def call(*edits: tuple[str, str], helper: tuple[tuple[str, str], ...] = ()) -> str:
        nonlocal count
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "my_helpers", raising=False)
        for name, text, pairs in (
            ("my_helpers.py", HELPERS, helper),
            ("mine.py", PLUGIN, edits),
        ):
            for old, new in pairs:
                assert text.count(old) == 1, old
                text = text.replace(old, new)
            (folder / name).write_text(text)
        return code_digest(vars(load_file(folder / "mine.py"))["Mine"])

    return call


REACHED: dict[str, Any] = {
    "a method": [('halved(TABLE["mean"]', 'halved(TABLE["sum"]')],
    "a base class in the same file": [("](bce(logits, targets))", "](bce(logits, targets) + 1)")],
    "a method by super()": [("return 1.0", "return 1.5")],
    "a function in a table of the class": [("return SCALE * x", "return x")],
    "a constant": [("SCALE = 2.0", "SCALE = 2.5")],
    "a lambda in a table": [("lambda x: reduced(x)", "lambda x: reduced(x) + 1")],
    "an entry set later": [('TABLE["sum"] = my_helpers.base', 'TABLE["sum"] = None')],
    "a partial": [("operator.mul, 0.5", "operator.mul, 0.25")],
    "a decorator": [("    return function", "    return lambda *a: function(*a)")],
    "an import of the same name": [("from my_helpers import base as", "from my_helpers import unused as")],
    "the class's head": [('    name = "mine"', '    name = "mine"\n    head = "cosine"')],
}  # fmt: skip
NOT_REACHED: dict[str, Any] = {
    "a docstring": [('"""Words."""', '"""Other words."""')],
    "a comment": [("SCALE = 2.0", "SCALE = 2.0  # σ")],
    "layout": [("return SCALE * x", "return (\n        SCALE\n        * x\n    )")],
    "another alias": [("import operator\n", "import operator as o\n"), ("operator.mul", "o.mul")],
    "the order of definitions": [("SCALE = 2.0\nUNUSED = 5.0", "UNUSED = 5.0\nSCALE = 2.0")],
    "an annotation": [("def doubled(x):", "def doubled(x: object) -> object:")],
    "an unused constant": [("UNUSED = 5.0", "UNUSED = 6.0")],
    "a function that only an unused method calls": [("return 3", "return 4")],
    "the paper": [('    name = "mine"', '    name = "mine"\n    paper = "me"')],
}  # fmt: skip


@pytest.mark.parametrize("what", REACHED)
def test_what_a_plugin_reaches_is_digested(what: str, digest_of: Callable[..., str]) -> None:
    assert digest_of(*REACHED[what]) != digest_of()


@pytest.mark.parametrize("what", NOT_REACHED)
def test_what_changes_no_number_is_not(what: str, digest_of: Callable[..., str]) -> None:
    assert digest_of(*NOT_REACHED[what]) == digest_of()


def test_a_helper_file_beside_the_plugin_is_digested(digest_of: Callable[..., str]) -> None:
    assert digest_of(helper=(("x.mean()", "x.sum()"),)) != digest_of()
    assert digest_of(helper=(("x.max()", "x.min()"),)) == digest_of()


def test_names_that_are_computed_reach_every_member(digest_of: Callable[..., str]) -> None:
    by_name = ("* self.overridden()}", '* getattr(self, "over" + "ridden")()}')
    assert digest_of(by_name) != digest_of(by_name, ("return unused_helper()", "return 1"))
    assert digest_of() == digest_of(("return unused_helper()", "return 1"))
    constant = ("* self.overridden()}", '* getattr(self, "overridden")()}')
    assert digest_of(constant) == digest_of(constant, ("return unused_helper()", "return 1"))


def test_a_local_variable_hides_a_function_of_its_name(digest_of: Callable[..., str]) -> None:
    local = ("        entries =", "        unused_helper = 1\n        entries =")
    assert digest_of(local) == digest_of(local, ("return 3", "return 4"))


def test_an_encoder_is_digested_too(tmp_path: Path) -> None:
    text = textwrap.dedent("""
        from torch import nn
        from ssmlbench.api import Encoder

        def width(x):
            return 4

        class Mine(Encoder):
            name, kinds = "mine", ("vector",)

            def __init__(self, example, options=None):
                super().__init__()
                self.features = width(example)
    """)
    digests = set()
    for number, new in enumerate(("return 4", "return 4  # wide", "return 5")):
        file = tmp_path / f"encoder_{number}.py"
        file.write_text(text.replace("return 4", new))
        digests.add(code_digest(vars(load_file(file))["Mine"]))
    assert len(digests) == 2


MADE = {
    "by a function": (
        "def make(size):\n    class Made(Plain):\n        name, scale = 'made', size\n    return Made\n"
        "Here = make(2)\n"
    ),
    "by type": "Made = type('Made', (Plain,), {'name': 'made', 'scale': 2})\n",
    "in a loop": "for size in (2, 3):\n    name = 'made' if size < 3 else 'other'\n"
    "    globals()[name] = type(name, (Plain,), {'name': name, 'scale': size})\n",
}


@pytest.mark.parametrize("how", MADE)
def test_what_a_call_gives_a_class_is_digested(tmp_path: Path, how: str) -> None:
    plain = (
        "from ssmlbench.api import Method, bce\n\n"
        "class Plain(Method):\n"
        '    """Learns from labelled rows."""\n\n'
        "    name, scale = 'plain', 1\n\n"
        "    def loss(self, labelled, unlabelled):\n"
        "        return {'loss': self.scale * bce(labelled.logits('strong'), labelled.observed).mean()}\n\n"
    )
    digests = []
    for number, text in enumerate((MADE[how], MADE[how].replace("2", "1"))):
        file = tmp_path / f"made{number}.py"
        file.write_text(plain + text)
        digests.append(code_digest(Plugins([file]).methods["made"]))
    assert digests[0] != digests[1]


def test_a_class_without_a_file_is_named() -> None:
    namespace: dict[str, Any] = {"__name__": "__nowhere__"}
    exec("class Lost: pass", namespace)
    with pytest.raises(UserError, match="class Lost is in no file"):
        code_digest(namespace["Lost"])


def test_digests_of_lines_are_told_from_digests_of_syntax(plugins: Plugins) -> None:
    digest = code_digest(plugins.methods["cap"])
    assert re.fullmatch(DIGEST_PREFIX + "[0-9a-f]{12}", digest)
    assert not is_old_digest(digest)
    assert is_old_digest("0123456789ab")
