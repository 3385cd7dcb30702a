"""Hugging Face folders as users have them: text families, forms of weights, and what is wrong in them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder
from ssmlbench.inputs.encoders.tuning import tune_encoder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import encoder_notes, resolve
from tests.inputs.test_image_models import clip, saved, vit

TEXTS = ["ba de fi go", "la", "no pu ra se ti ba de fi go ku la me"]
SHAPE = {
    "vocab_size": 100,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 66,
    "pad_token_id": 0,
}
DISTILBERT = {"vocab_size": 100, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
MODERN = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
FAMILIES = {
    "Bert": SHAPE,
    "Roberta": {**SHAPE, "pad_token_id": 1},
    "DistilBert": DISTILBERT,
    "MPNet": SHAPE,
    "DebertaV2": {**SHAPE, **DEBERTA},
    "ModernBert": {**SHAPE, **MODERN},
    "T5": {
        "vocab_size": 100,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 2,
        "num_heads": 2,
    },
}


@pytest.fixture(scope="module")
def image_model(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(vit, tmp_path_factory.mktemp("vit") / "model")


def found(folder: Path, kind: str, **chosen: Any) -> tuple[type[Encoder], EncoderOptions]:
    cls = find_encoder(Plugins().encoders, str(folder), kind)
    short = {"max_tokens": 16} if kind == "text" else {}
    return cls, EncoderOptions(**{**cls.options, **short, **chosen})


def encoded(folder: Path, kind: str) -> torch.Tensor:
    cls, options = found(folder, kind)
    cls.weights_id(options)
    image = torch.arange(20 * 20 * 3).reshape(20, 20, 3).remainder(256).byte().numpy()
    inputs = cls.prepare(TEXTS if kind == "text" else [image], options)
    with torch.no_grad():
        features: torch.Tensor = cls(inputs[0], options).eval()(inputs)
    return features


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_text_encoders_is_trained_whole_and_in_its_last_layer(
    family: str, bert: Path, tmp_path: Path
) -> None:
    import transformers

    shutil.copytree(bert, tmp_path / "model")
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    getattr(transformers, f"{family}Model")(config).save_pretrained(tmp_path / "model")
    cls, options = found(tmp_path / "model", "text")
    ids = cls.prepare(TEXTS, options)
    for layers in (None, 1):
        encoder = cls(ids[0], options)
        assert len(encoder.blocks()) == 2
        tune_encoder(encoder, RunSpec(method="bce", dataset="tiny-text", layers=layers), ids[0])
        encoder.train()(ids).square().sum().backward()
        weights = dict(encoder.named_parameters())
        learning = {name for name, weight in weights.items() if weight.grad is not None}
        assert learning == {name for name, weight in weights.items() if weight.requires_grad}
        assert (layers is None) == any("embed" in name or "shared" in name for name in learning)


def test_positions_that_are_counted_from_the_padding_id_are_fewer(
    bert: Path, tmp_path: Path
) -> None:
    import transformers

    shutil.copytree(bert, tmp_path / "model")
    config = transformers.RobertaConfig(**FAMILIES["Roberta"])
    transformers.RobertaModel(config).save_pretrained(tmp_path / "model")
    cls, options = found(tmp_path / "model", "text", max_tokens=64)
    ids = torch.full((1, 64), 7).int()
    assert cls(ids[0], options).eval()(ids).isfinite().all()
    with pytest.raises(UserError, match="reads at most 64"):
        cls(torch.full((65,), 7).int(), options)


@pytest.mark.parametrize(
    ("family", "positions", "tokens"),
    [
        ("Bert", 64, 64),
        ("Bert", 255, 255),
        ("Bert", 256, 256),
        ("Roberta", 66, 64),
        ("Roberta", 257, 255),
        ("Roberta", 258, 256),
    ],
)
def test_a_model_that_reads_fewer_tokens_than_the_default_gets_as_many_as_it_reads(
    bert: Path, tmp_path: Path, tiny: Plugins, family: str, positions: int, tokens: int
) -> None:
    import transformers

    model = tmp_path / "model"
    shutil.copytree(bert, model)
    config = {**FAMILIES[family], "max_position_embeddings": positions}
    built = getattr(transformers, f"{family}Model")(
        getattr(transformers, f"{family}Config")(**config)
    )
    built.save_pretrained(model)
    asked = {"method": "bce", "dataset": "tiny-text", "pi": 0.3, "backbone": str(model)}
    spec = resolve(tiny, {}, **asked)
    assert spec.max_tokens == tokens
    assert resolve(tiny, {}, **asked, max_tokens=tokens).hash == spec.hash
    notes = encoder_notes([spec], tiny, asked)
    assert [f"reads at most {tokens} tokens" in note for note in notes] == [True] * (tokens < 256)
    assert encoder_notes([resolve(tiny, {}, **asked, max_tokens=tokens - 1)], tiny, asked) == []
    with pytest.raises(UserError, match=f"reads at most {tokens}; type --max-tokens {tokens}"):
        resolve(tiny, {}, **asked, max_tokens=tokens + 1)


# ------------------------------------------------------------------------------- forms of weights


def shard(folder: Path) -> None:
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="5KB")


def skip_before_torch_26() -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        pytest.skip("transformers refuses pickled weights with a torch before 2.6")


def pickle_weights(folder: Path) -> None:
    skip_before_torch_26()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("form", [shard, pickle_weights], ids=["shards", "pickle"])
@pytest.mark.parametrize("kind", ["text", "image"])
def test_shards_and_pickled_tensors_give_the_features_of_one_file(
    form: Callable[[Path], None], kind: str, bert: Path, image_model: Path, tmp_path: Path
) -> None:
    whole = bert if kind == "text" else image_model
    shutil.copytree(whole, tmp_path / "model")
    form(tmp_path / "model")
    assert torch.equal(encoded(tmp_path / "model", kind), encoded(whole, kind))


# ------------------------------------------------------------------------------- what is wrong


class Code:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def pickle_code(folder: Path) -> None:
    skip_before_torch_26()
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Code()}, folder / "pytorch_model.bin")


def lose_a_shard(folder: Path) -> None:
    shard(folder)
    min(folder.glob("model-*")).unlink()


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:3000])


def configured(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def without(*patterns: str) -> Callable[[Path], None]:
    return lambda folder: [f.unlink() for p in patterns for f in folder.glob(p)] and None


def replaced(name: str, put: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        put(folder / name)

    return change


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


REMOTE = {"model_type": "my", "auto_map": {"AutoConfig": "m.C", "AutoModel": "m.M"}}
WRONG: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "code": ("text", pickle_code, "code in it is not executed"),
    "shard": ("image", lose_a_shard, "model-00001-of"),
    "cut": ("text", cut, "does not load"),
    "architecture": ("text", configured(model_type="frob"), "does not recognize this architecture"),
    "no-architecture": ("image", written("config.json", "{}"), "model_type"),
    "config": ("image", written("config.json", "{"), "not a valid JSON file"),
    "remote": ("text", configured(**REMOTE), "custom code"),
    "shapes": ("image", configured(hidden_size=32), "other shapes than its config.json says"),
    "layers": ("text", configured(num_hidden_layers=4), "lack 32 tensors"),
    "no-weights": ("image", without("*.safetensors"), "no weights in"),
    "no-config": ("text", without("config.json"), "no config.json"),
    "no-tokenizer": ("text", without("tokenizer*", "vocab*"), "no tokenizer in"),
    "tokenizer": ("text", written("tokenizer.json", "{"), "no tokenizer: "),
    "no-processor": ("image", without("preprocessor_config.json"), "no preprocessor_config.json"),
    "processor": (
        "image",
        written("preprocessor_config.json", "[1]"),
        "no preprocessor_config.json",
    ),
    "weights-pipe": ("image", replaced("model.safetensors", os.mkfifo), "is a pipe or a device"),
    "tokenizer-device": ("text", replaced("tokenizer.json", device), "is a pipe or a device"),
    "pooling-pipe": ("text", replaced("1_Pooling/config.json", os.mkfifo), "is a pipe or a device"),
    "channels": (
        "image",
        written("preprocessor_config.json", '{"image_mean": [0.1, 0.2]}'),
        "no preprocessor_config.json",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_a_folder_is_one_line(
    wrong: str,
    bert: Path,
    image_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, spoil, message = WRONG[wrong]
    folder = tmp_path / "model"
    shutil.copytree(bert if kind == "text" else image_model, folder)
    spoil(folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as told:
        encoded(folder, kind)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "executed").exists()


# ------------------------------------------------------------------------------- processors


def test_the_processor_of_images_and_texts_together_is_read(bert: Path, tmp_path: Path) -> None:
    import transformers

    model = saved(clip, tmp_path / "model")
    (model / "preprocessor_config.json").unlink()
    of_pillow = getattr(transformers, "CLIPImageProcessorPil", transformers.CLIPImageProcessor)
    images = of_pillow(
        size={"shortest_edge": 20},
        crop_size={"height": 16, "width": 16},
        image_mean=[0.1, 0.2, 0.3],
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(model)
    assert not (model / "preprocessor_config.json").exists()
    cls, options = found(model, "image")
    assert options.image_size == 16
    encoder = cls(torch.zeros(3, 16, 16, dtype=torch.uint8), options)
    assert encoder.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])  # type: ignore[union-attr]
    before = cls.weights_id(options)
    file = model / "processor_config.json"
    file.write_text(file.read_text().replace("0.1", "0.4"))
    assert cls.weights_id(options) != before


def test_a_processor_that_does_not_normalise_is_obeyed(image_model: Path, tmp_path: Path) -> None:
    shutil.copytree(image_model, tmp_path / "model")
    text = '{"size": {"longest_edge": 16}, "do_normalize": false}'
    (tmp_path / "model" / "preprocessor_config.json").write_text(text)
    _, options = found(tmp_path / "model", "image")
    assert (options.image_size, options.normalise) == (16, False)
