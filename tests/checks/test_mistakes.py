# ruff: noqa: E501 (one line for each mistake)
"""Each mistake in a plugin is one line of `ssmlbench check`: in the contract's words, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from ssmlbench.cli.check import check_plugins, suite
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.data import prepare
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.resolve import resolve

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
    "head-misspelt": ('head = "cosin"  #!', 'head = "linear"', "there is no 'cosin'. Did you mean cosine?"),
    "views-without-comma": (' labelled_views = ("strong")  #!', ' labelled_views = ("strong",)', 'write ("strong",) with the comma'),
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
    "clock": ('terms["unlabelled"] = trusted.mean() * time.perf_counter()  #!', 'terms["unlabelled"] = self.config.weight * trusted.mean()', "draws from the clock"),
}
# fmt: on


def checked(file: Path) -> str:
    """What `ssmlbench check` says of a file; the line of its error if it does not even load."""
    console = Console(record=True, width=500)
    try:
        assert not check_plugins(str(file), console)
    except UserError as error:
        return str(error)
    return console.export_text()


def mistaken(folder: Path, text: str, new: str, old: str | None) -> Path:
    """A plugin file with a mistake in it."""
    if old is None:
        text = text[: text.index("class Mine")] + new + '    name = "mine"\n'
    else:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / "mine.py"
    file.write_text(text)
    return file


def assert_one_line(file: Path, said: str, expected: str, marker: str = "#!") -> None:
    """One mistake, said once, with the number of the marked line."""
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if marker in text)
    reasons = [text for text in said.splitlines() if f"{file.name}:" in text]
    assert len(reasons) == 1, said
    assert any(alternative in reasons[0] for alternative in expected.split("|")), said
    assert re.search(rf"{file.name}:{line}\b", reasons[0]), (line, said)
    assert said.count("BROKEN") <= 1
    assert "Traceback" not in said


@pytest.mark.parametrize("mistake", METHOD_MISTAKES.values(), ids=METHOD_MISTAKES)
def test_a_mistake_in_a_method_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, METHOD, new, old)
    assert_one_line(file, checked(file), expected, *marker)


def test_the_method_itself_conforms(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    assert check_plugins(str(file), Console(record=True))


# ------------------------------------------------------------------------------------ estimators

ESTIMATOR = '''
from dataclasses import dataclass

import numpy as np

from ssmlbench.api import Estimator, option


class Mine(Estimator):
    """Mine."""

    name = "mine"
    regimes = {"semi"}
    uses = "labelled rows"

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        alpha: float = option(1.0, "α: strength")

    def __init__(self, config, labels, seed):
        super().__init__(config, labels, seed)
        self.random = np.random.default_rng(seed)

    def fit(self, labelled, unlabelled):
        self.prior = labelled.prior * self.config.alpha

    def scores(self, features):
        return np.tile(self.prior, (len(features), 1))
'''

# fmt: off
ESTIMATOR_MISTAKES = {
    "fit-misspelt": ("def train(self, labelled, unlabelled):  #!", "def fit(self, labelled, unlabelled):", "Did you mean fit?"),
    "predict": ("def predict_proba(self, features):  #!", "def scores(self, features):", "Did you mean scores?"),
    "uses-misspelt": ('uses = "labeled rows"  #!', 'uses = "labelled rows"', "Did you mean labelled rows?"),
    "unknown-regime": ('regimes = {"ful"}  #!', 'regimes = {"semi"}', "Did you mean full?"),
    "config-no-dataclass": ("    class Config(Estimator.Config):  #!", "    @dataclass(frozen=True)\n    class Config(Estimator.Config):", "write @dataclass(frozen=True) above it"),
    "fit-of-sklearn": ("def fit(self, features):  #!", "def fit(self, labelled, unlabelled):", "expected (self, labelled, unlabelled)"),
    "init": ("def __init__(self, config, labels):  #!\n        seed = 0", "def __init__(self, config, labels, seed):", "expected (self, config, labels, seed)"),
    "pool-misspelt": ("self.prior = labelled.priors * self.config.alpha  #!", "self.prior = labelled.prior * self.config.alpha", "Did you mean prior?"),
    "scores-outside": ("return 5 * np.tile(self.prior, (len(features), 1))", "return np.tile(self.prior, (len(features), 1))", "not all numbers in [0, 1]", "def scores("),
    "scores-of-one-row": ("return self.prior", "return np.tile(self.prior, (len(features), 1))", "scores of mine have shape (5,)", "def scores("),
    "scores-nothing": ("np.tile(self.prior, (len(features), 1))", "return np.tile(self.prior, (len(features), 1))", "scores of mine are None: does the function return them?", "def scores("),
    "unseeded": ("return np.random.rand(len(features), self.labels)  #!", "return np.tile(self.prior, (len(features), 1))", "draws from NumPy's generator, which the run does not seed; draw from self.seed"),
}
# fmt: on


@pytest.mark.parametrize("mistake", ESTIMATOR_MISTAKES.values(), ids=ESTIMATOR_MISTAKES)
def test_a_mistake_in_an_estimator_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, ESTIMATOR, new, old)
    assert_one_line(file, checked(file), expected, *marker)


# -------------------------------------------------------------------------------------- encoders

ENCODER = '''
import torch
from torch import nn

from ssmlbench.api import Encoder


class Mine(Encoder):
    """Mine."""

    name = "mine"
    kinds = {"vector"}
    features = 8
    options = {}

    def __init__(self, example, options=None):
        super().__init__(example, options)
        self.layer = nn.Linear(example.shape[0], 8)

    def forward(self, inputs):
        return self.layer(inputs)
'''

# fmt: off
ENCODER_MISTAKES = {
    "kinds-misspelt": ('kinds = {"vectors"}  #!', 'kinds = {"vector"}', "there is no 'vectors'. Did you mean vector?"),
    "kind": ('kind = {"vector"}  #!', 'kinds = {"vector"}', "Did you mean kinds?"),
    "options": ('options = {"image_sise": 32}  #!', "options = {}", "there is no 'image_sise'. Did you mean image_size"),
    "forward-missing": ("def encode(self, inputs):", "def forward(self, inputs):", "it must define forward", "class Mine"),
    "features-text": ('features = "8"  #!', "features = 8", "features is '8'; expected a whole number"),
    "features-wrong": ("features = 9", "features = 8", "expected B × self.features: (6, 9)", "def forward("),
    "no-super-init": ("        self.layer = nn.Linear(example.shape[0], 8)  #!", "        super().__init__(example, options)\n        self.layer = nn.Linear(example.shape[0], 8)", "before Module.__init__"),
    "forward-nothing": ("        self.layer(inputs)", "        return self.layer(inputs)", "forward returned nothing", "def forward("),
    "wrong-shape": ("        return self.layer(inputs.T)  #!", "        return self.layer(inputs)", "mat1 and mat2 shapes"),
    "weights-id": ("    def weights_id(self, options):  #!\n        return ''\n\n    def forward(self, inputs):", "    def forward(self, inputs):", "weights_id must be a classmethod"),
}
# fmt: on


@pytest.mark.parametrize("mistake", ENCODER_MISTAKES.values(), ids=ENCODER_MISTAKES)
def test_a_mistake_in_an_encoder_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, ENCODER, new, old)
    assert_one_line(file, checked(file), expected, *marker)


# ------------------------------------------------------------------------------------- data sets

DATASET = '''
from pathlib import Path

import numpy as np

from ssmlbench.api import DatasetAdapter, Row


class Mine(DatasetAdapter):
    """Mine."""

    name = "mine"
    kind = "text"
    backbone = "bert-base-uncased"

    def label_names(self):
        return ["a", "b", "c"]

    def rows(self, split):
        for i in range(4):
            yield Row(f"text {i}", (i % 3,))
'''

ROW = 'yield Row(f"text {i}", (i % 3,))'
ROWS = "        for i in range(4):\n            " + ROW
# fmt: off
DATASET_MISTAKES = {
    "kind-misspelt": ('kind = "texts"  #!', 'kind = "text"', "expected one of 'image', 'text', 'vector'. Did you mean text?"),
    "no-kind": ("", '    kind = "text"\n', "it has no `kind`", "class Mine"),
    "rows-misspelt": ("def row(self, split):  #!", "def rows(self, split):", "Did you mean rows?"),
    "labels-misspelt": ("def label_name(self):  #!", "def label_names(self):", "Did you mean label_names?"),
    "rows-without-split": ("def rows(self):  #!", "def rows(self, split):", "expected (self, split)"),
    "names-a-text": ('        return "abc"', '        return ["a", "b", "c"]', "expected a list of texts", "def label_names("),
    "names-numbers": ("        return [0, 1, 2]", '        return ["a", "b", "c"]', "as a name; expected a text", "def label_names("),
    "yields-a-tuple": ('yield f"text {i}", (i % 3,)', 'yield Row(f"text {i}", (i % 3,))', "expected Row(input, labels)", "def rows("),
    "yields-a-dictionary": ('yield {"input": "x", "labels": ()}', 'yield Row(f"text {i}", (i % 3,))', "expected Row(input, labels)", "def rows("),
    "returns-nothing": ("        [Row(f'text {i}', (i % 3,)) for i in range(4)]", '        for i in range(4):\n            yield Row(f"text {i}", (i % 3,))', "rows returned nothing", "def rows("),
    "label-a-number": ('yield Row(f"text {i}", i % 3)', 'yield Row(f"text {i}", (i % 3,))', "expected the positions of the positive labels", "def rows("),
    "label-names": ('yield Row(f"text {i}", ("a",))', 'yield Row(f"text {i}", (i % 3,))', "labels has the name 'a'", "def rows("),
    "label-row": ('yield Row(f"text {i}", (0, 1, 0))', 'yield Row(f"text {i}", (i % 3,))', "labels is a row of 3 zeros and ones", "def rows("),
    "label-booleans": ('yield Row(f"text {i}", [True, False, True])', 'yield Row(f"text {i}", (i % 3,))', "expected the positions", "def rows("),
    "label-digits": ('yield Row(f"text {i}", "010")', 'yield Row(f"text {i}", (i % 3,))', "labels is '010'", "def rows("),
    "label-floats": ('yield Row(f"text {i}", (0.5,))', 'yield Row(f"text {i}", (i % 3,))', "labels has 0.5", "def rows("),
    "text-bytes": ('yield Row(b"text", (i % 3,))', 'yield Row(f"text {i}", (i % 3,))', "expected a text", "def rows("),
    "text-none": ("yield Row(None, (i % 3,))", 'yield Row(f"text {i}", (i % 3,))', "input is None; expected a text", "def rows("),
    "label-nested": ('yield Row(f"text {i}", [[0], [1]])', ROW, "labels has [0] (list); expected the positions", "def rows("),
    "label-matrix": ('yield Row(f"text {i}", np.zeros((3, 3), int))', ROW, "labels is an array of int64 with shape (3, 3)", "def rows("),
    "label-scalar": ('yield Row(f"text {i}", np.array(1))', ROW, "labels is an array of int64 with shape ()", "def rows("),
    "label-none-inside": ('yield Row(f"text {i}", (None,))', ROW, "labels has None; expected the positions", "def rows("),
    "label-nan": ('yield Row(f"text {i}", (float("nan"),))', ROW, "labels has nan (float)", "def rows("),
    "label-outside": ('yield Row(f"text {i}", (0, 3))', ROW, "train row 1: label position 3 outside 0..2", "def rows("),
    "label-negative": ('yield Row(f"text {i}", (-1,))', ROW, "label position -1 outside 0..2", "def rows("),
    "unknown-names": ('yield Row(f"text {i}", (0,), unknown="b")', ROW, "unknown is 'b' (str); expected the positions of the labels that are not known", "def rows("),
    "id-a-number": ('yield Row(f"text {i}", (i % 3,), i)', ROW, "id is 0 (int); expected a text", "def rows("),
    "id-twice": ('yield Row(f"text {i}", (i % 3,), id="same")', ROW, "train row 2: id 'same' occurs twice", "def rows("),
    "test-unlabelled": ('yield Row(f"text {i}", None if split == "test" else (0,))', ROW, "test row 1: a test row must be labelled", "def rows("),
    "text-empty": ('yield Row("", (i % 3,))', ROW, "train row 1: the text is empty", "def rows("),
    "row-of-other-names": ('yield Row(text=f"text {i}", label=(0,))  #!', ROW, "TypeError: Row.__init__() got an unexpected keyword argument 'text'"),
    "yields-the-class": ("yield Row", ROW, "rows yielded <class", "def rows("),
    "returns-a-row": ("        return Row('text', (0,))", ROWS, "rows returned Row(input='text', labels=(0,)", "def rows("),
    "returns-a-text": ("        return 'train.tsv'", ROWS, "rows returned 'train.tsv' (str); expected `yield Row(input, labels)`", "def rows("),
    "no-rows": ("        yield from ()", ROWS, "its train split has no rows", "def rows("),
    "no-test-rows": ("for i in range(4 if split == 'train' else 0):", "for i in range(4):", "its test split has no rows", "def rows("),
    "other-split": ("for i in range({'train': 4, 'valid': 4}[split]):  #!", "for i in range(4):", "KeyError: 'test'"),
    "raises-later": ("if i == 2:\n                raise OSError(2, 'No such file', 'two.txt')  #!\n            yield Row(f'text {i}', (0,))", ROW, "after train row 2: FileNotFoundError: [Errno 2] No such file: 'two.txt'"),
    "exits": ("raise SystemExit('no licence')  #!\n            yield", ROW, "after train row 0: SystemExit: no licence"),
    "names-twice": ('        return ["a", "b", "a"]', '        return ["a", "b", "c"]', "label 'a' occurs twice", "def label_names("),
    "names-none": ("        return []", '        return ["a", "b", "c"]', "there are no labels", "def label_names("),
    "names-blank": ('        return ["a", " ", "c"]', '        return ["a", "b", "c"]', "label ' ' is empty; rename it", "def label_names("),
    "names-yielded": ('        yield from "abc"', '        return ["a", "b", "c"]', "expected a list of texts", "def label_names("),
    "names-file": ('        return open("/nowhere/labels.txt").read().split()  #!', '        return ["a", "b", "c"]', "FileNotFoundError"),
    "splits-a-tuple": ('    splits = ("train", "test")  #!\n\n    def label_names(self):', "    def label_names(self):", "expected a function: def splits(self, …)"),
    "published-a-dictionary": ('    published = {"train": 4}  #!\n\n    def label_names(self):', "    def label_names(self):", "expected PublishedStatistics or None"),
    "differs": ('yield Row(f"text {np.random.rand()}", (i % 3,))', ROW, "train row 1 differs when it is read a second time", "def rows("),
    "code-raises": ('yield Row({}["text"], (i % 3,))  #!', 'yield Row(f"text {i}", (i % 3,))', "KeyError: 'text'"),
}
# fmt: on


@pytest.mark.parametrize("mistake", DATASET_MISTAKES.values(), ids=DATASET_MISTAKES)
def test_a_mistake_in_a_data_set_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, DATASET, new, old)
    assert_one_line(file, checked(file), expected, *marker)


def test_what_check_says_of_rows_stops_a_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a traceback: `prepare` refuses each mistake with a UserError, in the words of `check`."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    for name, (new, old, expected, *_) in DATASET_MISTAKES.items():
        if name == "differs":  # a run reads its data once
            continue
        folder = tmp_path / name
        folder.mkdir()
        with pytest.raises(UserError) as refused:
            prepare(Plugins([mistaken(folder, DATASET, new, old)]).datasets["mine"]())
        assert expected in str(refused.value), name


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


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("vector", "[[1.0, 2.0]]", "expected a vector of numbers"),
        ("vector", "['a', 'b']", "expected a vector of numbers"),
        ("vector", "3.0", "expected a vector of numbers"),
        ("vector", "[]", "expected a vector of numbers"),
        ("vector", "np.zeros(3, complex)", "expected a vector of numbers"),
        ("vector", "np.array([1.0, np.nan])", "train row 1: a value of the vector is not a finite"),
        ("vector", "np.zeros(2 + i % 2)", "train row 2: a vector of 3 numbers, others have 2"),
        ("image", "'image.png'", "write Path(…)"),
        ("image", "np.zeros((4, 4))", "expected uint8, H × W or H × W × 3"),
        ("image", "np.zeros((3, 4, 4, 1), np.uint8)", "expected uint8, H × W or H × W × 3"),
    ],
)
def test_an_input_of_another_kind_is_one_line(
    tmp_path: Path, kind: str, value: str, expected: str
) -> None:
    text = DATASET.replace('kind = "text"', f'kind = "{kind}"')
    file = mistaken(tmp_path, text, f"yield Row({value}, (i % 3,))", ROW)
    assert_one_line(file, checked(file), expected, "def rows(")


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
    ],
    ids=["zero-term", "print", "unread-hyper-parameter", "unlabelled-rows-unused"],
)
def test_a_likely_mistake_is_a_warning(tmp_path: Path, new: str, old: str, expected: str) -> None:
    found = warned(mistaken(tmp_path, METHOD, new, old))
    assert len(found) == 1
    assert expected in found[0]


def test_a_term_of_value_zero_with_a_gradient_is_no_warning(tmp_path: Path) -> None:
    new = f"{TERM}\n            terms['zero'] = (entries - entries.detach()).sum()"
    assert not warned(mistaken(tmp_path, METHOD, new, TERM))


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
