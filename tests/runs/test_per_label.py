"""Results of each label, and scores with the names of labels and the ids of rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import Finished, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.per_label import results_per_label
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.run_result import RunResult
from ssmlbench.runs.scores import StoredScores
from tests.support.tiny_models import write_data_plugin


def test_values_are_scikit_learns() -> None:
    from sklearn.metrics import average_precision_score, precision_recall_fscore_support

    random = np.random.default_rng(0)
    truth = random.random((50, 4)) < [0.5, 0.2, 0.9, 0.4]
    scores = np.clip(truth * 0.3 + random.random((50, 4)) * 0.7, 0, 1).astype(np.float32)
    thresholds = np.array([0.5, 0.4, 0.6, 0.3], dtype=np.float32)
    found = results_per_label(scores, truth, {"thresholds": thresholds}, list("abcd"))
    precision, recall, f1, support = precision_recall_fscore_support(truth, scores >= thresholds)
    assert found["support"] == support.tolist()
    for name, expected in (("precision", precision), ("recall", recall), ("f1", f1)):
        assert np.allclose(found[name], expected, atol=5.1e-5), name  # type: ignore[literal-required]
    average = [average_precision_score(truth[:, k], scores[:, k]) for k in range(4)]
    assert np.allclose(found["average_precision"], average, atol=5.1e-5)
    assert found["label"] == list("abcd")


def test_what_is_not_defined_is_none() -> None:
    truth = np.array([[True, False], [False, False]])
    scores = np.array([[0.2, 0.3], [0.1, 0.4]], dtype=np.float32)
    found = results_per_label(scores, truth, {"thresholds": np.array([0.9, np.inf])}, ["a", "b"])
    assert found["support"] == [1, 0]
    assert found["precision"] == [None, None]  # nothing was predicted
    assert found["recall"] == [0.0, None]
    assert found["f1"] == [0.0, None]
    assert found["threshold"] == [0.9, None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Plugins]:
    folder = tmp_path_factory.mktemp("per-label")
    tiny = Plugins([write_data_plugin(folder)])
    spec = resolve(tiny, {}, method="logistic", dataset="tiny-vectors", pi=0.3)
    execute(spec, tiny, RunContext(folder, "cpu"))
    found = read_result(RunFolder.of(folder, spec).path)
    assert isinstance(found, Finished)
    return found, tiny


def test_a_run_has_results_for_each_label(run: tuple[Finished, Plugins]) -> None:
    frame = RunResult(run[0]).per_label()
    truth = StoredScores.read(run[0].folder).truth
    assert frame.index.tolist() == ["a", "b", "c"]
    assert frame.support.tolist() == truth.sum(axis=0).tolist()
    mean = RunResult(run[0]).metrics()["map"]
    assert frame.average_precision.mean() == pytest.approx(mean, abs=1e-4)


def test_scores_have_the_names_of_labels_and_the_ids_of_rows(run: tuple[Finished, Plugins]) -> None:
    finished, tiny = run
    table = StoredScores.read(finished.folder).to_pandas()
    assert table.columns.tolist() == ["a", "b", "c"]
    assert table.index.tolist() == prepare(tiny.datasets["tiny-vectors"]()).ids("test")
    assert table.shape == (20, 3)


def test_show_prints_a_row_for_each_label(
    run: tuple[Finished, Plugins], capsys: pytest.CaptureFixture[str]
) -> None:
    from ssmlbench.cli.show import show

    show(str(run[0].folder), sort="f1")
    said = capsys.readouterr().out
    assert run[0].spec.hash in said
    assert "mAP" in said
    assert "model: kept" in said
    assert all(f"\n{label} " in said for label in "abc")
    with pytest.raises(UserError, match="--sort size"):
        show(str(run[0].folder), sort="size")


def test_show_prints_both_ends_of_many_labels_unless_all_are_wanted(
    run: tuple[Finished, Plugins],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ssmlbench.cli.show import END_LABELS, show

    labels = 2 * END_LABELS + 7
    own = {k: [v[0]] * labels for k, v in run[0].result["per_label"].items() if k != "rule"}
    names, support = [f"n{k:02}" for k in range(labels)], list(range(labels, 0, -1))
    own |= {"rule": "calibrated", "label": names, "support": support}
    many = dataclasses.replace(run[0], result={**run[0].result, "per_label": own})
    monkeypatch.setattr("ssmlbench.runs.finished.read_result", lambda folder: many)
    show(str(run[0].folder))
    said = capsys.readouterr().out
    assert [name for name in names if f"{name} " in said] == [
        *names[:END_LABELS],
        *names[END_LABELS + 7 :],
    ]
    assert "… 7 more: --all" in said
    show(str(run[0].folder), every=True)
    said = capsys.readouterr().out
    assert all(f"{name} " in said for name in names)
