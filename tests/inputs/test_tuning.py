"""Encoders of which a part is trained: their last blocks, or low-rank weights beside their layers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import CheckpointSaved, Event
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, SmallCnn, find_encoder
from ssmlbench.inputs.encoders.base import repeated_blocks
from ssmlbench.inputs.encoders.tuning import tune_encoder
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.saved_model import SavedModel
from ssmlbench.runs.scores import StoredScores
from tests.support.tiny_models import asked

LORA = {"tune": "lora", "lora_rank": 2, "lora_alpha": 4.0}


def text_encoder(bert: Path, **spec: Any) -> Encoder:
    cls = find_encoder(Plugins().encoders, str(bert), "text")
    ids = cls.prepare(["ba de fi"], EncoderOptions(**{**cls.options, "max_tokens": 8}))
    encoder = cls(ids[0])
    tune_encoder(encoder, RunSpec(method="bce", dataset="tiny-text", **spec), ids[0])
    return encoder


def image_encoder(name: str, **spec: Any) -> Encoder:
    cls = find_encoder(Plugins().encoders, name, "image")
    example = torch.zeros(3, 32, 32, dtype=torch.uint8)
    encoder = cls(example, EncoderOptions(weights="none", image_size=32, normalise=True))
    tune_encoder(encoder, RunSpec(method="bce", dataset="tiny-images", **spec), example)
    return encoder


def trained(encoder: nn.Module) -> set[str]:
    return {name for name, weight in encoder.named_parameters() if weight.requires_grad}


def in_training(encoder: nn.Module) -> set[str]:
    return {name for name, module in encoder.train().named_modules() if module.training}


# ------------------------------------------------------------------------------- the last blocks


def test_the_last_layer_of_a_transformer_is_trained_and_the_rest_is_in_eval_mode(
    bert: Path,
) -> None:
    encoder = text_encoder(bert, layers=1)
    own = {name for name, _ in encoder.named_parameters() if ".layer.1." in name}
    assert trained(encoder) == own
    modes = in_training(encoder)
    assert "model.encoder.layer.1.output.dropout" in modes
    assert not any("layer.0" in name or "embeddings" in name for name in modes)


def test_the_last_block_of_a_resnet_keeps_the_statistics_before_it(bert: Path) -> None:
    encoder = image_encoder("resnet18", layers=1)
    assert {name[:15] for name in trained(encoder)} == {"model.layer4.1."}
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()(torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8))
    changed = {n for n, value in encoder.state_dict().items() if not torch.equal(value, before[n])}
    assert changed
    assert all(name.startswith("model.layer4.1.bn") for name in changed)


def test_what_runs_after_the_last_block_is_trained_too() -> None:
    encoder = image_encoder("vit_b_32", layers=2)
    ends = {name.rpartition("encoder.")[2].partition(".weight")[0] for name in trained(encoder)}
    assert any(end.startswith("layers.encoder_layer_10.") for end in ends)
    assert "ln" in ends
    assert not any("encoder_layer_9." in end or "conv_proj" in end for end in ends)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("resnet50", 3 + 4 + 6 + 3),
        ("convnext_tiny", 3 + 3 + 9 + 3),
        ("vit_b_16", 12),
        ("swin_t", 12),
        ("mobilenet_v2", 17),
        ("mobilenet_v3_small", 11),
        ("efficientnet_b0", 16),
        ("densenet121", 4),
    ],
)
def test_blocks_are_residual_blocks_and_layers(name: str, blocks: int) -> None:
    declare_missing_operators()
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.get_model(name, weights=None)
    assert len(list(repeated_blocks(model))) == blocks


def test_a_method_that_frees_the_encoder_frees_what_is_trained_only(bert: Path) -> None:
    encoder = text_encoder(bert, layers=1)
    before = trained(encoder)
    encoder.requires_grad_(False).train(False)
    assert not trained(encoder)
    encoder.requires_grad_(True).train(True)
    assert trained(encoder) == before


def test_what_cannot_be_tuned_is_one_line(tiny: Plugins, bert: Path) -> None:
    with pytest.raises(UserError, match="has 2 blocks"):
        text_encoder(bert, layers=3)
    small = torch.zeros(3, 32, 32)
    spec = RunSpec(method="bce", dataset="tiny-images", layers=1)
    with pytest.raises(UserError, match="not a stack of blocks"):
        tune_encoder(SmallCnn(small), spec, small)
    text = {"dataset": "tiny-text", "backbone": str(bert)}
    vectors = {"dataset": "tiny-vectors"}
    with pytest.raises(UserError, match="leave out --freeze"):
        asked(tiny, **text, freeze=True, layers=1)
    with pytest.raises(UserError, match="vector has nothing that can be trained"):
        asked(tiny, **vectors, layers=1)
    with pytest.raises(UserError, match="tfidf has nothing that can be trained"):
        asked(tiny, dataset="tiny-text", backbone="tfidf", tune="lora")
    with pytest.raises(UserError, match="--lora-rank is for --tune lora"):
        asked(tiny, **text, lora_rank=4)
    with pytest.raises(UserError, match="must be at least 1"):
        asked(tiny, **text, layers=0)


def test_without_peft_the_user_is_told_what_to_install(
    tiny: Plugins, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"needs peft: pip install 'ssmlbench\[lora\]'"):
        asked(tiny, dataset="tiny-text", backbone=str(bert), tune="lora")


# ------------------------------------------------------------------------------- low-rank weights


def test_low_rank_weights_start_without_effect_and_are_all_that_is_trained(bert: Path) -> None:
    pytest.importorskip("peft")
    plain = text_encoder(bert).eval()
    encoder = text_encoder(bert, **LORA).eval()
    ids = torch.randint(5, 40, (3, 8)).int()
    with torch.no_grad():
        assert torch.equal(encoder(ids), plain(ids))
    names = trained(encoder)
    assert len(names) == 2 * 2 * 6  # A and B, two layers, six linear maps in each
    assert all("lora_" in name for name in names)
    assert trained(text_encoder(bert, layers=1, **LORA)) == {n for n in names if ".layer.1." in n}


def test_blocks_without_linear_layers_are_one_line() -> None:
    pytest.importorskip("peft")
    with pytest.raises(UserError, match="have no linear layers"):
        image_encoder("resnet18", **LORA)


# ------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("chosen", [{"layers": 1}, LORA], ids=["layers", "lora"])
def test_a_run_resumes_with_equal_bits_and_its_model_scores_as_it_did(
    chosen: dict[str, Any], tiny: Plugins, bert: Path, tmp_path: Path
) -> None:
    if "tune" in chosen:
        pytest.importorskip("peft")

    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if event == CheckpointSaved(1):
            raise Killed

    text = {"dataset": "tiny-text", "backbone": str(bert), "max_tokens": 12, "method": "cap"}
    spec = asked(tiny, **text, **chosen)
    assert len({asked(tiny, **text).hash, spec.hash, asked(tiny, **text, layers=2).hash}) == 3
    whole, broken = (RunContext(tmp_path / name, "cpu", 1) for name in ("whole", "broken"))
    execute(spec, tiny, whole)
    with pytest.raises(Killed):
        execute(spec, tiny, broken, kill)
    execute(spec, tiny, broken)
    folders = [RunFolder.of(context.results, spec) for context in (whole, broken)]
    first, second = (StoredScores.read(folder.path).scores for folder in folders)
    assert np.array_equal(first, second)
    model = SavedModel(folders[0].path, tiny, device="cpu")
    stored = set(model._stored.tensors["network"])
    assert any("layer.1." in name for name in stored)
    assert not any("embeddings" in name or "base_layer" in name for name in stored)
    inputs = [row.input for row in tiny.datasets["tiny-text"]().rows("test")]
    assert np.allclose(model.scores(inputs), first, atol=1e-6)


def test_low_rank_weights_learn_ten_times_as_fast_unless_told(tiny: Plugins, bert: Path) -> None:
    pytest.importorskip("peft")
    text = {"dataset": "tiny-text", "backbone": str(bert)}
    assert asked(tiny, **text).lr == 1e-4
    spec = asked(tiny, **text, tune="lora")
    assert (spec.lr, spec.lora_rank, spec.lora_alpha) == (pytest.approx(1e-3), 8, 16.0)
    assert asked(tiny, **text, tune="lora", lr=1e-4).lr == 1e-4
