"""Any Hugging Face text encoder, by hub id or local folder. No code from a hub is ever executed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.weights import file_digest
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.inputs.views import View, text_views

TOKENIZER_FILES = (
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
)
IMAGE_FILES = ("config.json", "preprocessor_config.json")
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")  # the first of these that exists
PASS_ROWS = 32
"""Texts of similar length that go through the model together when no gradients are needed."""


@lru_cache
def hugging_face_encoder(name: str) -> type[Encoder]:
    """The class of one model, as a plugin file would have written it."""
    return type("HuggingFaceEncoder", (HuggingFaceEncoder,), {"name": name})


class HuggingFaceEncoder(Encoder):
    """A Hugging Face encoder: the mean of the last layer over a text's tokens.

    A row is its token ids, padded; the padding id gives the mask.
    """

    kinds = {"text"}
    options = {"weights": "pretrained", "max_tokens": 256, "pooling": "masked"}

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        self.masked = options.pooling != "all"
        self.pad = _pad_id(self.name)
        self.model = _load_model(self.name, options.weights != "none")
        self.features = self.model.config.hidden_size
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest and len(example) > longest:
            raise UserError(
                f"--max-tokens {len(example)}: --backbone {self.name} reads {longest} at the most"
            )

    def forward(self, ids: Tensor) -> Tensor:
        """B × T token ids → B × features."""
        if not len(ids):  # an empty unlabelled pool: transformers cannot reshape an empty batch
            return torch.zeros(0, self.features, device=ids.device)
        if torch.is_grad_enabled() or len(ids) <= PASS_ROWS:
            return self._encode(ids)
        # Sort by length, so that a part has little padding: padding is most of the work otherwise.
        order = (ids != self.pad).sum(1).argsort(stable=True)
        done = torch.cat([self._encode(part) for part in ids[order].split(PASS_ROWS)])
        return torch.empty_like(done).index_copy_(0, order, done)

    def _encode(self, ids: Tensor) -> Tensor:
        ids = ids.long()
        if not self.masked:
            whole: Tensor = self.model(input_ids=ids).last_hidden_state
            return whole.mean(1)
        mask = ids != self.pad
        longest = max(int(mask.sum(1).max()), 1)
        ids, mask = ids[:, :longest], mask[:, :longest]
        hidden: Tensor = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        counted = mask[..., None].to(hidden.dtype)
        return (hidden * counted).sum(1) / counted.sum(1).clamp(min=1)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the model's and the tokenizer's files, as they are now."""
        if options.weights not in ("pretrained", "none"):
            raise UserError(
                f"--weights {options.weights}: of {cls.name} there are pretrained or none; other "
                "weights are another folder or id, named as --backbone"
            )
        _drop_stale_tokenizer(cls.name)
        return f"{options.weights}@{model_digest(cls.name, options.weights != 'none')}"

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> Tensor:
        """Texts → N × max_tokens ids, cut and padded."""
        tokenizer = _tokenizer(cls.name)
        ids = tokenizer(
            list(raws),
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


def has_model(name: str) -> bool:
    """Whether a model is on this machine: a folder, or in Hugging Face's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    folder = Path(name).expanduser()
    if not folder.is_dir():
        try:
            config = try_to_load_from_cache(name, "config.json")
        except HFValidationError:
            return False
        if not isinstance(config, str):
            return False
        folder = Path(config).parent
    return any(True for kind in WEIGHT_FILES for _ in folder.glob(kind))


@lru_cache
def model_folder(name: str) -> Path:
    """The folder of a model's files: a local one, or the hub's in Hugging Face's cache."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"--backbone {name}: no config.json in that folder; expected a model saved in "
                "Hugging Face's format (save_pretrained)"
            )
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        for kind in WEIGHT_FILES:
            wanted = [*TOKENIZER_FILES, *IMAGE_FILES, kind]
            try:  # prefer the local copy: a new revision must not arrive in the middle of a grid
                snapshot = snapshot_download(name, allow_patterns=wanted, local_files_only=True)
            except OSError:
                snapshot = snapshot_download(name, allow_patterns=wanted, etag_timeout=10)
            if any(Path(snapshot).glob(kind)):
                return Path(snapshot)
        raise UserError(f"--backbone {name}: the hub's repository holds no weights for torch")
    except HFValidationError:
        raise UserError(
            f"--backbone {name}: neither a folder nor a Hugging Face model id"
        ) from None
    except UserError:
        raise
    except Exception as error:  # the hub's errors share no base class with the network's
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        raise UserError(
            f"--backbone {name}: no such folder, and the model is not available from the Hugging Face "
            f"hub ({reason}). Where there is a network, `hf download {name}`; then copy that "
            "machine's HF_HOME folder here and set HF_HOME, or name a local folder as --backbone"
        ) from None


def model_digest(name: str, with_weights: bool, others: tuple[str, ...] = TOKENIZER_FILES) -> str:
    """A digest of the names and bytes of the files that decide what the model computes.

    others: files beside the weights and config.json that do.
    """
    folder = model_folder(name)
    patterns = ("config.json", *others, *(WEIGHT_FILES if with_weights else ()))
    files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    if with_weights and not any(file.match(p) for file in files for p in WEIGHT_FILES):
        raise UserError(
            f"--backbone {name}: no weights in {folder} ({' or '.join(WEIGHT_FILES)}); put them "
            "there, or train from scratch with --weights none"
        )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + bytes.fromhex(file_digest(file)))
    return digest.hexdigest()[:12]


_tokenizers: dict[str, tuple[str, Any]] = {}
"""By model: the digest of the tokenizer's files when it was loaded, and the tokenizer."""


def _tokenizer(name: str) -> Any:
    """Load the tokenizer once: it stays the same for a whole run, whatever happens to its files."""
    if name not in _tokenizers:
        declare_missing_operators()
        from transformers import AutoTokenizer

        digest = model_digest(name, with_weights=False)
        try:
            loaded = AutoTokenizer.from_pretrained(model_folder(name), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"--backbone {name}: no tokenizer: {_first_line(error)}") from None
        _tokenizers[name] = digest, loaded
    return _tokenizers[name][1]


def _drop_stale_tokenizer(name: str) -> None:
    """Have the tokenizer loaded again if its files are not those it was loaded from."""
    if name in _tokenizers and _tokenizers[name][0] != model_digest(name, with_weights=False):
        del _tokenizers[name]


def _pad_id(name: str) -> int:
    pad = _tokenizer(name).pad_token_id
    if pad is None:
        raise UserError(f"--backbone {name}: its tokenizer has no padding token; use an encoder")
    return int(pad)


def _load_model(name: str, pretrained: bool) -> Any:
    model, missing = load_model(name, pretrained)
    check_complete(name, {key for key in missing if "pooler." not in key})
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # forward pools the last layer itself; this one is never used
    return model


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
    except (OSError, ValueError) as error:
        raise UserError(f"--backbone {name} does not load: {_first_line(error)}") from None
    return model, missing


def check_complete(name: str, lacking: set[str]) -> None:
    """Raise a UserError if a model's file lacks weights that are used."""
    if lacking:
        raise UserError(
            f"--backbone {name}: its weights lack {len(lacking)} tensors of the model, e.g. "
            f"{min(lacking)}; --weights none would train from scratch"
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
