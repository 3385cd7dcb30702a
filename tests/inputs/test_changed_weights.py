"""Weights that change after a run was planned: no run is made, and no features are cached, with them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Done, Encoding, Event, Notify
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.cache_folders import cached_features, features_root
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder, weights
from ssmlbench.inputs.encoders.weights import file_digest
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

ENCODER = '''
import hashlib
from pathlib import Path
import torch
from ssmlbench.api import Encoder

FILE = Path("WEIGHTS")


class Weighted(Encoder):
    """The mean colour of an image, through a layer that is read from a file."""

    name = "weighted"
    kinds = {"image"}
    options = {"weights": "pretrained", "image_size": 16}

    def __init__(self, example, options):
        super().__init__(example, options)
        self.features = 6
        self.layer = torch.nn.Linear(3, 6)
        self.layer.load_state_dict(torch.load(FILE, weights_only=True))

    @classmethod
    def weights_id(cls, options):
        return "pretrained@" + hashlib.sha256(FILE.read_bytes()).hexdigest()[:12]

    def forward(self, images):
        return self.layer(images.float().mean((2, 3)) / 255)
'''


@dataclass
class Model:
    """An encoder whose weights can be replaced, and the options that choose it."""

    plugins: Plugins
    dataset: str
    options: dict[str, Any]
    save: Callable[[int], None]  # write the weights of a seed
    in_place: Path  # a file of weights

    @property
    def encoder(self) -> type[Encoder]:
        kind = self.plugins.datasets[self.dataset].kind
        return find_encoder(self.plugins.encoders, self.options["backbone"], kind)

    def plan(self, freeze: bool = True, **fields: Any) -> RunSpec:
        short = {"method": "bce", "pi": 0.3, "epochs": 2, "batch_size": 16, "freeze": freeze}
        short |= {"strong_views": 1, "mixed_draws": False} if freeze else {}
        return resolve(self.plugins, {}, dataset=self.dataset, **short, **self.options, **fields)


def text_folder(folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    model = folder / "model"
    options = {"backbone": str(model), "max_tokens": 24}

    def save(seed: int) -> None:
        save_tiny_bert(model, seed)

    return Model(Plugins([data]), "tiny-text", options, save, model / "model.safetensors")


def torchvision_file(folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    declare_missing_operators()
    import torchvision

    monkeypatch.setenv("TORCH_HOME", str(folder))
    url = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.url
    file = folder / "hub" / "checkpoints" / url.rpartition("/")[2]
    file.parent.mkdir(parents=True)

    def save(seed: int) -> None:
        torch.manual_seed(seed)
        torch.save(torchvision.models.squeezenet1_1(weights=None).state_dict(), file)

    options = {"backbone": "squeezenet1_1", "image_size": 32}
    return Model(Plugins([data]), "tiny-images", options, save, file)


def plugin_file(folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    file = folder / "layer.pt"

    def save(seed: int) -> None:
        torch.manual_seed(seed)
        torch.save(torch.nn.Linear(3, 6).state_dict(), file)

    plugin = folder / "weighted.py"
    plugin.write_text(ENCODER.replace("WEIGHTS", str(file)))
    options = {"backbone": "weighted"}
    return Model(Plugins([data, plugin]), "tiny-images", options, save, file)


@pytest.fixture(params=[text_folder, torchvision_file, plugin_file], ids=lambda f: f.__name__)
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    made: Model = request.param(tmp_path, write_data_plugin(tmp_path), monkeypatch)
    made.save(0)
    return made


def run(model: Model, spec: RunSpec, folder: Path, notify: Notify = lambda event: None) -> Event:
    return execute(spec, model.plugins, RunContext(folder / "results", "cpu", 1), notify)


def shards() -> list[Path]:
    return sorted(features_root().rglob("*.npy"))


@pytest.mark.parametrize("freeze", [True, False])
def test_a_run_planned_with_other_weights_is_refused(
    model: Model, freeze: bool, tmp_path: Path
) -> None:
    spec = model.plan(freeze)
    model.save(1)
    with pytest.raises(UserError, match="have changed since this run was planned"):
        run(model, spec, tmp_path)
    assert not shards()
    assert not [folder for folder in cached_features() if folder.complete]
    assert model.plan(freeze).hash != spec.hash  # the same command again is another run


def test_weights_that_change_between_the_two_splits_are_refused(
    model: Model, tmp_path: Path
) -> None:
    spec = model.plan()

    def stop(event: Event) -> None:
        if isinstance(event, Encoding) and event.part == "train strong 1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, spec, tmp_path, stop)
    before = {file: file.read_bytes() for file in shards()}
    assert before  # the training rows' features, of the weights that were planned
    model.save(1)
    with pytest.raises(UserError, match="have changed"):
        run(model, spec, tmp_path)
    assert {file: file.read_bytes() for file in shards()} == before
    assert not any(
        folder.path.name.startswith(f"{model.dataset}-test") for folder in cached_features()
    )


@pytest.mark.parametrize("freeze", [True, False])
def test_weights_that_change_while_they_are_loaded_are_refused(
    model: Model, freeze: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = model.plan(freeze)
    load = model.encoder.__init__

    def replaced_before_loading(self: Encoder, *arguments: Any) -> None:
        model.save(1)
        load(self, *arguments)

    monkeypatch.setattr(model.encoder, "__init__", replaced_before_loading)
    with pytest.raises(UserError, match="have changed"):
        run(model, spec, tmp_path)
    assert not shards()


def test_weights_that_change_while_features_are_computed_leave_no_entry(
    model: Model, tmp_path: Path
) -> None:
    def replace_weights(event: Event) -> None:
        if isinstance(event, Encoding) and event.part == "train strong 1":
            model.save(1)

    spec = model.plan()
    with pytest.raises(UserError, match="have changed"):
        run(model, spec, tmp_path, replace_weights)
    views = {folder.about["view"] for folder in cached_features() if folder.complete}
    assert "plain" in views
    assert "strong" not in views
    assert not [file for file in shards() if "strong" in file.parent.name]


def test_a_loaded_model_does_not_follow_its_file(model: Model) -> None:
    spec = model.plan()
    example = {"tiny-text": torch.zeros(24).int()}.get(
        model.dataset, torch.zeros(3, spec.image_size or 1, spec.image_size or 1).byte()
    )
    encoder = model.encoder(example, EncoderOptions.of(spec))
    before = [p.detach().clone() for p in encoder.parameters()]
    size = model.in_place.stat().st_size
    with model.in_place.open("r+b") as opened:  # in place: a mapped file would show it
        opened.seek(size // 2)
        opened.write(b"\x01" * (size - size // 2))
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))


def test_features_that_are_cached_serve_a_run_whose_weights_are_gone(
    model: Model, tmp_path: Path
) -> None:
    assert isinstance(run(model, model.plan(), tmp_path), Done)
    other_seed = model.plan(seed=1)
    model.save(1)
    assert isinstance(
        run(model, other_seed, tmp_path), Done
    )  # on the features of the weights it names
    later = model.plan(seed=1)
    assert later.weights != other_seed.weights
    assert isinstance(run(model, later, tmp_path), Done)
    digests = {folder.about["weights"] for folder in cached_features()}
    assert digests == {other_seed.weights, later.weights}


def test_a_tokenizer_that_changed_is_loaded_again_for_the_next_plan(tmp_path: Path) -> None:
    plugins = Plugins([write_data_plugin(tmp_path)])
    folder = save_tiny_bert(tmp_path / "model")

    def plan() -> tuple[RunSpec, list[int]]:
        spec = resolve(plugins, {}, method="bce", dataset="tiny-text", pi=0.3, backbone=str(folder))
        encoder = find_encoder(plugins.encoders, str(folder), "text")
        return spec, encoder.prepare(["ba"], EncoderOptions.of(spec))[0, :3].tolist()

    first, ids = plan()
    file = folder / "tokenizer.json"
    vocabulary = json.loads(file.read_text())
    words = vocabulary["model"]["vocab"]
    words["ba"], words["be"] = words["be"], words["ba"]
    file.write_text(json.dumps(vocabulary))
    encoder = find_encoder(plugins.encoders, str(folder), "text")
    # A run under way keeps its tokenizer; a run that is planned now gets the new one.
    assert encoder.prepare(["ba"], EncoderOptions.of(first))[0, :3].tolist() == ids
    second, other_ids = plan()
    assert second.weights != first.weights
    assert other_ids[1] == words["ba"] != ids[1]


def test_a_file_is_read_again_only_if_it_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    before = file.stat()
    first = file_digest(file)
    file.write_bytes(b"two")  # the same size, within the same tick of a coarse clock
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file_digest(file) != first
    monkeypatch.setattr(weights, "SETTLED_SECONDS", -1.0)  # as if it were old
    second = file_digest(file)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read again"))
    assert file_digest(file) == second


def test_features_of_an_edited_encoder_are_not_cached_under_its_old_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    data = write_data_plugin(tmp_path)
    model = plugin_file(tmp_path, data, monkeypatch)
    model.save(0)
    spec = model.plan()
    edited = tmp_path / "edited"  # as a worker process finds it that loads the file later
    edited.mkdir()
    text = (tmp_path / "weighted.py").read_text()
    (edited / "weighted.py").write_text(text.replace("/ 255", "/ 128"))
    plugins = Plugins([data, edited / "weighted.py"])
    with pytest.raises(UserError, match="--backbone weighted: its code has changed"):
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu", 1))
    assert not shards()
