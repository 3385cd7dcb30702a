"""Hugging Face image encoders: tiny models with random weights, saved in the real formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders import EncoderOptions, find_encoder
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SMALL, "intermediate_size": 32, "image_size": 16, "patch_size": 8}


def vit(transformers: Any) -> Any:
    config = transformers.ViTConfig(**VISION)
    return transformers.ViTModel(config, add_pooling_layer=False)


def dinov2(transformers: Any) -> Any:
    return transformers.Dinov2Model(transformers.Dinov2Config(**VISION))


def convnext(transformers: Any) -> Any:
    widths = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2}
    config = transformers.ConvNextConfig(**widths)
    return transformers.ConvNextModel(config)


def clip(transformers: Any) -> Any:
    text = {**SMALL, "intermediate_size": 32, "vocab_size": 20, "eos_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)
    return transformers.CLIPModel(config)


def siglip(transformers: Any) -> Any:
    text = {**SMALL, "intermediate_size": 32, "vocab_size": 20}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)
    return transformers.SiglipModel(config)


@pytest.fixture(params=[vit, dinov2, convnext, clip, siglip], ids=lambda make: make.__name__)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(request.param, tmp_path / request.param.__name__)


def saved(make: Callable[[Any], Any], folder: Path) -> Path:
    declare_missing_operators()
    import transformers

    torch.manual_seed(0)
    make(transformers).save_pretrained(folder)
    # Its name in transformers 5.0 is that of the only one there.
    of_pillow = getattr(transformers, "ViTImageProcessorPil", transformers.ViTImageProcessor)
    of_pillow(
        size={"height": 16, "width": 16}, image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7]
    ).save_pretrained(folder)
    return folder


def test_features_are_the_models_own(folder: Path) -> None:
    import transformers

    cls = find_encoder(Plugins().encoders, str(folder), "image")
    assert cls.options["image_size"] == 16
    options = EncoderOptions(**cls.options)
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype(np.uint8)
    prepared = cls.prepare(list(images), options)
    encoder = cls(prepared[0], options).eval()
    model = transformers.AutoModel.from_pretrained(folder)
    model = getattr(model, "vision_model", model).eval()
    mean, deviation = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6, 0.7])
    pixels = torch.from_numpy((images / 255 - mean) / deviation).float().permute(0, 3, 1, 2)
    with torch.no_grad():
        outputs = model(pixel_values=pixels)
        expected = outputs.pooler_output
        if folder.name == "vit":  # its pooler was not saved: the class token
            expected = outputs.last_hidden_state[:, 0]
        given = encoder(prepared)
    assert given.shape == (3, encoder.features)
    assert torch.allclose(given, expected.flatten(1), atol=1e-5)


def test_a_run_names_the_weights_and_the_processor(tmp_path: Path) -> None:
    plugins = Plugins([write_data_plugin(tmp_path)])
    model = saved(dinov2, tmp_path / "model")
    fields = {"method": "logistic", "dataset": "tiny-images", "pi": 0.3, "freeze": True}
    spec = resolve(plugins, {}, backbone=str(model), **fields)
    assert (spec.image_size, spec.backbone_name) == (16, "model")
    execute(spec, plugins, RunContext(tmp_path / "results", "cpu"))
    assert RunFolder.of(tmp_path / "results", spec).finished
    processor = model / "preprocessor_config.json"
    processor.write_text(processor.read_text().replace("0.1", "0.4"))
    assert resolve(plugins, {}, backbone=str(model), **fields).weights != spec.weights


def test_a_folder_that_holds_no_image_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"no preprocessor_config\.json"):
        find_encoder(Plugins().encoders, str(tmp_path), "image")


def test_a_size_that_the_model_cannot_take_is_one_line(tmp_path: Path) -> None:
    cls = find_encoder(Plugins().encoders, str(saved(vit, tmp_path / "vit")), "image")
    example = torch.zeros(3, 24, 24, dtype=torch.uint8)
    with pytest.raises(UserError, match="its own is 16"):
        cls(example, EncoderOptions(**{**cls.options, "image_size": 24}))
