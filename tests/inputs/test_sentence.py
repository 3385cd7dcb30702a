"""sentence-transformers folders: their own pooling, dense layers and normalisation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder
from ssmlbench.inputs.encoders.sentence import pool_tokens
from ssmlbench.plugins.loader import Plugins

TEXTS = ["ba de fi go ku", "La ME", "no pu ra se ti ba de fi go ku la me", ""]
SWITCHES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def sentence_folder(bert: Path, folder: Path, modes: Any, parts: tuple[str, ...] = ()) -> Path:
    """A copy of the encoder with a pooling, then dense layers and normalisation."""
    shutil.copytree(bert, folder)
    kinds = ["Transformer", "Pooling", *parts]
    described = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"st.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(described))
    for part in described[1:]:
        (folder / part["path"]).mkdir()
    old = isinstance(modes, str) and modes in SWITCHES
    switches = {switch: modes == mode for mode, switch in SWITCHES.items()}
    pooling = {"word_embedding_dimension": 16, **(switches if old else {"pooling_mode": modes})}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if "Dense" in kinds:
        dense = folder / f"{kinds.index('Dense')}_Dense"
        config = {"in_features": 16, "out_features": 6, "bias": True}
        config |= {"activation_function": "torch.nn.modules.activation.Tanh"}
        (dense / "config.json").write_text(json.dumps(config))
        tensors = {"linear.weight": torch.randn(6, 16), "linear.bias": torch.randn(6)}
        save_file(tensors, dense / "model.safetensors")
    return folder


def find(folder: Path) -> type[Encoder]:
    return find_encoder(Plugins().encoders, str(folder), "text")


def encoded(folder: Path, **chosen: Any) -> torch.Tensor:
    cls = find(folder)
    options = EncoderOptions(**{**cls.options, "max_tokens": 12, **chosen})
    ids = cls.prepare(TEXTS, options)
    encoder = cls(ids[0], options).eval()
    with torch.no_grad():
        features: torch.Tensor = encoder(ids)
    assert features.shape[1] == encoder.features
    return features


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("cls", [1.0, 6.0]),
        ("max", [3.0, 6.0]),
        ("mean", [2.0, 4.0]),  # (1 + 3) / 2
        ("mean_sqrt_len_tokens", [4 / 2**0.5, 8 / 2**0.5]),
        ("weightedmean", [(1 + 2 * 3) / 3, (6 + 2 * 2) / 3]),
        ("lasttoken", [3.0, 2.0]),
    ],
)
def test_each_pooling_by_hand(mode: str, expected: list[float]) -> None:
    hidden = torch.tensor([[[1.0, 6.0], [3.0, 2.0], [9.0, 9.0]]])  # the last token is padding
    mask = torch.tensor([[True, True, False]])
    assert pool_tokens(hidden, mask, [mode])[0].tolist() == pytest.approx(expected)
    both = pool_tokens(hidden, mask, [mode, "cls"])[0].tolist()
    assert both == pytest.approx([*expected, 1.0, 6.0])


MODELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "cls": ("cls", ("Normalize",)),
    "max-dense": ("max", ("Dense", "Normalize")),
    "weighted": ("weightedmean", ()),
    "last": ("lasttoken", ()),
    "two": (["cls", "mean_sqrt_len_tokens"], ("Normalize",)),
}


@pytest.mark.parametrize("model", MODELS)
def test_features_are_those_of_the_package(model: str, bert: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    folder = sentence_folder(bert, tmp_path / "model", *MODELS[model])
    listed = (
        (folder / "modules.json").read_text().replace("st.models", "sentence_transformers.models")
    )
    (folder / "modules.json").write_text(listed)
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    theirs.max_seq_length = 12
    expected = torch.from_numpy(theirs.encode(TEXTS))
    assert find(folder).options["pooling"] == "own"
    assert torch.allclose(encoded(folder), expected, atol=1e-5)


def test_a_folder_that_takes_the_mean_has_the_features_and_the_weights_of_its_encoder(
    bert: Path, tmp_path: Path
) -> None:
    folder = sentence_folder(bert, tmp_path / "model", "mean", ("Normalize",))
    assert find(folder).options == find(bert).options
    assert torch.equal(encoded(folder), encoded(bert))
    own = encoded(folder, pooling="own")
    assert torch.allclose(own, torch.nn.functional.normalize(encoded(bert)), atol=1e-6)
    masked, sentence = (EncoderOptions(weights="pretrained", pooling=p) for p in ("masked", "own"))
    assert find(folder).weights_id(masked) == find(bert).weights_id(masked)
    assert find(folder).weights_id(sentence) != find(bert).weights_id(masked)


def test_every_part_of_the_folder_is_in_the_digest(bert: Path, tmp_path: Path) -> None:
    folder = sentence_folder(bert, tmp_path / "model", "cls", ("Dense",))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    cls = find(folder)
    assert cls.options["max_tokens"] == 9
    options = EncoderOptions(**cls.options)
    seen = {cls.weights_id(options)}
    for file in ("modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"):
        with (folder / file).open("ab") as opened:
            opened.write(b" ")
        seen.add(cls.weights_id(options))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    seen.add(cls.weights_id(options))
    assert len(seen) == 5


def test_a_prompt_and_lower_case_reach_the_tokenizer(bert: Path, tmp_path: Path) -> None:
    folder = sentence_folder(bert, tmp_path / "model", "mean")
    prompts = {"prompts": {"query": "BA "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    cls = find(folder)
    options = EncoderOptions(**{**cls.options, "max_tokens": 12})
    plain = EncoderOptions(**{**cls.options, "max_tokens": 12, "pooling": "masked"})
    assert options.pooling == "own"
    assert torch.equal(cls.prepare(["De FI"], options), cls.prepare(["ba de fi"], plain))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", "[", "modules.json cannot be read"),
        ("modules.json", "[]", "begins with nothing"),
        ("modules.json", '[{"type": "st.Transformer", "path": "0_T"}]', "name that"),
        ("modules.json", '[{"type": "st.Transformer", "path": ""}]', "has no Pooling"),
        (
            "modules.json",
            '[{"type": "st.Transformer", "path": ""}, {"type": "st.LSTM", "path": "1"}]',
            "a part LSTM.*--pooling masked",
        ),
        ("1_Pooling/config.json", None, "config.json cannot be read"),
        ("1_Pooling/config.json", '{"pooling_mode": "median"}', "median: no such choice"),
        ("2_Dense/model.safetensors", None, "no weights for 2_Dense"),
        ("2_Dense/config.json", '{"out_features": 7}', "no weights for 2_Dense"),
        (
            "2_Dense/config.json",
            '{"out_features": 6, "activation_function": "os.system"}',
            "system: no such choice",
        ),
        ("2_Dense/config.json", '{"out_features": 6, "use_residual": true}', "not a plain dense"),
    ],
)
def test_a_folder_that_cannot_be_followed_is_one_line(
    file: str, content: str | None, message: str, bert: Path, tmp_path: Path
) -> None:
    folder = sentence_folder(bert, tmp_path / "model", "cls", ("Dense",))
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(UserError, match=message) as told:
        encoded(folder)
    assert "\n" not in str(told.value)
    assert torch.isfinite(encoded(folder, pooling="masked")).all()


def test_own_pooling_needs_a_folder_that_has_one(bert: Path) -> None:
    with pytest.raises(UserError, match=r"no modules\.json.*--pooling masked"):
        find(bert).weights_id(EncoderOptions(weights="pretrained", pooling="own"))
