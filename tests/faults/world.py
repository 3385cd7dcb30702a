"""A small cache and results folder, made once and copied for each fault: one finished run on frozen
features, one that was stopped in its second epoch, and a tuning study.
"""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssmlbench.boards.from_python import compare
from ssmlbench.core.errors import RunFailed, UserError, disk_error
from ssmlbench.core.events import EpochEnded, Event, Warned
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.status import read_states
from ssmlbench.grid.study import Study, close, trials_root, tuned_specs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

FINISHED = {"dataset": "tiny-text", "backbone": "tfidf", "freeze": True, "method": "cap", "pi": 0.5}
NEW = {**FINISHED, "seed": 1}
STOPPED = {"dataset": "tiny-vectors", "method": "softmatch", "pi": 0.5}
TUNED = {"dataset": "tiny-vectors", "method": "logistic", "pi": 0.5}
TRAINING = {"epochs": 2, "warmup_epochs": 1}
TRIALS = 2
TEXTS = ["word a b", "", "something else"]


@dataclass
class Said:
    """What a command returned, and the lines that a user saw."""

    value: Any
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class World:
    """The folders below one root, and the commands that are tried on them."""

    def __init__(self, root: Path, plugins: Plugins):
        self.root = root
        self.plugins = plugins
        self.results = root / "results"
        self.cache = root / "cache"

    @classmethod
    def make(cls, folder: Path) -> World:
        world = cls(folder / "made", Plugins([write_data_plugin(folder)]))
        world.results.mkdir(parents=True)
        world.enter()
        world.run(FINISHED)
        world.stop_in_second_epoch(STOPPED)
        study = Study.of(world.spec(TUNED), world.plugins, TRIALS)
        for spec in study.specs():
            execute(spec, world.plugins, RunContext(trials_root(world.results)))
        assert close(study, world.results)
        return world

    def copy(self, root: Path) -> World:
        shutil.copytree(self.root, root)
        return World(root, self.plugins)

    def enter(self) -> None:
        """Make this world's cache the one that commands use."""
        os.environ["SSMLBENCH_CACHE"] = str(self.cache)

    def files(self) -> list[Path]:
        """Every file that the tool wrote, relative to the root."""
        found = (file for file in self.root.rglob("*") if file.is_file())
        return sorted(f.relative_to(self.root) for f in found if f.stat().st_size)

    # -------------------------------------------------------------------------------- commands

    def spec(self, asked: dict[str, Any]) -> RunSpec:
        training = {} if asked["method"] == "logistic" else TRAINING
        return resolve(self.plugins, {}, **asked, **training)

    def run(self, asked: dict[str, Any]) -> Said:
        """`ssmlbench run`: the numbers of the run afterwards."""
        lines: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, Warned):
                lines.append(event.text)

        def command() -> Any:
            spec = self.spec(asked)
            execute(spec, self.plugins, RunContext(self.results, keep_features=True), listen)
            return numbers(RunFolder.of(self.results, spec))

        said = attempt(command)
        return Said(said.value, lines + said.lines)

    def stop_in_second_epoch(self, asked: dict[str, Any]) -> None:
        def stop(event: Event) -> None:
            if isinstance(event, EpochEnded) and event.epoch == 2:
                raise KeyboardInterrupt

        try:
            execute(self.spec(asked), self.plugins, RunContext(self.results), stop)
        except KeyboardInterrupt:
            return
        raise AssertionError("the run was not stopped")

    def compare(self) -> Said:
        """`ssmlbench compare --bootstrap 100`, as text."""
        return attempt(lambda: compare(self.results, bootstrap=100).to_markdown())

    def predict(self) -> Said:
        """`ssmlbench predict` with the model of the finished run."""
        return attempt(self._scores)

    def _scores(self) -> bytes:
        from ssmlbench.runs.saved_model import SavedModel

        folder = RunFolder.of(self.results, self.spec(FINISHED)).path
        return SavedModel(folder, self.plugins, device="cpu").scores(TEXTS).tobytes()

    def close_study(self) -> Said:
        """The end of `ssmlbench tune`: the study's file, from its trials."""
        return attempt(
            lambda: close(Study.of(self.spec(TUNED), self.plugins, TRIALS), self.results)
        )

    def status(self) -> Said:
        """`ssmlbench status`: how many runs it found in each state."""
        return attempt(lambda: sorted(state.state for state in read_states([self.results])))

    def tuned(self) -> Said:
        """`ssmlbench run --tuned`: the hyper-parameters it would take."""
        return attempt(
            lambda: [
                spec.as_dict()
                for spec in tuned_specs([self.spec(TUNED)], self.plugins, self.results)
            ]
        )


def attempt(command: Any) -> Said:
    """The value of a command, None if it was refused in one line; anything else it raises is a bug."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = None
        lines = []
        try:
            value = command()
        except (UserError, RunFailed) as error:
            lines.append(str(error))
        except OSError as error:
            if (line := disk_error(error)) is None:
                raise
            lines.append(line)
    return Said(value, [str(warning.message) for warning in caught] + lines)


def numbers(folder: RunFolder) -> dict[str, Any]:
    """All that two runs of one spec share: metrics, scores and what was logged but for the time."""
    import numpy as np
    import pandas as pd

    from ssmlbench.runs.finished import Finished, read_result
    from ssmlbench.runs.scores import StoredScores

    run = read_result(folder.path)
    assert isinstance(run, Finished), str(run)
    stored = StoredScores.read(folder.path)
    folder.verify(folder.history_file.name)
    history = pd.read_csv(folder.history_file)
    timed = ("seconds", "peak_memory_mb", "samples_per_second")
    logged = history.drop(columns=[name for name in timed if name in history])
    return {
        "metrics": repr(run.result["metrics"]),
        "scores": np.asarray(stored.scores).tobytes(),
        "truth": stored.truth.tobytes(),
        "history": logged.to_csv(),
    }
