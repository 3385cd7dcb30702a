"""Encoders that need no weights: tfidf and hog, and when they are the default."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder, tfidf
from ssmlbench.inputs.encoders.hog import CELLS, COLOURS, ORIENTATIONS, Hog
from ssmlbench.inputs.encoders.tfidf import TfIdf
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.plugins.digest import encoder_code
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import encoder_notes, resolve
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

OPTIONS = EncoderOptions()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """Data sets on a machine with no weights at all and an empty cache."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return Plugins([write_data_plugin(tmp_path)])


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    words = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return [" ".join(random.choice(words, random.integers(3, 12))) for _ in range(count)]


def test_tfidf_is_scikit_learns_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    monkeypatch.setattr(tfidf, "DIMENSIONS", 40)
    train, test = texts(150), texts(20, seed=1)
    expected = make_pipeline(
        TfidfVectorizer(
            sublinear_tf=True, stop_words="english", token_pattern=r"\b\w+\b", min_df=2, max_df=0.5
        ),
        TruncatedSVD(40, n_iter=4, random_state=0),
        Normalizer(),
    ).fit(train)
    fitted = TfIdf.with_state(TfIdf.fit(train, OPTIONS))
    given = fitted.prepare(test, OPTIONS)
    assert given.shape == (20, 40)
    # Up to a rotation of the columns, which keeps every product of two rows.
    known, vectors = expected.transform(test), given.numpy() / 40**0.5
    assert np.allclose(vectors @ vectors.T, known @ known.T, atol=1e-3)


def test_no_column_of_tfidf_has_most_of_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfidf, "DIMENSIONS", 40)
    # Texts of two subjects: the first columns of an SVD tell them apart.
    fruit, metal = (
        "apple pear plum fig lime grape melon peach",
        "iron steel zinc tin lead gold brass chrome",
    )
    train = [f"{text} {subject}" for text in texts(75) for subject in (fruit, metal)]
    vectors = TfIdf.with_state(TfIdf.fit(train, OPTIONS)).prepare(train, OPTIONS).numpy()
    covariance = np.cov(vectors.T)
    widest_direction = np.linalg.eigvalsh(covariance).max()
    assert covariance.diagonal().max() < 0.6 * widest_direction


def test_another_version_of_a_built_in_encoder_is_another_run() -> None:
    class Second(TfIdf):
        version = TfIdf.version + 1

    Second.__module__ = TfIdf.__module__
    assert encoder_code(Hog) == ""
    assert len({encoder_code(Hog), encoder_code(TfIdf), encoder_code(Second)}) == 3


@pytest.mark.parametrize(
    "train",
    [["word"], ["one two", "one two"], ["愛 と 平和", "", "愛"], ["a b c", "...", "d e f"]],
    ids=["one word", "equal texts", "japanese", "no words in one"],
)
def test_few_and_odd_texts_give_finite_vectors(train: list[str]) -> None:
    fitted = TfIdf.with_state(TfIdf.fit(train, OPTIONS))
    vectors = fitted.prepare([*train, "unseen"], OPTIONS)
    assert vectors.isfinite().all()
    assert len(vectors) == len(train) + 1


def test_texts_without_any_word_are_one_line_of_error() -> None:
    with pytest.raises(UserError, match="hold no words"):
        TfIdf.fit(["...", "!"], OPTIONS)


def frozen(plugins: Plugins, tmp_path: Path, **fields: Any) -> FrozenEncoder:
    spec = resolve(plugins, {}, **{"method": "bce", "dataset": "tiny-text", "pi": 0.3, **fields})
    task = prepare(plugins.datasets[spec.dataset]())
    return FrozenEncoder(spec, TfIdf, task, torch.device("cpu"))


def test_it_is_fitted_on_the_training_rows_and_once(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    fit = TfIdf.fit.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Encoder], raws: Any, options: EncoderOptions) -> Any:
        seen.append(list(raws))
        return fit(cls, raws, options)

    monkeypatch.setattr(TfIdf, "fit", classmethod(counted))
    first = frozen(tiny, tmp_path)
    test = first.inputs("test").values["plain"]  # the test rows first: they must not be fitted on
    train = first.inputs("train")
    assert [sorted(raws) for raws in seen] == [sorted(first.task.inputs("train"))]
    again = frozen(tiny, tmp_path)
    assert torch.equal(again.inputs("test").values["plain"], test)
    assert torch.equal(again.inputs("train").values["strong"], train.values["plain"])
    assert len(again.fitted.state["idf"]) == len(first.fitted.state["idf"])
    assert len(seen) == 1


def test_a_kill_after_the_fit_loses_nothing(tiny: Plugins, tmp_path: Path) -> None:
    whole = frozen(tiny, tmp_path)
    expected = whole.inputs("train").values["plain"]
    folder = whole.folder("train", "plain", 0)
    folder.about_file.unlink()
    folder.shard_file(0).unlink()
    assert torch.equal(frozen(tiny, tmp_path).inputs("train").values["plain"], expected)


@pytest.mark.parametrize("method", ["bce", "fixmatch", "logistic"])
def test_a_text_set_runs_without_any_model(method: str, tiny: Plugins, tmp_path: Path) -> None:
    short = {"epochs": 2, "batch_size": 16, "labelled_batch_size": 8}
    spec = resolve(tiny, {}, method=method, dataset="tiny-text", pi=0.3, **short)
    assert (spec.backbone, spec.freeze, spec.scaling) == ("tfidf", True, "none")
    execute(spec, tiny, RunContext(tmp_path / "results", "cpu"))
    assert RunFolder.of(tmp_path / "results", spec).finished


def test_an_image_set_runs_without_any_model(tiny: Plugins, tmp_path: Path) -> None:
    spec = resolve(
        tiny,
        {},
        method="bce",
        dataset="tiny-images",
        pi=0.3,
        epochs=2,
        image_size=32,
        batch_size=16,
    )
    assert (spec.backbone, spec.freeze) == ("hog", True)
    execute(spec, tiny, RunContext(tmp_path / "results", "cpu"))
    assert RunFolder.of(tmp_path / "results", spec).finished


def test_a_model_that_is_at_hand_is_the_default(
    tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert = save_tiny_bert(tmp_path / "bert")
    monkeypatch.setattr(tiny.datasets["tiny-text"], "backbone", str(bert))
    spec = resolve(tiny, {}, method="bce", dataset="tiny-text", pi=0.3)
    assert (spec.backbone, spec.freeze) == (str(bert), False)
    assert not any("are not on this machine" in note for note in encoder_notes([spec], tiny))


def test_the_user_is_told_which_encoder_was_taken_and_why(tiny: Plugins) -> None:
    asked = [
        resolve(tiny, {}, method="bce", dataset=name, pi=0.3)
        for name in ("tiny-text", "tiny-images", "tiny-vectors", "tiny-text")
    ]
    text, images = encoder_notes(asked, tiny)
    assert "bert-base-uncased are not on this machine" in text
    assert "tfidf" in text
    assert "resnet50" in images
    assert "nothing learnt" in images


def test_what_cannot_be_trained_is_not_unfrozen(tiny: Plugins) -> None:
    with pytest.raises(UserError, match="nothing that can be trained"):
        resolve(tiny, {}, method="bce", dataset="tiny-text", pi=0.3, backbone="tfidf", freeze=False)


def test_features_depend_on_the_data_the_encoder_is_fitted_on(
    tiny: Plugins, tmp_path: Path
) -> None:
    one = frozen(tiny, tmp_path)
    other = dataclasses.replace(one, task=prepare(tiny.datasets["tiny-vectors"]()))
    assert (
        one.folder("test", "plain", 0).path.name.split("-")[-1]
        != (other.folder("test", "plain", 0).path.name.split("-")[-1])
    )


# ---------------------------------------------------------------------------------------- hog


def hog(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    options = EncoderOptions(image_size=images.shape[-1])
    features = Hog(images[0], options)(images)
    cells = CELLS * CELLS * ORIENTATIONS
    return features[:, :cells].unflatten(1, (ORIENTATIONS, CELLS, CELLS)), features[:, cells:]


def test_hog_counts_the_orientation_of_edges() -> None:
    upright = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    upright[..., 18:] = 200  # the gradient points along x: orientation 0
    gradients, _ = hog(torch.cat([upright, upright.transpose(2, 3)]))
    assert gradients[0, 0].sum() > 0
    assert gradients[0, 1:].abs().max() == 0
    # Along y: ½ of the half circle, between bins 4 and 5 of 9.
    assert gradients[1, 4].sum() == pytest.approx(gradients[1, 5].sum().item())
    assert gradients[1, [0, 1, 2, 3, 6, 7, 8]].abs().max() < 1e-5


def test_hog_counts_colours_of_the_image_and_its_quarters() -> None:
    image = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    image[:, 0, :16] = 255  # the upper half is red
    _, colours = hog(image)
    whole, quarters = colours[0, : COLOURS**3], colours[0, COLOURS**3 :].unflatten(0, (-1, 2, 2))
    red = (COLOURS - 1) * COLOURS * COLOURS
    assert whole[[0, red]].square().tolist() == pytest.approx([0.5, 0.5])
    assert whole.square().sum() == pytest.approx(1)
    assert quarters[red].tolist() == [[1, 1], [0, 0]]


def test_a_uniform_image_has_finite_features() -> None:
    gradients, colours = hog(torch.full((2, 3, 32, 32), 128, dtype=torch.uint8))
    assert gradients.abs().max() == 0
    assert colours.isfinite().all()


def test_both_are_found_by_their_names(tiny: Plugins) -> None:
    assert find_encoder(tiny.encoders, "tfidf", "text") is TfIdf
    assert find_encoder(tiny.encoders, "hog", "image") is Hog
