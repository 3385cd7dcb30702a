# ruff: noqa: E501 (one line for each mistake)
"""Each mistake in a method is one line of `ssmlbench check`: in the contract's words, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.cli.check import check_plugins, suite
from ssmlbench.core.console import Console
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.resolve import resolve
from tests.checks.test_dataset_mistakes import DATASET, ROW
from tests.support.plugin_mistakes import assert_one_line, checked, mistaken

METHOD = '''
import random
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from ssmlbench.api import Method, bce, between, option


class Mine(Method):
    """Mine."""

    name = "mine"
    regimes = {"semi"}
    head = "linear"
    labelled_views = ("strong",)
    unlabelled_views = ("weak", "strong")
    unlabelled_ema_views = ()

    @dataclass(frozen=True)
    class Config(Method.Config):
        weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))

    def __init__(self, config, labels):
        super().__init__(config, labels)
        self.count = torch.zeros(())

    def start_epoch(self, pools):
        scores = pools.unlabelled.logits(model="ema", view="weak").sigmoid()
        self.targets = (scores >= 0.5).float()
        self.trust = torch.ones_like(self.targets)

    def loss(self, labelled, unlabelled):
        logits = labelled.logits("strong")
        terms = {"labelled": bce(logits, labelled.observed).mean()}
        if unlabelled is not None:
            entries = bce(unlabelled.logits("strong"), self.targets[unlabelled.rows])
            trusted = self.trust[unlabelled.rows] * entries
            terms["unlabelled"] = self.config.weight * trusted.mean()
        return terms

    def scores(self, logits):
        return logits.sigmoid()
'''

RETURN = "        return terms"
TERM = "self.config.weight * trusted.mean()"

# (what is written by mistake, instead of what, what the line says); #! marks the line that is named.
# fmt: off
METHOD_MISTAKES = {
    "diagnostic-number": ('        self.diagnostics["count"] = 3.0  #!\n        return terms', RETURN, "self.diagnostics['count'] is 3.0, expected a tensor with one number"),
    "diagnostic-vector": ('        self.diagnostics["count"] = logits[0]  #!\n        return terms', RETURN, "self.diagnostics['count'] has shape"),
    "hook-misspelt": ("def on_epoch_start(self, pools):  #!", "def start_epoch(self, pools):", "Did you mean start_epoch?"),
    "hook-of-lightning": ("def training_step(self, labelled, unlabelled):  #!", "def loss(self, labelled, unlabelled):", "Did you mean step?"),
    "hook-begin": ("def begin_epoch(self, pools):  #!", "def start_epoch(self, pools):", "Did you mean start_epoch?"),
    "loss-misspelt": ("def losses(self, labelled, unlabelled):  #!", "def loss(self, labelled, unlabelled):", "Did you mean loss?"),
    "scores-misspelt": ("def score(self, logits):  #!", "def scores(self, logits):", "Did you mean scores?"),
    "scores-of-sklearn": ("def predict_proba(self, logits):  #!", "def scores(self, logits):", "Did you mean scores?"),
    "american-views": ('unlabeled_views = ("weak", "strong")  #!', 'unlabelled_views = ("weak", "strong")', "Did you mean unlabelled_views?"),
    "american-labelled-views": (' labeled_views = ("strong",)  #!', ' labelled_views = ("strong",)', "Did you mean labelled_views?"),
    "regime": ('regime = {"semi"}  #!', 'regimes = {"semi"}', "Did you mean regimes?"),
    "config-lower-case": ("class config(Method.Config):  #!", "class Config(Method.Config):", "Did you mean Config?"),
    "config-other-name": ("class HyperParameters(Method.Config):  #!", "class Config(Method.Config):", "Did you mean Config?"),
    "init-misspelt": ("def __int__(self, config, labels):  #!", "def __init__(self, config, labels):", "Did you mean __init__?"),
    "unknown-regime": ('regimes = {"semy"}  #!', 'regimes = {"semi"}', "regimes: there is no 'semy'. Did you mean semi?"),
    "regimes-a-text": ('regimes = "semi"  #!', 'regimes = {"semi"}', "expected a set of texts"),
    "no-regime": ("regimes = set()  #!", 'regimes = {"semi"}', "regimes is empty"),
    "named-all": ('name = "all"  #!', 'name = "mine"', "name is 'all', the word for every method"),
    "ablation-a-number": ('ablations = {"a": 3}  #!', 'head = "linear"', "ablations: 'a' is 3; expected a dictionary of hyper-parameters"),
    "ablation-named-3": ('ablations = {3: {"weight": 2.0}}  #!', 'head = "linear"', "ablations has the name 3; expected a text"),
    "default-nan": ('weight: float = option(float("nan"), "λ: weight")  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its default is NaN; expected a number"),
    "meaning-a-number": ('weight: float = option(1.0, 3)  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its meaning is 3; expected a text"),
    "head-misspelt": ('head = "cosin"  #!', 'head = "linear"', "there is no 'cosin'. Did you mean cosine?"),
    "views-without-comma": (' labelled_views = ("strong")  #!', ' labelled_views = ("strong",)', 'write ("strong",) with the comma'),
    "views-a-set": ('unlabelled_views = {"weak", "strong"}  #!', 'unlabelled_views = ("weak", "strong")', "expected a tuple of texts"),
    "view-misspelt": ('unlabelled_views = ("weak", "stong")  #!', 'unlabelled_views = ("weak", "strong")', "there is no view 'stong'. Did you mean strong"),
    "warm-up-a-text": ('head = "linear"\n    warm_up = "no"  #!', 'head = "linear"', "warm_up is 'no'; expected True or False"),
    "uses-wrong": ('head = "linear"\n    uses = "both"  #!', 'head = "linear"', "expected one of 'labelled rows', 'both pools'. Did you mean both pools?"),
    "loss-is-no-function": ("loss = None  #!\n\n    def _loss(self, labelled, unlabelled):", "def loss(self, labelled, unlabelled):", "loss is None; expected a function"),
    "no-loss": ("class Mine(Method):  #!\n    def _unused(self):\n        pass\n", None, "it must define loss or step"),
    "config-no-dataclass": ("    class Config(Method.Config):  #!", "    @dataclass(frozen=True)\n    class Config(Method.Config):", "write @dataclass(frozen=True) above it"),
    "config-not-frozen": ("    @dataclass\n    class Config:  #!", "    @dataclass(frozen=True)\n    class Config(Method.Config):", "write @dataclass(frozen=True) above it"),
    "config-wrong-type": ('weight: float = option("1.0", "λ")  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its default '1.0' is no float"),
    "config-odd-type": ('weight: list[float] = option(None, "λ")  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its type must be int, float, bool, str"),
    "config-no-default": ("weight: float  #!", 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "has no default"),
    "config-no-type": ("weight = 1.0  #!", 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "write weight: float = 1.0"),
    "config-no-meaning": ("weight: float = 1.0  #!", 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "has no meaning"),
    "config-range": ('weight: float = option(20.0, "λ", search=between(0.1, 10.0))  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its default 20.0 is not in search"),
    "config-literal": ('weight: Literal["a", "b"] = option("c", "λ")  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "its default 'c' is no"),
    "loss-too-few": ("def loss(self, labelled):  #!", "def loss(self, labelled, unlabelled):", "expected (self, labelled, unlabelled)"),
    "loss-without-self": ("def loss(labelled, unlabelled):  #!", "def loss(self, labelled, unlabelled):", "expected (self, labelled, unlabelled)"),
    "loss-swapped": ("def loss(self, unlabelled, labelled):  #!", "def loss(self, labelled, unlabelled):", "expected (self, labelled, unlabelled)"),
    "init-too-few": ("def __init__(self, config):  #!", "def __init__(self, config, labels):", "expected (self, config, labels)"),
    "train-of-torch": ("def train(self, pools, network):  #!", "def start_epoch(self, pools):", "train takes (self, pools, network)"),
    "syntax": ("def loss(self, labelled, unlabelled)  #!", "def loss(self, labelled, unlabelled):", "SyntaxError: expected ':'"),
    "import-misspelt": ("from ssmlbench.api import Method, bse, between, option  #!", "from ssmlbench.api import Method, bce, between, option", "Did you mean bce"),
    "import-of-a-method": ("import time\nfrom bbam import Bbam  #!", "import time\n", "a plugin file imports no other plugin file"),
    "relative-import": ("import time\nfrom .layers import Gate  #!", "import time\n", "a plugin file imports no other plugin file"),
    "command-line-read": ("import time\nimport argparse\nargs = argparse.ArgumentParser('mine').parse_args(['-x'])  #!", "import time\n", 'belongs under if __name__ == "__main__"'),
    "no-base-class": ("class Mine:  #!", "class Mine(Method):", "derive it from Method"),
    "private-class": ("class _Mine(Method):  #!", "class Mine(Method):", "class _Mine is private"),
    "no-super-init": ("        self.count = torch.zeros(())  #!", "        super().__init__(config, labels)\n        self.count = torch.zeros(())", "before it calls super().__init__(config, labels)"),
    "super-init-forgotten": ("    def __init__(self, config, labels):  #!\n        pass", "    def __init__(self, config, labels):\n        super().__init__(config, labels)\n        self.count = torch.zeros(())", "__init__ does not call super().__init__"),
    "error-in-init": ("self.count = torch.zeros(config.wieght)  #!", "self.count = torch.zeros(())", "Did you mean weight?"),
    "loss-a-tensor": ('        return terms["labelled"]', "        return terms", "loss returned a tensor; expected a dictionary", "def loss("),
    "loss-a-tuple": ('        return terms["labelled"], terms', "        return terms", "loss returned a tuple; expected a dictionary", "def loss("),
    "loss-a-list": ('        return [terms["labelled"]]', "        return terms", "loss returned a list; expected a dictionary", "def loss("),
    "no-return": ("        terms = terms", "        return terms", "loss returned nothing", "def loss("),
    "no-term": ("        return {}", "        return terms", "loss returned no term", "def loss("),
    "term-a-float": ('terms["unlabelled"] = float(trusted.mean())  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "leave out .item() and float()"),
    "term-not-scalar": ('terms["unlabelled"] = trusted  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "expected one number: take its mean or sum"),
    "term-of-shape-1": ('terms["unlabelled"] = trusted.mean()[None]  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "expected one number"),
    "term-none": ('terms["unlabelled"] = None  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "is a NoneType, expected a tensor"),
    "nothing-to-learn": ("        return {name: term.detach() for name, term in terms.items()}", "        return terms", "Nothing in it depends on the network", "def loss("),
    "nan-in-one-term": ('terms["unlabelled"] = trusted.mean() * float("nan")  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "term 'unlabelled' is not finite in epoch 3, step 1"),
    "gradient-not-finite": ('terms["unlabelled"] = (0 * logits.sum()).sqrt()', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "the weights are not finite in epoch 3", "def loss("),
    "view-stong": ('unlabelled.logits("stong"), self.targets[unlabelled.rows])  #!', 'unlabelled.logits("strong"), self.targets[unlabelled.rows])', "there is no view 'stong'. Did you mean strong"),
    "view-undeclared": ('logits = labelled.logits("weak")  #!', 'logits = labelled.logits("strong")', "add it to labelled_views, which is ('strong',)"),
    "ema-view-undeclared": ('entries = bce(unlabelled.ema_outputs("weak")["logits"], self.targets[unlabelled.rows])  #!', 'entries = bce(unlabelled.logits("strong"), self.targets[unlabelled.rows])', "add it to unlabelled_ema_views, which is ()"),
    "ema-of-labelled": ('logits = labelled.ema_outputs("weak")["logits"]  #!', 'logits = labelled.logits("strong")', "the averaged network reads unlabelled rows only"),
    "pool-view-stong": ('pools.unlabelled.logits(model="ema", view="waek").sigmoid()  #!', 'pools.unlabelled.logits(model="ema", view="weak").sigmoid()', "there is no view 'waek'. Did you mean weak"),
    "pool-model": ('pools.unlabelled.logits(model="teacher", view="weak").sigmoid()  #!', 'pools.unlabelled.logits(model="ema", view="weak").sigmoid()', "model='teacher': expected 'ema' or 'raw'"),
    "pool-output": ('pools.unlabelled.output("logit").sigmoid()  #!', 'pools.unlabelled.logits(model="ema", view="weak").sigmoid()', "the head has no output 'logit'. Did you mean logits"),
    "attribute-misspelt": ('logits = labelled.logit("strong")  #!', 'logits = labelled.logits("strong")', "Did you mean logits?"),
    "config-misspelt": ('terms["unlabelled"] = self.config.wieght * trusted.mean()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "Did you mean weight?"),
    "warm-up-forgotten": ('        if True:\n            entries = bce(unlabelled.logits("strong"), self.targets[unlabelled.rows])  #!', '        if unlabelled is not None:\n            entries = bce(unlabelled.logits("strong"), self.targets[unlabelled.rows])', "`unlabelled` is None during warm-up"),
    "wrong-shapes": ('terms["unlabelled"] = (unlabelled.logits("strong") - logits).mean()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "must match the size of tensor"),
    "whole-pool": ("trusted = self.trust * entries  #!", "trusted = self.trust[unlabelled.rows] * entries", "must match the size of tensor"),
    "int8-targets": ('terms = {"labelled": F.binary_cross_entropy_with_logits(logits, labelled.observed)}  #!', 'terms = {"labelled": bce(logits, labelled.observed).mean()}', "`observed` is int8|`Observed` is int8"),
    "names-a-device": ('self.count = torch.zeros((), device="cuda")  #!', "self.count = torch.zeros(())", "ame no device"),
    "in-place-graph": ('        probability = logits.sigmoid()\n        probability[probability < 0.5] = 0\n        return {**terms, "more": (logits.sigmoid() * probability.exp_()).mean(), "x": probability.log_().mean()}', "        return terms", "changed in place", "def loss("),
    "keeps-the-graph": ('        self.last = terms["labelled"] + 0 * self.last if hasattr(self, "last") else terms["labelled"]\n        return {"labelled": self.last}', "        return terms", "still tied to its graph", "def loss("),
    "negative-trust": ("self.trust = -torch.ones_like(self.targets)", "self.trust = torch.ones_like(self.targets)", "expected weights of 0 or more", "def start_epoch("),
    "trust-of-a-vector": ("self.trust = torch.ones(len(self.targets))", "self.trust = torch.ones_like(self.targets)", "self.trust has shape (64,), expected N_u × K|self.trust has shape", "def start_epoch("),
    "observed-in-place": ("pools.unlabelled.observed[:] = 0\n        self.trust = torch.ones_like(self.targets)", "self.trust = torch.ones_like(self.targets)", "work on a copy: pools.unlabelled.observed.clone()", "def start_epoch("),
    "prior-in-place": ("pools.labelled.prior.clamp_(min=0.1)\n        self.trust = torch.ones_like(self.targets)", "self.trust = torch.ones_like(self.targets)", "start_epoch changes pools.labelled.prior in place", "def start_epoch("),
    "scores-are-logits": ("        return logits", "        return logits.sigmoid()", "not all numbers in [0, 1]", "def scores("),
    "scores-decided": ("        return logits.argmax(1)", "        return logits.sigmoid()", "scores of mine have shape", "def scores("),
    "scores-nothing": ("        logits.sigmoid()", "        return logits.sigmoid()", "scores of mine are None: does the function return them?", "def scores("),
    "numpy-global": ('terms["unlabelled"] = trusted.mean() * np.random.rand()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "draws from NumPy's generator, which the run does not seed"),
    "numpy-generator": ('terms["unlabelled"] = trusted.mean() * np.random.default_rng().random()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "draws from NumPy's generator"),
    "python-random": ('terms["unlabelled"] = trusted.mean() * random.random()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "draws from Python's `random`"),
    "exits": ('raise SystemExit("done")  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "SystemExit: done"),
    "exits-at-import": ("import time\nraise SystemExit(3)  #!", "import time\n", "does not import: SystemExit: 3"),
    "import-of-a-file": ("import time\nopen('/nowhere/labels.txt')  #!", "import time\n", "does not import: FileNotFoundError"),
    "import-says-much": ("import time\nraise ValueError('one\\ntwo')  #!", "import time\n", "does not import: ValueError: one two"),
    "reads-a-file": ('terms["unlabelled"] = float(open("/nowhere/weight.txt").read()) * trusted.mean()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "FileNotFoundError"),
    "static-loss": ("    @staticmethod\n    def loss(self, labelled, unlabelled):", "    def loss(self, labelled, unlabelled):", "loss is a staticmethod, and gets no self: leave out @staticmethod", "def loss("),
    "scores-a-property": ("    @property\n    def scores(self):", "    def scores(self, logits):", "expected a function: def scores(self, …)", "def scores("),
    "state-dict-of-lists": ("    def state_dict(self):  #!\n        return {'count': [1, 2]}\n\n    def scores(self, logits):", "    def scores(self, logits):", "state_dict: 'count' is a list, expected a tensor"),
    "config-asserts": ('weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))\n\n        def __post_init__(self):\n            assert self.weight > 2, "too small"  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "AssertionError: too small"),
    "search-a-tuple": ('weight: float = option(1.0, "λ", search=(0.1, 10.0))  #!', 'weight: float = option(1.0, "λ: weight", search=between(0.1, 10.0))', "search must be between(…) or choice(…)"),
    "term-names": ('        return dict(enumerate(terms.values()))', RETURN, "loss returned a term called 0; expected a text", "def loss("),
    "loss-yields": ("        yield terms", RETURN, "loss returned a generator; expected a dictionary", "def loss("),
    "clock": ('terms["unlabelled"] = trusted.mean() * (time.perf_counter() % 1)  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "draws from the clock"),
}
# fmt: on


@pytest.mark.parametrize("mistake", METHOD_MISTAKES.values(), ids=METHOD_MISTAKES)
def test_a_mistake_in_a_method_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, METHOD, new, old)
    assert_one_line(file, checked(file), expected, *marker)


def test_the_method_itself_conforms(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    assert check_plugins(str(file), Console(record=True))


@pytest.mark.parametrize("name", ["config-asserts", "reads-a-file", "term-names"])
def test_what_a_config_or_a_loss_does_wrong_stops_a_run_in_one_line(
    tmp_path: Path, name: str
) -> None:
    vectors = (
        DATASET.replace("Mine", "Few").replace('"mine"', '"few"').replace('"text"', '"vector"')
    )
    vectors = vectors.replace(ROW, "yield Row(np.arange(3.0) + i, (i % 3,))")
    (tmp_path / "few.py").write_text(vectors.replace("bert-base-uncased", "vector"))
    new, old, expected, *marker = METHOD_MISTAKES[name]
    plugins = Plugins([file := mistaken(tmp_path, METHOD, new, old), tmp_path / "few.py"])
    fields = {"method": "mine", "dataset": "few", "pi": 0.5, "epochs": 2, "warmup_epochs": 1}

    def run() -> None:
        execute(resolve(plugins, {}, **fields), plugins, RunContext(tmp_path / "r", "cpu", 1))

    with pytest.raises((UserError, RunFailed)) as stopped:
        run()
    assert_one_line(file, str(stopped.value), expected, *marker)


# -------------------------------------------------------------------------------------- warnings


def warned(file: Path) -> list[str]:
    return list(suite(Plugins([file]).methods["mine"])[1])


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (
            "self.trust = torch.zeros_like(self.targets)",
            "self.trust = torch.ones_like(self.targets)",
            "term 'unlabelled' is 0, with no gradient, in every step",
        ),
        ('        print("epoch")\n        return terms', RETURN, "it prints ('epoch')"),
        (
            f'terms["unlabelled"] = {TERM.replace("self.config.weight", "2.0")}',
            f'terms["unlabelled"] = {TERM}',
            "hyper-parameter weight is never read",
        ),
        (
            'terms["unlabelled"] = self.config.weight * logits.square().mean()',
            f'terms["unlabelled"] = {TERM}',
            "write unlabelled_views = ()",
        ),
        (
            'self.config.weight * bce(unlabelled.logits("strong"), unlabelled.observed).mean()',
            TERM,
            "unknown labels (-1 in `observed`) are targets",
        ),
        (
            "self.config.weight * F.binary_cross_entropy_with_logits("
            'unlabelled.logits("strong"), unlabelled.observed.float())',
            TERM,
            "unknown labels (-1 in `observed`) are targets",
        ),
    ],
    ids=[
        "zero-term",
        "print",
        "unread-hyper-parameter",
        "unlabelled-rows-unused",
        "unknown",
        "unknown-mean",
    ],
)
def test_a_likely_mistake_is_a_warning(tmp_path: Path, new: str, old: str, expected: str) -> None:
    found = warned(mistaken(tmp_path, METHOD, new, old))
    assert len(found) == 1
    assert expected in found[0]


def test_a_term_of_value_zero_with_a_gradient_is_no_warning(tmp_path: Path) -> None:
    new = f"{TERM}\n            terms['zero'] = (entries - entries.detach()).sum()"
    assert not warned(mistaken(tmp_path, METHOD, new, TERM))


def test_unknown_labels_that_are_masked_are_no_warning(tmp_path: Path) -> None:
    new = f"{TERM}\n            entries = bce(logits, labelled.observed - 1)"
    new += "\n            terms['known'] = entries[labelled.observed == 1].mean()"
    assert not warned(mistaken(tmp_path, METHOD, new, TERM))


OWN_OPTIMISER = """
    def parameter_groups(self, lr):
        return []

    def setup(self, pools):
        self.shift = torch.nn.Parameter(torch.zeros(self.labels))

    def build_optimisers(self, network):
        return {"shift": torch.optim.Adam([self.shift])}

    def step(self, labelled, unlabelled, update):
        terms = self.loss(labelled, unlabelled)
        update.backward(sum(terms.values()))
        update.backward(bce(labelled.logits("strong").detach() + self.shift, labelled.observed).mean())
        update.apply(self.optimisers["shift"])
        self.optimisers["shift"].zero_grad()
        return terms

    def scores(self, logits):"""


def with_optimiser(folder: Path, new: str, old: str) -> Path:
    text = METHOD.replace("    def scores(self, logits):", OWN_OPTIMISER)
    text = text.replace("return logits.sigmoid()", "return (logits + self.shift).sigmoid()")
    return mistaken(folder, text, new, old)


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ("return torch.optim.Adam([self.shift])", "returned a Adam; expected optimisers by name"),
        ("torch.optim.Adam([self.shift])", "returned nothing"),
        ('return {"shift": self.shift}', "returned a dictionary with a Parameter"),
    ],
)
def test_optimisers_that_have_no_names_are_one_line(tmp_path: Path, new: str, says: str) -> None:
    file = with_optimiser(tmp_path, new, 'return {"shift": torch.optim.Adam([self.shift])}')
    assert_one_line(file, checked(file), says, "def build_optimisers(")


def test_gradients_that_are_left_for_the_next_step_are_named(tmp_path: Path) -> None:
    said = checked(with_optimiser(tmp_path, "", '        self.optimisers["shift"].zero_grad()\n'))
    assert "gradients are not saved: end the step with self.optimisers['shift'].zero_grad()" in said


def test_an_optimiser_of_its_own_is_no_warning(tmp_path: Path) -> None:
    assert not warned(with_optimiser(tmp_path, "return []", "return []"))


def test_a_weight_of_two_optimisers_is_a_warning(tmp_path: Path) -> None:
    found = warned(with_optimiser(tmp_path, "return super().parameter_groups(lr)", "return []"))
    assert len(found) == 1
    assert "moves self.shift too: define parameter_groups" in found[0]


def test_state_in_a_plain_attribute_is_named(tmp_path: Path) -> None:
    new = 'self.steps = getattr(self, "steps", 0) + 1\n        return {k: t / self.steps for k, t in terms.items()}'
    said = checked(mistaken(tmp_path, METHOD, new, "return terms"))
    assert "self.steps is not saved; only a tensor on self is" in said
    assert said.count("BROKEN") == 1


def test_what_could_not_be_checked_is_listed(tmp_path: Path) -> None:
    said = checked(mistaken(tmp_path, METHOD, "        return 1", RETURN))
    before, _, after = said.partition("not checked because of it:")
    assert "BROKEN" in before
    assert "scrambled hidden" in after
    assert "mine: 1 broken, 12 not checked" in after
