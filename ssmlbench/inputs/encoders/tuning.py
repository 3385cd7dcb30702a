"""Chooses the trained weights of an encoder: all, its last blocks (`--layers`), or low-rank ones (LoRA).

A block is a residual block of a CNN or a layer of a transformer. The other weights have no gradients and
stay in eval mode, so that their normalisation statistics and dropout are fixed too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders.base import Encoder
from ssmlbench.inputs.encoders.weights import load_encoder
from ssmlbench.inputs.torchvision_compat import declare_missing_operators

LORA_RANK, LORA_ALPHA = 8, 16.0
"""Defaults of `--tune lora`."""
LORA_LR = 10.0
"""Low-rank weights learn well with about ten times the learning rate of all weights."""
ADAPTERS = "lora_"
"""The prefix of peft's names of low-rank weights."""


def is_partly_trained(spec: RunSpec) -> bool:
    """Whether some weights of the encoder stay as they were loaded."""
    return spec.layers is not None or spec.tune != "full"


def load_tuned(encoder: type[Encoder], spec: RunSpec, example: Tensor) -> Encoder:
    """Build the encoder that the spec names, and fix the weights that it does not train."""
    built = load_encoder(encoder, spec, example)
    tune_encoder(built, spec, example)
    return built


def tune_encoder(encoder: Encoder, spec: RunSpec, example: Tensor) -> None:
    """Fix the weights that the spec does not train; with `--tune lora`, add the trained weights."""
    if not is_partly_trained(spec):
        return
    order = running_order(encoder, example)
    blocks = [module for module in order if module in set(encoder.blocks())]
    if not blocks:
        flag = "--layers" if spec.layers is not None else "--tune lora"
        raise UserError(f"{flag}: --backbone {encoder.name} is not a stack of blocks; leave it out")
    if spec.layers is not None and spec.layers > len(blocks):
        raise UserError(
            f"--layers {spec.layers}: --backbone {encoder.name} has {len(blocks)} blocks; without "
            "--layers all of it is trained"
        )
    trained = blocks[-spec.layers :] if spec.layers is not None else blocks
    if spec.tune == "lora":
        _add_adapters(encoder, trained, spec)
        encoder.train_only(trained, ADAPTERS)
    else:
        last = max(order.index(module) for module in blocks[-1].modules() if module in order)
        encoder.train_only([*trained, *order[last + 1 :]])


@torch.no_grad()
def running_order(encoder: Encoder, example: Tensor) -> list[nn.Module]:
    """The encoder's modules in the order in which they first run."""
    order: dict[nn.Module, None] = {}
    modes = [(module, module.training) for module in encoder.modules()]
    hooks = [
        module.register_forward_pre_hook(lambda module, _: order.setdefault(module))
        for module, _ in modes
    ]
    try:
        encoder.eval()(example[None])
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
    return list(order)


def _add_adapters(encoder: Encoder, blocks: list[nn.Module], spec: RunSpec) -> None:
    """Put low-rank weights beside every linear layer of the blocks; they start without effect."""
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    inside = {module for block in blocks for module in block.modules()}
    linear = [
        name
        for name, module in encoder.named_modules()
        if module in inside
        and type(module) is nn.Linear  # subclasses have other uses of the weight
    ]
    if not linear:
        raise UserError(
            f"--tune lora: the blocks of --backbone {encoder.name} have no linear layers; "
            "--layers N trains the last N of them"
        )
    size: dict[str, Any] = {"r": spec.lora_rank, "lora_alpha": spec.lora_alpha}
    config = LoraConfig(**size, target_modules=linear, lora_dropout=0.0)
    inject_adapter_in_model(config, encoder)


def require_peft() -> None:
    """Raise a UserError if peft is not installed."""
    declare_missing_operators()  # peft imports transformers
    try:
        import peft  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise UserError("--tune lora needs peft: pip install 'ssmlbench[lora]'") from None
