"""Miniatures the encoder tests share: a two-layer BERT in the hub's format, and data plugins."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from ssmlbench.core.spec import RunSpec
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve

SOUNDS = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


def save_tiny_bert(folder: Path, seed: int = 0, dropout: float = 0.1) -> Path:
    """A randomly initialised two-layer BERT with a WordPiece tokenizer, as save_pretrained does."""
    import torch

    from ssmlbench.inputs.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*specials, *SOUNDS, *string.ascii_lowercase, ",", "."]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    BertModel(config).save_pretrained(folder)
    return folder


DATA = """
import numpy as np
from ssmlbench.api import DatasetAdapter, Row

SOUNDS = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


class _Tiny(DatasetAdapter):
    def label_names(self):
        return ["a", "b", "c"]

    def labelled(self, split):
        random = np.random.default_rng(len(split))
        for i in range({"train": 60, "test": 20}[split]):
            labels = np.flatnonzero(random.random(3) < 0.4)
            yield random, tuple(int(k) for k in (labels if len(labels) else [i % 3]))


class TinyText(_Tiny):
    name = "tiny-text"
    kind = "text"
    backbone = "bert-base-uncased"

    def rows(self, split):
        for random, labels in self.labelled(split):
            words = [SOUNDS[k] for k in labels for _ in range(3)]
            words += list(random.choice(SOUNDS, random.integers(1, 9)))
            yield Row(" ".join(random.permutation(words)), labels)


class TinyImages(_Tiny):
    name = "tiny-images"
    kind = "image"
    backbone = "resnet50"

    def rows(self, split):
        for random, labels in self.labelled(split):
            image = random.integers(0, 80, (random.integers(20, 40), 30, 3))
            image[..., list(labels)] += 120
            yield Row(image.astype(np.uint8), labels)


class TinyVectors(_Tiny):
    name = "tiny-vectors"
    kind = "vector"
    backbone = "vector"

    def rows(self, split):
        for random, labels in self.labelled(split):
            vector = random.normal(size=8)
            vector[list(labels)] += 3
            yield Row(vector.astype(np.float32), labels)
"""


def write_data_plugin(folder: Path) -> Path:
    """A plugin file with a text, an image and a vector data set of 60 + 20 rows."""
    file = folder / "tiny_data.py"
    file.write_text(DATA)
    return file


def asked(plugins: Plugins, **fields: Any) -> RunSpec:
    """A run of two short epochs."""
    short = {"method": "bce", "pi": 0.3, "epochs": 2, "batch_size": 16, "labelled_batch_size": 8}
    return resolve(plugins, {}, **{**short, **fields})
