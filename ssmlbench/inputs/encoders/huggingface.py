"""Any Hugging Face text encoder, by hub id or local folder. No code from a hub is ever executed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pickle import UnpicklingError
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.model_folders import (
    TOKENIZER_FILES,
    VOCABULARY_FILES,
    model_digest,
    model_folder,
)
from ssmlbench.inputs.encoders.sentence import (
    SENTENCE_FILES,
    SentenceHead,
    SentenceModel,
    read_sentence_model,
)
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.inputs.views import View, text_views

PASS_ROWS = 32
"""Texts of similar length that go through the model together when no gradients are needed."""


@lru_cache
def hugging_face_encoder(name: str) -> type[Encoder]:
    """The encoder class of one model.

    A sentence-transformers folder that does more than take the mean keeps its own pooling. A model
    that reads fewer tokens than the default is given as many as it reads.
    """
    options = dict(HuggingFaceEncoder.options)
    folder = model_folder(name)
    try:
        sentence = read_sentence_model(name, folder)
        own = sentence is not None and not sentence.is_plain_mean
        longest = (sentence and sentence.longest) or options["max_tokens"]
    except UserError:  # `weights_id` raises it again, unless another pooling is typed
        own, longest = True, options["max_tokens"]
    if own:
        options |= {"pooling": "own", "max_tokens": min(options["max_tokens"], longest)}
    limit = _limit_below(name, options["max_tokens"])
    options["max_tokens"] = limit or options["max_tokens"]
    members = {"name": name, "options": options, "limit": limit}
    return type("HuggingFaceEncoder", (HuggingFaceEncoder,), members)


class HuggingFaceEncoder(Encoder):
    """A Hugging Face encoder: the mean of the last layer over a text's tokens, or its own pooling.

    A row is its token ids, padded; the padding id gives the mask.
    """

    kinds = {"text"}
    options = {"weights": "pretrained", "max_tokens": 256, "pooling": "masked"}
    limit: ClassVar[int | None] = None  # the most tokens it reads, if fewer than the default

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        pretrained = options.weights != "none"
        self.masked = options.pooling != "all"
        self.pad = _pad_id(self.name)
        self.model = _load_model(self.name, pretrained)
        self.takes_whole_masks = _takes_whole_masks(self.model)
        self.features = self.model.config.hidden_size
        self.sentence: SentenceHead | None = None
        if options.pooling == "own":
            self.sentence = SentenceHead(_sentence(self.name), self.features, pretrained)
            self.features = self.sentence.width
        longest = _longest(self.model)
        if longest and len(example) > longest:
            raise _too_long(self.name, len(example), longest)

    def forward(self, ids: Tensor) -> Tensor:
        """B × T token ids → B × features."""
        if not len(ids):  # an empty unlabelled pool: transformers cannot reshape an empty batch
            return torch.zeros(0, self.features, device=ids.device)
        if torch.is_grad_enabled() or len(ids) <= PASS_ROWS:
            # On another device `cut` has removed the padding: reading its length back would wait.
            return self._encode(ids, self._longest([ids]) if ids.is_cpu else ids.shape[1])
        # Sort by length, so that a part has little padding: otherwise padding is most of the work.
        lengths = (ids != self.pad).sum(1)
        order = lengths.argsort(stable=True)
        parts = ids[order].split(PASS_ROWS)
        longest = torch.stack([part.max() for part in lengths[order].split(PASS_ROWS)]).tolist()
        done = torch.cat(
            [self._encode(part, max(n, 1)) for part, n in zip(parts, longest, strict=True)]
        )
        return torch.empty_like(done).index_copy_(0, order, done)

    def cut(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Token ids up to the longest text of all views."""
        if not self.masked or not any(map(len, views)):
            return list(views)
        longest = self._longest(views)
        return [ids[:, :longest].contiguous() for ids in views]

    def _longest(self, views: Sequence[Tensor]) -> int:
        """Tokens of the longest text."""
        return max(1, *(int((ids != self.pad).sum(1).max()) for ids in views if len(ids)))

    def _encode(self, ids: Tensor, longest: int) -> Tensor:
        ids = ids.long()
        if not self.masked:
            whole: Tensor = self.model(input_ids=ids).last_hidden_state
            return whole.mean(1)
        ids = ids[:, :longest]
        mask = ids != self.pad
        # With the usual mask, transformers would read back from the device whether all of it is set.
        seen = mask.long() if ids.is_cpu or not self.takes_whole_masks else _whole(mask)
        hidden: Tensor = self.model(input_ids=ids, attention_mask=seen).last_hidden_state
        if self.sentence is not None:
            own: Tensor = self.sentence(hidden, mask)
            return own
        counted = mask[..., None].to(hidden.dtype)
        return (hidden * counted).sum(1) / counted.sum(1).clamp(min=1)

    @classmethod
    def note(cls, options: EncoderOptions) -> str | None:
        """That texts are cut where the model ends, not at the usual number of tokens."""
        if cls.limit is None or options.max_tokens != cls.limit:
            return None
        return f"--backbone {cls.name} reads at most {cls.limit} tokens; longer texts are cut there"

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the model's and the tokenizer's files, as they are now."""
        if options.weights not in ("pretrained", "none"):
            raise UserError(
                f"--weights {options.weights}: {cls.name} has pretrained or none; other "
                "weights are another folder or id, named as --backbone"
            )
        if options.max_tokens and (limit := _limit_below(cls.name, options.max_tokens)):
            raise _too_long(cls.name, options.max_tokens, limit)
        _drop_stale_tokenizer(cls.name)
        own = options.pooling == "own" and _sentence(cls.name)
        files = (*TOKENIZER_FILES, *SENTENCE_FILES) if own else TOKENIZER_FILES
        return f"{options.weights}@{model_digest(cls.name, options.weights != 'none', files)}"

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> Tensor:
        """Texts → N × max_tokens ids, cut and padded."""
        tokenizer = _tokenizer(cls.name)
        texts = list(raws)
        if options.pooling == "own":
            sentence = _sentence(cls.name)
            texts = [sentence.text(text) for text in texts]
        ids = tokenizer(
            texts,
            truncation=True,
            max_length=options.max_tokens,
            add_special_tokens=options.pooling != "all",  # the released code adds none
            return_attention_mask=False,
        )["input_ids"]
        padded = torch.full((len(ids), options.max_tokens or 1), _pad_id(cls.name)).int()
        for row, tokens in zip(padded, ids, strict=True):
            row[: len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        return padded

    @classmethod
    def views(cls, kind: str, flips: bool, options: EncoderOptions) -> dict[str, View]:
        """Views of token ids; special tokens stay where they are."""
        return text_views(_pad_id(cls.name), tuple(_tokenizer(cls.name).all_special_ids))


_tokenizers: dict[str, tuple[str, Any]] = {}
"""Model → the digest of the tokenizer's files when it was loaded, and the tokenizer."""


def _tokenizer(name: str) -> Any:
    """Load the tokenizer once: it stays the same for a whole run, whatever happens to its files."""
    if name not in _tokenizers:
        declare_missing_operators()
        from transformers import AutoTokenizer

        digest = model_digest(name, with_weights=False)
        folder = model_folder(name)
        if not any(True for kind in VOCABULARY_FILES for _ in folder.glob(kind)):
            # transformers would make a tokenizer without words, for which all texts are equal.
            raise UserError(
                f"--backbone {name}: no tokenizer in {folder} ({', '.join(VOCABULARY_FILES)}); save it "
                "there with tokenizer.save_pretrained"
            )
        try:
            loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"--backbone {name}: no tokenizer: {_first_line(error)}") from None
        _tokenizers[name] = digest, loaded
    return _tokenizers[name][1]


def _drop_stale_tokenizer(name: str) -> None:
    """Forget the tokenizer if its files have changed since it was loaded."""
    if name in _tokenizers and _tokenizers[name][0] != model_digest(name, with_weights=False):
        del _tokenizers[name]


def _pad_id(name: str) -> int:
    pad = _tokenizer(name).pad_token_id
    if pad is None:
        raise UserError(f"--backbone {name}: its tokenizer has no padding token; use an encoder")
    return int(pad)


def _sentence(name: str) -> SentenceModel:
    found = read_sentence_model(name, model_folder(name))
    if found is None:
        raise UserError(
            f"--pooling own: --backbone {name} is not a sentence-transformers folder (no modules.json); "
            "type --pooling masked"
        )
    return found


def _load_model(name: str, pretrained: bool) -> Any:
    model, missing = load_model(name, pretrained)
    check_complete(name, {key for key in missing if "pooler." not in key})
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # forward pools the last layer itself; this one is never used
    return model


def _takes_whole_masks(model: Any) -> bool:
    """Whether a model passes a B × 1 × T × T mask unchanged to all of its layers."""
    code = vars(sys.modules[type(model).__module__])
    one_mask = "create_bidirectional_mask" in code
    windows = "create_bidirectional_sliding_window_mask" in code
    implementation = getattr(model.config, "_attn_implementation", None)
    return one_mask and not windows and implementation == "sdpa"


def _whole(mask: Tensor) -> Tensor:
    """B × T → B × 1 × T × T; a row without tokens attends to its first position, to avoid NaN."""
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    return (mask | first)[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


def _longest(model: Any) -> int | None:
    """The most tokens that a model reads; None if it has no such limit."""
    longest = getattr(model.config, "max_position_embeddings", None)
    positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    if longest and padding is not None:  # RoBERTa and its kin count positions from there on
        longest -= padding + 1
    return longest


def _limit_below(name: str, tokens: int) -> int | None:
    """The most tokens that a model reads if that is less than `tokens`, from its config.json alone."""
    try:
        config = json.loads((model_folder(name) / "config.json").read_text(encoding="utf-8"))
        positions = config.get("max_position_embeddings")
        if positions is None or tokens < positions - (config.get("pad_token_id") or 0):
            return None  # without importing transformers
        with torch.device("meta"):  # shapes without weights
            longest = _longest(load_model(name, pretrained=False)[0])
    except (OSError, ValueError, TypeError, AttributeError, UserError):  # told when it is loaded
        return None
    return longest if longest and longest < tokens else None


def _too_long(name: str, tokens: int, longest: int) -> UserError:
    return UserError(
        f"--max-tokens {tokens}: --backbone {name} reads at most {longest}; type --max-tokens {longest}"
    )


def load_model(name: str, pretrained: bool) -> tuple[Any, set[str]]:
    """A model by id or folder, and the names of its weights that the file lacks."""
    declare_missing_operators()
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = model_folder(name)
    try:
        if not pretrained:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            model = AutoModel.from_config(config, trust_remote_code=False)
            missing: set[str] = set()
        else:
            model, info = AutoModel.from_pretrained(
                folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
            missing = set(info["missing_keys"])
            for tensor in (*model.parameters(), *model.buffers()):
                # The file is memory-mapped: without a copy, writing to it changes the model.
                tensor.data = tensor.data.clone()
    except UnpicklingError:
        raise UserError(
            f"--backbone {name} does not load: its pytorch_model.bin holds more than tensors, and code in "
            "it is not executed; where you trust it, load it and save_pretrained as safetensors"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = _first_line(error)
        if "ignore_mismatched_sizes" in reason:
            reason = "its weights have other shapes than its config.json says"
        raise UserError(f"--backbone {name} does not load: {reason}") from None
    return model, missing


def check_complete(name: str, lacking: set[str]) -> None:
    """Raise a UserError if a model's file lacks weights that are used."""
    if lacking:
        raise UserError(
            f"--backbone {name}: its weights lack {len(lacking)} tensors of the model, e.g. "
            f"{min(lacking)}; --weights none would train from scratch"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
