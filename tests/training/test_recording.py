"""What training hands in for analyses: taken from passes that are made anyway, without a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ssmlbench.checks.toy import LABELS, same_bits, spec_for, toy
from ssmlbench.core.seeds import stream
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.diagnostics import angle_statistics, pseudo_label_counts
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs import judgements
from ssmlbench.runs.judgements import StoredJudge
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

DATA = toy("vector")


def trainer_of(cls: type[Method], folder: Path | None = None, **changes: object) -> Trainer:
    spec = spec_for(cls, "semi", **changes)
    judge = Judge.of(spec, DATA.truth, DATA.test_truth)
    if folder is not None:
        judge = StoredJudge.of(spec, DATA.truth, DATA.test_truth)
        judge.file = Checkpoint(folder / "judgements.safetensors")  # type: ignore[attr-defined]
    run_data = RunData.beside(judge, DATA.train, DATA.test)
    torch.manual_seed(3)
    method = cls(cls.Config(), LABELS)
    checkpoint = Checkpoint(folder / "checkpoint.safetensors") if folder else None
    encoder = DATA.encoder(DATA.train.values[0])
    return Trainer(spec, method, encoder, run_data, TrainingContext(checkpoint=checkpoint))


def judge_of(trainer: Trainer) -> Judge:
    judge = trainer.evaluator.run_data.judge
    assert isinstance(judge, Judge)
    return judge


def test_a_method_that_passes_over_the_pool_is_recorded_every_epoch_others_every_fifth(
    plugins: Plugins,
) -> None:
    # 5 epochs, 2 of them warm-up: the end is always recorded, 2 to 4 from the methods' own passes
    for name, epochs in (("cap", [2, 3, 4, 5]), ("bbam", [2, 3, 4, 5]), ("fixmatch", [5])):
        trainer = trainer_of(plugins.methods[name])
        trainer.train()
        records = judge_of(trainer).judgements.records
        assert [int(epoch) for epoch in records.sample_epochs] == epochs, name
        assert [int(e) for e in records.pseudo_epochs] == ([2, 3, 4] if name != "fixmatch" else [])
        assert bool(records.cosines) == (name == "bbam")


def test_the_last_record_is_what_the_final_network_gives(plugins: Plugins) -> None:
    trainer = trainer_of(plugins.methods["cap"])
    trained = trainer.train()
    judge = judge_of(trainer)
    seen = judge.observation
    views = []
    for pool, rows in (("labelled", seen.labelled), ("unlabelled", seen.unlabelled)):
        drawn = stream(trainer.spec.seed, "recorded views", pool, 5, 0)  # after 5 epochs, batch 0
        views.append(DATA.train.view(rows, "weak", drawn))
    assert trained.network is not None
    with torch.no_grad():
        features = trained.network.eval()(torch.cat(views))["features"].numpy()
    truth = DATA.truth[np.concatenate([seen.labelled, seen.unlabelled])]
    expected = angle_statistics(features, truth == 1, truth == 0)
    assert np.allclose(judge.judgements.records.supervised[-1], expected, rtol=1e-4, equal_nan=True)
    assert trainer.method.pseudo_labels() is not None
    targets, trust = (tensor.numpy() > 0 for tensor in trainer.method.pseudo_labels())  # type: ignore[union-attr]
    counts = pseudo_label_counts(DATA.truth[seen.unlabelled], targets, trust)
    assert np.array_equal(judge.judgements.records.pseudo_counts[-1], counts)
    (weights,) = judge.judgements.records.head_weights
    assert np.array_equal(weights, trained.network.head.get_parameter("weight").detach().numpy())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_rows_of_the_sample_are_found_in_every_batch_of_a_pass(
    size: int, plugins: Plugins
) -> None:
    recorder = trainer_of(plugins.methods["cap"]).evaluator.recorder
    rows = len(recorder.sample["unlabelled"])
    recorder.sample["unlabelled"] = np.arange(rows)[[0, 2, 3, 11, rows - 1]]
    keep = recorder.watch("unlabelled", "ema", "weak")
    assert keep is not None
    for start in range(0, rows, size):
        batch = torch.arange(start, min(start + size, rows))
        keep(start, {"features": batch, "logits": batch})
    found = torch.cat([piece["logits"] for piece in recorder._seen["unlabelled"]])
    assert found.tolist() == recorder.sample["unlabelled"].tolist()


@pytest.mark.parametrize("name", ["cap", "bbam", "fixmatch", "mime", "d2l_mat"])
def test_training_ends_with_the_same_bits_when_nothing_is_recorded(
    name: str, plugins: Plugins
) -> None:
    outcomes = []
    for on in (True, False):
        trainer = trainer_of(plugins.methods[name])
        trainer.evaluator.recorder.on = on
        outcomes.append(Outcome.of(trainer.train(), judge_of(trainer).judgements))
        assert bool(judge_of(trainer).judgements.records.sample_epochs) == on
    assert same_bits(*outcomes)


def test_a_killed_run_notes_what_the_undisturbed_one_does(plugins: Plugins, tmp_path: Path) -> None:
    whole = trainer_of(plugins.methods["cap"])
    whole.train()
    first = trainer_of(plugins.methods["cap"], tmp_path)

    class Killed(Exception):
        pass

    def kill(event: object) -> None:
        if type(event).__name__ == "EpochEnded" and event.epoch == 4:  # type: ignore[attr-defined]
            raise Killed

    first.context = TrainingContext(checkpoint=first.context.checkpoint, notify=kill)
    with pytest.raises(Killed):
        first.train()
    second = trainer_of(plugins.methods["cap"], tmp_path)
    judge_of(second).judgements = judgements._read(Checkpoint(tmp_path / "judgements.safetensors"))
    second.train()
    expected = judge_of(whole).judgements.records.arrays()
    found = judge_of(second).judgements.records.arrays()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.array_equal(found[key], value, equal_nan=True), key
