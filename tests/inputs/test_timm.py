"""timm's models: tiny ones with random weights, saved as timm saves them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ssmlbench.checks.encoders import encoder_statements
from ssmlbench.core.backbones import absolute_backbone, portable_backbone
from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

TINY_RESNET = {"layers": [1, 1, 1, 1], "channels": [4, 4, 8, 8], "stem_width": 4}
TINY_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2}
ARCHITECTURES = {"resnet18": TINY_RESNET, "vit_tiny_patch16_224": TINY_VIT}
DATA = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "input_size": [3, 32, 32]}


@pytest.fixture
def timm() -> Any:
    declare_missing_operators()
    return pytest.importorskip("timm")


def save_tiny(timm: Any, folder: Path, name: str = "resnet18", safe: bool = True) -> Path:
    torch.manual_seed(0)
    arguments = ARCHITECTURES[name]
    model = timm.create_model(name, num_classes=5, **arguments)
    config = {"num_classes": 5, "pretrained_cfg": {**model.pretrained_cfg, **DATA}}
    timm.models.save_for_hf(
        model, folder, model_config=config, model_args=arguments, safe_serialization=safe
    )
    return folder


def tiny_encoder(folder: Path) -> type[Encoder]:
    return find_encoder(Plugins().encoders, f"timm:{folder}", "image")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_features_are_the_models_own(name: str, timm: Any, tmp_path: Path) -> None:
    folder = save_tiny(timm, tmp_path / "model", name)
    cls = tiny_encoder(folder)
    options = EncoderOptions(**cls.options)
    assert options.image_size == 32
    images = np.random.default_rng(0).integers(0, 256, (3, 50, 40, 3)).astype(np.uint8)
    prepared = cls.prepare(list(images), options)
    encoder = cls(prepared[0], options).eval()
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    bicubic = [
        np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC)) / 255
        for image in images
    ]
    pixels = (np.stack(bicubic) - DATA["mean"]) / DATA["std"]
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels).float().permute(0, 3, 1, 2))
        assert torch.allclose(encoder(prepared), expected, atol=1e-5)
    assert encoder.features == expected.shape[1]


def test_it_keeps_the_contract(timm: Any, tmp_path: Path) -> None:
    for statement in encoder_statements(tiny_encoder(save_tiny(timm, tmp_path / "model"))):
        statement.check()


def test_the_name_alone_has_the_data_configuration_of_timm(timm: Any) -> None:
    cls = find_encoder(Plugins().encoders, "timm:test_vit", "image")
    data = timm.data.resolve_data_config(
        pretrained_cfg=timm.get_pretrained_cfg("test_vit").to_dict()
    )
    assert cls.options["image_size"] == data["input_size"][1] != 224
    assert cls.interpolation == data["interpolation"]
    example = torch.zeros(3, 64, 64, dtype=torch.uint8)
    encoder = cls(example, EncoderOptions(weights="none", image_size=64, normalise=True))
    assert encoder.mean.flatten().tolist() == pytest.approx(data["mean"])  # type: ignore[union-attr]


def test_a_checkpoint_file_of_another_classifier_is_read(timm: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=7)
    file = tmp_path / "mine.pth"
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, file)
    cls = find_encoder(Plugins().encoders, f"timm:test_resnet@{file}", "image")
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    options = EncoderOptions(weights="pretrained", image_size=64, normalise=False)
    encoder = cls(images[0], options).eval()
    model.reset_classifier(0)
    with torch.no_grad():
        assert torch.equal(encoder(images), model.eval()(images.float() / 255))
    before = cls.weights_id(options)
    torch.save(timm.create_model("test_resnet").state_dict(), file)
    assert cls.weights_id(options) != before


def test_weights_that_torch_saved_are_read_as_safetensors_are(timm: Any, tmp_path: Path) -> None:
    example = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8)
    kinds = {"safe": True, "torch": False}
    classes = [tiny_encoder(save_tiny(timm, tmp_path / k, safe=v)) for k, v in kinds.items()]
    with torch.no_grad():
        first, second = (cls(example).eval()(example[None]) for cls in classes)
    assert torch.equal(first, second)


def test_a_run_is_made_fine_tuned_and_frozen(timm: Any, tmp_path: Path) -> None:
    plugins = Plugins([write_data_plugin(tmp_path)])
    folder = save_tiny(timm, tmp_path / "model")
    fields = {"method": "bce", "dataset": "tiny-images", "pi": 0.3, "epochs": 1, "epoch_steps": 2}
    for freeze in (True, False):
        spec = resolve(plugins, {}, backbone=f"timm:{folder}", freeze=freeze, **fields)
        assert (spec.image_size, spec.backbone_name) == (32, "timm:model")
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu"))
        assert RunFolder.of(tmp_path / "results", spec).finished


def test_what_cannot_be_loaded_is_one_line(timm: Any, tmp_path: Path) -> None:
    encoders = Plugins().encoders
    options = EncoderOptions(weights="pretrained", image_size=64, normalise=True)
    example = torch.zeros(3, 64, 64, dtype=torch.uint8)
    with pytest.raises(UserError, match="Did you mean timm:resnet18"):
        find_encoder(encoders, "timm:resnet19", "image")
    with pytest.raises(UserError, match="timm has no such model"):
        find_encoder(encoders, "timm:resnet18.no_such_tag", "image")
    with pytest.raises(UserError, match="reads images"):
        find_encoder(encoders, "timm:resnet18", "text")
    with pytest.raises(UserError, match="there is no file"):
        find_encoder(encoders, f"timm:test_vit@{tmp_path}/no.pth", "image").weights_id(options)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="names no timm architecture"):
        find_encoder(encoders, f"timm:{tmp_path}", "image")
    other = save_tiny(timm, tmp_path / "model") / "model.safetensors"
    with pytest.raises(UserError, match="do not fit test_vit"):
        find_encoder(encoders, f"timm:test_vit@{other}", "image")(example, options)
    text = tmp_path / "weights.pth"
    text.write_text("no weights")
    with pytest.raises(UserError, match="holds no tensors"):
        find_encoder(encoders, f"timm:test_vit@{text}", "image")(example, options)
    other.unlink()
    with pytest.raises(UserError, match="no weights in"):
        tiny_encoder(other.parent).weights_id(options)
    with pytest.raises(UserError, match="timm:ARCHITECTURE@FILE"):
        tiny_encoder(other.parent).weights_id(EncoderOptions(weights="IMAGENET1K_V1"))


def test_without_the_extra_the_user_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"needs timm: pip install 'ssmlbench\[timm\]'"):
        find_encoder(Plugins().encoders, "timm:resnet34", "image")


def test_a_path_in_a_name_is_absolute_in_a_run_and_short_in_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    cases = {
        "timm:mine": (f"timm:{tmp_path}/mine", "timm:mine"),
        "timm:resnet18@mine/a.pth": (f"timm:resnet18@{tmp_path}/mine/a.pth", "timm:resnet18@a.pth"),
        "mine": (f"{tmp_path}/mine", "mine"),
        "timm:resnet18": ("timm:resnet18", "timm:resnet18"),
        "timm:owner/name": ("timm:owner/name", "timm:owner/name"),
        "owner/name": ("owner/name", "owner/name"),
    }
    for typed, (absolute, short) in cases.items():
        assert absolute_backbone(typed) == absolute
        assert portable_backbone(absolute) == short
