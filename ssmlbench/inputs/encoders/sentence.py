"""The parts after the encoder in a sentence-transformers folder: pooling, dense layers, normalisation.

The folder is JSON and tensors: modules.json names the parts in order. It is read here without the
package, and no code that it names is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ssmlbench.core.errors import UserError, plain_reason
from ssmlbench.core.plain_text import line_of
from ssmlbench.core.suggestions import one_of

MODULES = "modules.json"
TEXT_OPTIONS = ("sentence_bert_config.json", "config_sentence_transformers.json")
SENTENCE_FILES = (MODULES, *TEXT_OPTIONS, "[0-9]_*/*")
"""Files besides the encoder's own that determine the features."""

POOLING = {  # by the name of today; the switch of older folders
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The ways to pool, in the order in which several are joined."""

Part = tuple[str, str]
"""Kind and subfolder of one part."""


@dataclass(frozen=True)
class SentenceModel:
    """The description of a sentence-transformers folder."""

    name: str  # as typed, for messages
    folder: Path
    parts: tuple[Part, ...]  # after the encoder
    modes: tuple[str, ...]  # of pooling
    longest: int | None  # tokens
    lower: bool  # texts are put in lower case first
    prompt: str  # stands before every text

    @property
    def is_plain_mean(self) -> bool:
        """Whether it is a mean over tokens; a normalisation of rows is left to `--scaling`."""
        kinds = {kind for kind, _ in self.parts}
        mean = self.modes == ("mean",) and kinds <= {"Pooling", "Normalize"}
        return mean and not self.lower and not self.prompt

    def text(self, text: str) -> str:
        """A text as the tokenizer's input."""
        text = f"{self.prompt}{text}"
        return text.lower() if self.lower else text


def read_sentence_model(name: str, folder: Path) -> SentenceModel | None:
    """The description of a folder; None if it is not one of sentence-transformers."""
    if not (folder / MODULES).is_file():
        return None
    listed = _json(name, folder / MODULES)
    parts = [(str(part["type"]).rpartition(".")[2], str(part["path"])) for part in listed]
    if not parts or parts[0] != ("Transformer", ""):
        first = f"{parts[0][0]} in {parts[0][1] or 'the folder itself'}" if parts else "nothing"
        raise UserError(
            f"--backbone {name}: its {MODULES} begins with {first}; expected a Transformer in the "
            "folder itself. If it is in a subfolder, name that"
        )
    for kind, _ in parts[1:]:
        if kind not in PARTS:
            raise UserError(
                f"--backbone {name}: its {MODULES} has a part {kind}, which is not known here; known "
                f"are {', '.join(PARTS)}. --pooling masked takes the mean over tokens instead"
            )
    modes = next((_modes(name, folder / path) for kind, path in parts[1:] if kind == "Pooling"), ())
    if not modes:
        raise UserError(f"--backbone {name}: its {MODULES} has no Pooling")
    options = [_json(name, f) if (f := folder / file).is_file() else {} for file in TEXT_OPTIONS]
    prompts = options[1].get("prompts") or {}
    return SentenceModel(
        name,
        folder,
        tuple(parts[1:]),
        modes,
        options[0].get("max_seq_length"),
        bool(options[0].get("do_lower_case")),
        prompts.get(options[1].get("default_prompt_name") or "") or "",
    )


class SentenceHead(nn.Module):
    """Hidden states of tokens → one vector per text, by the parts of a sentence-transformers folder."""

    def __init__(self, model: SentenceModel, width: int, pretrained: bool):
        """width: of a token's hidden state; pretrained: load the weights of dense layers."""
        super().__init__()
        self.modes = model.modes
        self.width = width * len(model.modes)
        self.after = nn.Sequential()
        for kind, path in model.parts:
            part = PARTS[kind](model, model.folder / path, self.width, pretrained)
            self.after.append(part)
            self.width = getattr(part, "width", self.width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """hidden: B × T × D; mask: B × T, true for tokens that are not padding → B × width."""
        pooled: Tensor = self.after(pool_tokens(hidden, mask, self.modes))
        return pooled


def pool_tokens(hidden: Tensor, mask: Tensor, modes: Sequence[str]) -> Tensor:
    """The pooled states of each text's tokens, with several modes concatenated. Padding is on the right."""
    counted = mask[..., None].to(hidden.dtype)
    tokens = counted.sum(1).clamp(min=1)
    positions = torch.arange(1, hidden.shape[1] + 1, device=hidden.device, dtype=hidden.dtype)
    weights = counted * positions[:, None]
    last = (mask.sum(1) - 1).clamp(min=0)
    ways: Mapping[str, Callable[[], Tensor]] = {
        "cls": lambda: hidden[:, 0],
        "max": lambda: (
            hidden.masked_fill(~mask[..., None], -torch.inf).amax(1).nan_to_num(neginf=0.0)
        ),
        "mean": lambda: (hidden * counted).sum(1) / tokens,
        "mean_sqrt_len_tokens": lambda: (hidden * counted).sum(1) / tokens.sqrt(),
        "weightedmean": lambda: (hidden * weights).sum(1) / weights.sum(1).clamp(min=1),
        "lasttoken": lambda: hidden[torch.arange(len(hidden), device=hidden.device), last],
    }
    return torch.cat([ways[mode]() for mode in modes], dim=1)


class Dense(nn.Module):
    """A linear layer and an activation of torch."""

    def __init__(self, model: SentenceModel, folder: Path, width: int, pretrained: bool):
        super().__init__()
        config = _json(model.name, folder / "config.json")
        if config.get("use_residual") or config.get("module_input_name", SENTENCE) != SENTENCE:
            raise UserError(
                f"--backbone {model.name}: {folder.name} is not a plain dense layer of sentence vectors"
            )
        activation = str(config.get("activation_function") or "torch.nn.Identity").rpartition(".")[
            2
        ]
        one_of(activation, ACTIVATIONS, f"--backbone {model.name}: activation of {folder.name}")
        self.width = int(config.get("out_features", width))
        self.linear = nn.Linear(width, self.width, bias=bool(config.get("bias", True)))
        self.activation: nn.Module = getattr(nn, activation)()
        if pretrained:
            load_part(model.name, folder, self.linear, "linear.")

    def forward(self, vectors: Tensor) -> Tensor:
        """B × width → B × `self.width`."""
        found: Tensor = self.activation(self.linear(vectors))
        return found


class RowLength(nn.Module):
    """Rows of length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        """B × D → B × D."""
        return F.normalize(vectors, dim=-1)


def _layer_norm(model: SentenceModel, folder: Path, width: int, pretrained: bool) -> nn.Module:
    norm = nn.LayerNorm(width)
    if pretrained:
        load_part(model.name, folder, norm, "norm.")
    return norm


SENTENCE = "sentence_embedding"
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")
PARTS: Mapping[str, Callable[[SentenceModel, Path, int, bool], nn.Module]] = {
    "Pooling": lambda *_: nn.Identity(),  # it comes first in SentenceHead
    "Dropout": lambda *_: nn.Identity(),  # --input-dropout drops features
    "Normalize": lambda *_: RowLength(),
    "LayerNorm": _layer_norm,
    "Dense": Dense,
}
"""Builders of parts, by the last word of the part's type."""


def load_part(name: str, folder: Path, module: nn.Module, prefix: str) -> None:
    """Load the weights that a part has in its folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    try:
        if safe.is_file():
            stored = load_file(safe)
        else:
            stored = torch.load(pickled, map_location="cpu", weights_only=True)
        module.load_state_dict({key.removeprefix(prefix): value for key, value in stored.items()})
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        reason = line_of(error, -1)
        raise UserError(f"--backbone {name}: no weights for {folder.name} ({reason})") from None


def _modes(name: str, folder: Path) -> tuple[str, ...]:
    config = _json(name, folder / "config.json")
    named = config.get("pooling_mode")
    if named is None:
        return tuple(mode for mode, switch in POOLING.items() if config.get(switch)) or ("mean",)
    modes = (named,) if isinstance(named, str) else tuple(named)
    for mode in modes:
        one_of(mode, tuple(POOLING), f"--backbone {name}: pooling_mode of {folder.name}")
    return modes


def _json(name: str, file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"--backbone {name}: {file} cannot be read ({plain_reason(error)})"
        ) from None
