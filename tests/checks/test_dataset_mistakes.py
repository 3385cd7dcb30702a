# ruff: noqa: E501 (one line for each mistake)
"""Each mistake in a data set is one line of `ssmlbench check`, and of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.plugins.loader import Plugins
from tests.support.plugin_mistakes import assert_one_line, checked, mistaken

DATASET = '''
from pathlib import Path

import numpy as np

from ssmlbench.api import DatasetAdapter, PublishedStatistics, Row


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
    "splits-other": ("    def splits(self):\n        return ('train', 'test', '../other')\n\n    def label_names(self):", "    def label_names(self):", "splits returned ('train', 'test', '../other') (tuple); expected ('train', 'test') or ('train',)", "def splits("),
    "splits-test-only": ("    def splits(self):\n        return ['test']\n\n    def label_names(self):", "    def label_names(self):", "splits returned ['test']", "def splits("),
    "splits-none": ("    def splits(self):\n        return None\n\n    def label_names(self):", "    def label_names(self):", "splits returned None", "def splits("),
    "key-a-path": ("    def source_key(self):\n        return '../../elsewhere'\n\n    def label_names(self):", "    def label_names(self):", "source_key returned '../../elsewhere'", "def source_key("),
    "columns-none": ("    def columns(self):\n        return None\n\n    def label_names(self):", "    def label_names(self):", "columns returned None; expected InputColumns(…)", "def columns("),
    "notes-none": ("    def card_notes(self):\n        return [3]\n\n    def label_names(self):", "    def label_names(self):", "card_notes returned [3] (list); expected a list of texts", "def card_notes("),
    "published-a-dictionary": ('    published = {"train": 4}  #!\n\n    def label_names(self):', "    def label_names(self):", "expected PublishedStatistics or None"),
    "published-a-text": ('    published = PublishedStatistics("x", train="many")  #!\n\n    def label_names(self):', "    def label_names(self):", "PublishedStatistics: train is 'many'; expected a whole number"),
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
