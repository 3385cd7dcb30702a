"""Encoders: the contract, torchvision models, Hugging Face models, plugins, and missing weights."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.checks.encoders import encoder_statements
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import CheckpointSaved, Done, Event
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs import prepared
from ssmlbench.inputs.encoders import BUILTIN, Encoder, EncoderOptions, find_encoder
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from tests.support.tiny_models import asked, save_tiny_bert, write_data_plugin

SCRATCH = {"weights": "none", "image_size": 32, "normalise": True}


def example(size: int = 32) -> torch.Tensor:
    return torch.zeros(3, size, size, dtype=torch.uint8)


# ------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("cls", BUILTIN, ids=lambda cls: cls.name)
def test_a_built_in_encoder_keeps_the_contract(cls: type[Encoder]) -> None:
    for statement in encoder_statements(cls):
        statement.check()


def test_a_hugging_face_folder_keeps_the_contract(bert: Path, tiny: Plugins) -> None:
    cls = find_encoder(tiny.encoders, str(bert), "text")
    short = type("Short", (cls,), {"options": {**cls.options, "max_tokens": 24}, "name": cls.name})
    for statement in encoder_statements(short):
        statement.check()


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_small", "resnet18"])
def test_a_torchvision_model_keeps_the_contract(name: str, tiny: Plugins) -> None:
    cls = find_encoder(tiny.encoders, name, "image")
    small = type("Small", (cls,), {"options": SCRATCH, "name": name})
    for statement in encoder_statements(small):
        statement.check()


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18", 512), ("squeezenet1_1", 512), ("mobilenet_v3_small", 1024), ("vit_b_32", 768)],
)
def test_the_classifier_is_taken_off(name: str, width: int, tiny: Plugins) -> None:
    options = EncoderOptions(**{**SCRATCH, "image_size": 64})
    encoder = find_encoder(tiny.encoders, name, "image")(example(64), options).eval()
    assert encoder.features == width
    assert encoder(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape == (2, width)


def test_normalisation_is_imagenets_and_can_be_left_out(tiny: Plugins) -> None:
    cls = find_encoder(tiny.encoders, "squeezenet1_1", "image")
    encoder = cls(example(), EncoderOptions(**SCRATCH)).eval()
    plain = cls(example(), EncoderOptions(**{**SCRATCH, "normalise": False})).eval()
    encoder.model = plain.model = torch.nn.Identity()
    image = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    # (1 - mean) / deviation of the three channels
    expected = torch.tensor([[0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]])
    assert torch.allclose(encoder(image), expected)
    assert torch.equal(plain(image), torch.ones(1, 3))


def test_images_are_squashed_to_rgb_squares(tiny: Plugins) -> None:
    from PIL import Image

    cls = find_encoder(tiny.encoders, "squeezenet1_1", "image")
    grey = np.full((10, 30), 7, dtype=np.uint8)
    raws = [grey, grey[..., None], np.full((50, 8, 3), 7, np.uint8), Image.fromarray(grey)]
    prepared = cls.prepare(raws, EncoderOptions(**SCRATCH))
    assert prepared.shape == (4, 3, 32, 32)
    assert (prepared == 7).all()


def test_small_cnn_says_that_it_does_not_resize(tiny: Plugins) -> None:
    images = [np.zeros((4, 5), np.uint8), np.zeros((5, 4), np.uint8)]
    with pytest.raises(UserError, match="one size"):
        find_encoder(tiny.encoders, "small-cnn", "image").prepare(images, EncoderOptions())


def text_encoder(bert: Path, plugins: Plugins, **options: Any) -> tuple[Encoder, EncoderOptions]:
    cls = find_encoder(plugins.encoders, str(bert), "text")
    chosen = EncoderOptions(**{**cls.options, "max_tokens": 16, **options})
    return cls(torch.zeros(16).int(), chosen).eval(), chosen


@torch.no_grad()
def test_masked_pooling_is_the_mean_over_real_tokens(bert: Path, tiny: Plugins) -> None:
    encoder, options = text_encoder(bert, tiny)
    ids = encoder.prepare(["ba be bi", "ko"], options)
    assert ids.tolist()[1][3:] == [0] * 13  # [CLS] ko [SEP], then padding
    alone = encoder.model(input_ids=ids[1:, :3].long()).last_hidden_state.mean(1)
    assert torch.allclose(encoder(ids)[1:], alone, atol=1e-6)


@torch.no_grad()
def test_pooling_all_attends_to_padding_as_released(bert: Path, tiny: Plugins) -> None:
    encoder, options = text_encoder(bert, tiny, pooling="all")
    ids = encoder.prepare(["ko ba"], options)
    assert (ids != 0).sum() == 2  # no special tokens
    expected = encoder.model(input_ids=ids.long()).last_hidden_state.mean(1)
    assert torch.equal(encoder(ids), expected)


@torch.no_grad()
def test_sorting_by_length_changes_no_row(bert: Path, tiny: Plugins) -> None:
    encoder, options = text_encoder(bert, tiny)
    texts = [" ".join(["ba", "ko", "fu", "mi", "se"][: 1 + i % 5]) for i in range(70)]
    ids = encoder.prepare(texts, options)
    one_by_one = torch.cat([encoder(row[None]) for row in ids])
    assert torch.allclose(encoder(ids), one_by_one, atol=1e-5)


def test_texts_are_cut_at_max_tokens(bert: Path, tiny: Plugins) -> None:
    encoder, options = text_encoder(bert, tiny, max_tokens=4)
    assert encoder.prepare(["ba be bi bo bu"], options).shape == (1, 4)


# ------------------------------------------------------------------------------- names and weights


def test_more_tokens_than_the_model_reads_are_refused(bert: Path, tiny: Plugins) -> None:
    cls = find_encoder(tiny.encoders, str(bert), "text")
    with pytest.raises(UserError, match="reads at most 64"):
        cls(torch.zeros(65).int(), EncoderOptions(**cls.options))


def test_a_text_encoder_has_only_its_own_weights(bert: Path, tiny: Plugins) -> None:
    with pytest.raises(UserError, match="pretrained or none"):
        asked(tiny, dataset="tiny-text", backbone=str(bert), weights="IMAGENET1K_V1")


def test_an_unknown_image_encoder_answers_with_close_names(tiny: Plugins) -> None:
    with pytest.raises(UserError, match="resnet50"):
        find_encoder(tiny.encoders, "resnet5O", "image")


def test_an_encoder_of_another_kind_is_refused(tiny: Plugins) -> None:
    with pytest.raises(UserError, match="tiny-text is text"):
        asked(tiny, dataset="tiny-text", backbone="small-cnn")


def test_an_option_the_encoder_has_not_is_refused(tiny: Plugins) -> None:
    with pytest.raises(UserError, match="--pooling: --backbone vector has no such choice"):
        asked(tiny, dataset="tiny-vectors", pooling="all")
    with pytest.raises(UserError, match="--strong-views is for --freeze"):
        asked(tiny, dataset="tiny-vectors", strong_views=2)


def test_published_weights_that_cannot_be_had_are_an_error(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*arguments: Any, **options: Any) -> None:
        raise OSError("no network in tests")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    with pytest.raises(UserError, match=r"TORCH_HOME.*--weights none") as raised:
        asked(tiny, dataset="tiny-images", backbone="squeezenet1_1")
    assert "no network in tests" in str(raised.value)
    assert str(tmp_path) in str(raised.value)


def test_published_weights_are_read_from_torchs_cache_and_known_by_their_digest(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_missing_operators()
    import torchvision

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    weights = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT
    file = tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    state = torchvision.models.squeezenet1_1(weights=None).state_dict()
    torch.save(state, file)
    spec = asked(tiny, dataset="tiny-images", backbone="squeezenet1_1", image_size=32)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    assert spec.weights == f"{weights.name}@{digest}"
    options = EncoderOptions.of(spec)
    encoder = find_encoder(tiny.encoders, "squeezenet1_1", "image")(example(), options)
    assert torch.equal(encoder.model.features[0].weight, state["features.0.weight"])
    with pytest.raises(UserError, match="IMAGENET1K_V1"):
        asked(tiny, dataset="tiny-images", backbone="squeezenet1_1", weights="IMAGENET1K_V9")


def test_a_hub_model_that_cannot_be_had_is_an_error(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def offline(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(UserError, match=r"HF_HOME.*local folder"):
        asked(tiny, dataset="tiny-text", backbone="nobody/such-model")


def test_a_folder_without_weights_is_an_error(bert: Path, tiny: Plugins, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(bert, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(UserError, match="no weights in"):
        asked(tiny, dataset="tiny-text", backbone=str(bare))
    assert asked(tiny, dataset="tiny-text", backbone=str(bare), weights="none").weights
    (bare / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config\.json"):
        find_encoder(tiny.encoders, str(tmp_path), "text").weights_id(
            EncoderOptions(weights="pretrained")
        )


def test_weights_that_lack_tensors_are_no_silent_random_start(
    tiny: Plugins, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_tiny_bert(tmp_path / "cut")
    state = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in state.items() if "layer.1." not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lack"):
        text_encoder(folder, tiny)


def test_other_weights_are_another_run(tiny: Plugins, bert: Path, tmp_path: Path) -> None:
    other = save_tiny_bert(tmp_path / "other", seed=1)
    same = tmp_path / "same"
    shutil.copytree(bert, same)
    weights = {f: asked(tiny, dataset="tiny-text", backbone=str(f)).weights for f in (bert, other)}
    assert weights[bert] != weights[other]
    assert asked(tiny, dataset="tiny-text", backbone=str(same)).weights == weights[bert]


def test_a_models_folder_may_lie_anywhere(
    tiny: Plugins, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "elsewhere" / bert.name
    shutil.copytree(bert, copied)
    here = asked(tiny, dataset="tiny-text", backbone=str(bert))
    there = asked(tiny, dataset="tiny-text", backbone=str(copied))
    assert here.hash == there.hash
    assert here.backbone_name == bert.name
    monkeypatch.chdir(tmp_path)
    assert asked(tiny, dataset="tiny-text", backbone=f"elsewhere/{bert.name}") == there
    renamed = copied.rename(tmp_path / "another-name")
    assert asked(tiny, dataset="tiny-text", backbone=str(renamed)).hash != here.hash


def test_every_choice_is_in_the_hash_and_on_the_boards_setting(tiny: Plugins, bert: Path) -> None:
    from ssmlbench.core.spec import SETTING

    spec = asked(tiny, dataset="tiny-text", backbone=str(bert))
    changes = {
        "freeze": True,
        "weights": "none",
        "strong_views": 3,
        "image_size": 5,
        "normalise": False,
        "max_tokens": 9,
        "pooling": "all",
        "encoder_code": "x",
    }
    hashes = {dataclasses.replace(spec, **{k: v}).hash for k, v in changes.items()}
    assert len(hashes | {spec.hash}) == len(changes) + 1
    assert set(changes) <= set(SETTING)


def test_a_result_made_before_these_choices_still_loads() -> None:
    old = {"method": "bce", "dataset": "multidigits", "pi": 0.1, "backbone": "small-cnn"}
    spec = RunSpec.from_dict(old)
    assert not spec.freeze
    assert spec.weights == ""
    assert spec.strong_views is None


def test_learning_rates_follow_what_is_trained(tiny: Plugins, bert: Path) -> None:
    assert asked(tiny, dataset="tiny-text", backbone=str(bert)).lr == 1e-4
    frozen = asked(tiny, dataset="tiny-text", backbone=str(bert), freeze=True)
    assert (frozen.lr, frozen.projection, frozen.strong_views) == (2e-3, "skip", 4)
    assert asked(tiny, dataset="tiny-vectors").lr == 2e-3


# ------------------------------------------------------------------------------- trained end to end


def scores(results: Path, spec: RunSpec) -> Any:
    from safetensors.numpy import load_file

    return load_file(RunFolder.of(results, spec).scores_file)["scores"]


def test_a_text_encoder_is_fine_tuned(tiny: Plugins, bert: Path, tmp_path: Path) -> None:
    spec = asked(tiny, dataset="tiny-text", backbone=str(bert), max_tokens=24, method="cap")
    assert isinstance(execute(spec, tiny, RunContext(tmp_path, "cpu", 1)), Done)
    assert scores(tmp_path, spec).shape == (20, 3)


def test_images_on_the_fly_give_the_bits_of_images_in_memory(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32, "method": "cap"}
    spec = asked(tiny, dataset="tiny-images", **choice)
    execute(spec, tiny, RunContext(tmp_path / "memory", "cpu", 1))
    monkeypatch.setattr(prepared, "IN_MEMORY_BYTES", 0)
    for workers in (0, 3):
        context = RunContext(tmp_path / str(workers), "cpu", 1, workers)
        execute(spec, tiny, context)
        assert np.array_equal(scores(context.results, spec), scores(tmp_path / "memory", spec))


def test_a_killed_run_on_prefetched_images_resumes_with_equal_bits(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if event == CheckpointSaved(2):
            raise Killed

    monkeypatch.setattr(prepared, "IN_MEMORY_BYTES", 0)
    choice = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32, "method": "cap"}
    spec = asked(tiny, dataset="tiny-images", **{**choice, "epochs": 4})
    whole, broken = (RunContext(tmp_path / name, "cpu", 1, 2) for name in ("whole", "broken"))
    execute(spec, tiny, whole)
    with pytest.raises(Killed):
        execute(spec, tiny, broken, kill)
    assert isinstance(execute(spec, tiny, broken), Done)
    assert np.array_equal(scores(whole.results, spec), scores(broken.results, spec))


def test_weights_that_change_after_the_question_are_noticed(tiny: Plugins, tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "model")
    spec = asked(tiny, dataset="tiny-text", backbone=str(folder), max_tokens=24)
    stale = dataclasses.replace(spec, weights="pretrained@0123456789ab")
    with pytest.raises(UserError, match="have changed"):
        execute(stale, tiny, RunContext(tmp_path / "results", "cpu", 1))


# ------------------------------------------------------------------------------- plugins

PLUGIN = '''
import torch
from ssmlbench.api import Encoder


class Mean(Encoder):
    """The mean colour of an image, through one layer."""

    name = "mean-colour"
    kinds = {"image"}
    options = {"image_size": 16}

    def __init__(self, example, options):
        super().__init__(example, options)
        self.features = 6
        self.layer = torch.nn.Linear(3, 6)

    def forward(self, images):
        return FORWARD
'''


def plugin_file(folder: Path, forward: str) -> Path:
    file = folder / "mean_colour.py"
    file.write_text(PLUGIN.replace("FORWARD", forward))
    return file


def test_an_encoder_plugin_is_checked_and_trained(
    ssmlbench: Callable[..., Any], tmp_path: Path
) -> None:
    good = plugin_file(tmp_path, "self.layer(images.float().mean((2, 3)) / 255)")
    checked = ssmlbench("check", good)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "mean-colour: all checks passed" in checked.stdout
    data = write_data_plugin(tmp_path)
    run = ssmlbench(
        "run", "--plugin", good, "--plugin", data, "--backbone", "mean-colour", "--method", "bce",
        "--dataset", "tiny-images", "--pi", 0.3, "--epochs", 2, "--device", "cpu",
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 done" in run.stdout


@pytest.mark.parametrize(
    ("forward", "complaint"),
    [
        ("images.float().mean((2, 3))", "expected B × self.features: (6, 6)"),
        ("self.layer(images.float().mean((2, 3))) + torch.rand(1)", "two passes in eval mode"),
        ("self.layer(images.float().mean((2, 3))) * float('nan')", "must give finite"),
        ("self.layer(images.float().mean((2, 3))).detach()", "does not require grad"),
        (
            "self.layer((images.float() - images.float().mean()).mean((2, 3)))",
            "other rows of its batch",
        ),
    ],
)
def test_a_broken_encoder_plugin_is_told_what_is_wrong(
    forward: str, complaint: str, tmp_path: Path
) -> None:
    from ssmlbench.cli.check import check_plugins
    from ssmlbench.core.console import Console

    console = Console(record=True, width=200)
    assert not check_plugins(str(plugin_file(tmp_path, forward)), console)
    assert complaint in console.export_text()


def test_a_plugins_code_is_part_of_the_runs_hash(tmp_path: Path) -> None:
    data = write_data_plugin(tmp_path)
    hashes = set()
    for number, forward in enumerate(("self.layer(images.float().mean((2, 3)))", "images * 0")):
        folder = tmp_path / str(number)
        folder.mkdir()
        plugins = Plugins([plugin_file(folder, forward), data])
        hashes.add(asked(plugins, dataset="tiny-images", backbone="mean-colour").hash)
    assert len(hashes) == 2


MEAN = "self.layer(images.float().mean((2, 3)))"
PREPARED = "torch.zeros(len(raws), 3, 16, 16, dtype=torch.uint8)"
FEWER = {
    "forward": (f"{MEAN}[:1]", PREPARED, "views"),
    "complex forward": (f"{MEAN} + 1j", PREPARED, "views"),
    "prepare": (MEAN, f"{PREPARED}[:1]", "views"),
    "prepare nothing": (MEAN, "None", "views"),
    "view": (MEAN, PREPARED, "{**views, 'plain': lambda rows, _: rows[:1]}"),
}
MEMBERS = """
    @classmethod
    def prepare(cls, raws, options):
        return PREPARED

    @classmethod
    def views(cls, kind, flips, options):
        views = super().views(kind, flips, options)
        return VIEWS
"""


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("fault", "freeze"), [*((fault, True) for fault in FEWER), ("prepare", False), ("view", False)]
)
def test_an_encoder_that_gives_fewer_rows_than_it_gets_fails_the_run(
    tmp_path: Path, fault: str, freeze: bool
) -> None:
    """Torch would repeat a single row: all inputs had the same features, and the run its numbers."""
    forward, prepared, views = FEWER[fault]
    file = plugin_file(tmp_path, forward)
    members = MEMBERS.replace("PREPARED", prepared).replace("VIEWS", views)
    file.write_text(file.read_text() + members)
    plugins = Plugins([file, write_data_plugin(tmp_path)])
    fields = {"backbone": "mean-colour", "freeze": freeze, "dataset": "tiny-images"}
    with pytest.raises(RunFailed, match=r"expected (a|\d+) row"):
        execute(asked(plugins, **fields), plugins, RunContext(tmp_path / "results", "cpu", 1))
