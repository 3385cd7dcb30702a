"""Back-translations of texts: a second source of strong views, and a part of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.inputs.prepared import prepared_inputs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import encoder_class
from tests.data.test_user_data import csv_text
from tests.support.raw_layouts import put
from tests.support.tiny_models import save_tiny_bert


def write_translated(folder: Path, column: str = "back_translation") -> Task:
    rows = [["a", "x", "b"], ["c", "y", ""]] * 40
    put(folder / "train.csv", csv_text(["text", "labels", column], rows))
    put(folder / "test.csv", csv_text(["text", "labels", column], [["d", "x", ""]]))
    return prepare(data_class(folder)())


class Letters(Encoder):
    """A letter as its number; its strong view is the text itself."""

    name = "letters"
    kinds = {"text"}

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> torch.Tensor:
        return torch.tensor([[float(ord(text))] for text in raws])


def test_a_strong_view_is_the_text_or_its_back_translation(tmp_path: Path) -> None:
    task = write_translated(tmp_path / "mine")
    train = prepared_inputs(Letters, EncoderOptions(), task, "train")
    rows, generator = np.arange(80), torch.Generator().manual_seed(0)
    for view in ("plain", "weak"):
        seen = train.view(rows, view, generator)
        assert [chr(int(v)) for v in seen[:, 0]] == ["a", "c"] * 40
    strong = train.view(rows, "strong", generator)
    letters = [chr(int(row[0])) for row in strong]
    assert set(letters[::2]) == {"a", "b"}
    assert 8 <= letters[::2].count("b") <= 32  # 20 of 40 expected, deviation 3.2
    assert set(letters[1::2]) == {"c"}  # a text without one stands for itself
    assert task.back_translations("test") is None


def test_back_translations_are_part_of_the_data_and_never_a_label(tmp_path: Path) -> None:
    translated = write_translated(tmp_path / "mine").card
    plain = write_translated(tmp_path / "mine" / "mine", "comment").card
    assert translated.label_names == plain.label_names == ["x", "y"]
    assert translated.rows == plain.rows
    assert translated.fingerprint != plain.fingerprint


def test_back_translations_reach_the_frozen_features(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_translated(folder)
    bert = save_tiny_bert(tmp_path / "bert")
    plugins = Plugins(())
    name = plugins.data_set(str(folder))
    spec = resolve(
        plugins,
        {},
        method="bce",
        dataset=name,
        pi=0.5,
        backbone=str(bert),
        max_tokens=8,
        freeze=True,
        strong_views=1,
        scaling="none",
    )
    task, cpu = prepare(plugins.datasets[name]()), torch.device("cpu")
    loader = SplitLoader(spec, encoder_class(spec, plugins), task, cpu)
    strong = loader.features("train").values["strong"]
    # Of a text of one word nothing can be swapped or dropped: what differs is another text.
    assert len(torch.unique(strong[::2], dim=0)) == 2
    assert len(torch.unique(strong[1::2], dim=0)) == 1
