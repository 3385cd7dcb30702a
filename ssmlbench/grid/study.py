"""Equal-budget tuning: every method gets the same number of randomly drawn configurations.

They are judged on labelled rows that are held out of training; the test set is not opened. A trial is a
normal run in its own results folder (`.tune` in the results folder): the same engines make it, resume it
when it was killed, and never make it twice. A study is the record of N trials of one cell of a grid;
`run --tuned` takes the winner, whatever the run's seed.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ssmlbench.core.commands import command
from ssmlbench.core.errors import DamagedFile, DamageWarning, UserError
from ssmlbench.core.files import read_own_json, write_json
from ssmlbench.core.hyperparameters import Search, ranges
from ssmlbench.core.seeds import stream_seed
from ssmlbench.core.spec import FIELDS, RunSpec
from ssmlbench.core.spec_checks import check_spec
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Unreadable, read_result
from ssmlbench.runs.folder import TRIALS, RunFolder
from ssmlbench.runs.recipes import RECIPES
from ssmlbench.runs.schema import SchemaError, parse_spec

STUDY_NAME = re.compile(r"\d+-[0-9a-f]+-\d+\.json")
"""How the records of studies are called: seed, hash and number of trials."""


def trials_root(results: Path) -> Path:
    """The results folder of the trials; boards of the results leave it out."""
    return results / TRIALS


@dataclass(frozen=True)
class Study:
    """The search of one cell: its spec, the ranges to draw from, and the number of trials."""

    base: RunSpec  # the run as requested; its seed draws the rows and the configurations
    # the spec's fields that its recipe searches, and the method's free hyper-parameters
    space: dict[str, Search]
    trials: int

    @classmethod
    def of(cls, base: RunSpec, plugins: Plugins, trials: int) -> Study:
        """The study of a cell: it searches the recipe's fields and every hyper-parameter with a range.

        Hyper-parameters that the user set keep their values.
        """
        declared = ranges(plugins.methods[base.method].Config)
        free = {name: search for name, search in declared.items() if name not in base.changed}
        fields = {} if base.is_estimator else RECIPES[base.recipe].searched(base)
        if both := sorted(fields.keys() & free.keys()):
            raise UserError(
                f"method {base.method}: hyper-parameter {both[0]} has the name of a run option that tune "
                "draws too; rename it"
            )
        study = cls(base, {**fields, **free}, trials)
        if base.folds or base.judged_on == "nothing":
            raise UserError(
                f"tune: data set {base.dataset} has no test rows or --folds is typed, and trials would be "
                "chosen on rows of the folds that judge the winner; add a test file, leave --folds out"
            )
        check_spec(study.spec(0))
        return study

    def spec(self, trial: int) -> RunSpec:
        """The run of a trial. Trial 0 has the configuration that was requested: the defaults.

        A trial depends on the seed and its number alone, so that a longer study keeps the first ones.
        """
        drawn = {} if trial == 0 else self._draw(trial)
        centre = {"centre": values} if (values := centre_of(self.base, self.space)) else {}
        trial_spec = with_drawn(self.base, drawn)
        return dataclasses.replace(
            trial_spec, judged_on="held-out", tuned={"trial": trial, **centre}
        )

    def _draw(self, trial: int) -> dict[str, Any]:
        """One random stream per hyper-parameter, so that all methods try the same learning rates."""
        seed = self.base.seed
        return {
            name: search.draw(Random(stream_seed(seed, "tune", trial, name)))
            for name, search in self.space.items()
        }

    def specs(self) -> list[RunSpec]:
        """The runs of all trials."""
        return [self.spec(trial) for trial in range(self.trials)]

    def file(self, results: Path) -> Path:
        """The file of the study's record."""
        base = self.base
        name = f"{base.seed}-{self.spec(0).hash}-{self.trials}.json"
        return studies_folder(results, base) / name


def centre_of(base: RunSpec, names: Iterable[str]) -> dict[str, Any]:
    """The values that the searched fields of the spec have without tuning."""
    return {name: getattr(base, name) for name in names if name in FIELDS}


def with_drawn(base: RunSpec, drawn: Mapping[str, Any]) -> RunSpec:
    """The spec with drawn values in its fields and in the method's hyper-parameters."""
    fields = {name: value for name, value in drawn.items() if name in FIELDS}
    config = {name: value for name, value in drawn.items() if name not in FIELDS}
    return dataclasses.replace(base, **fields, config={**base.config, **config})


def studies_folder(results: Path, spec: RunSpec) -> Path:
    """The folder with the records of the studies of a spec's cell."""
    cell = (spec.dataset, spec.regime_label, spec.method, "studies")
    return trials_root(results).joinpath(*cell)


def study_files(folder: Path) -> list[Path]:
    """The records of studies in a folder; not what other programs keep there (`._0-….json`, copies)."""
    return sorted(file for file in folder.glob("*.json") if STUDY_NAME.fullmatch(file.name))


# ------------------------------------------------------------------------------- making a study


def held_out_note(base: RunSpec, plugins: Plugins) -> str:
    """A line on the rows that judge the trials of a cell; an error if they have no positive label."""
    from ssmlbench.protocol.observation import observe
    from ssmlbench.runs.execute import open_task

    task = open_task(base, plugins)
    observation = observe(task.truth("train"), dataclasses.replace(base, judged_on="held-out"))
    rows = observation.validation
    judged = int((observation.labels[rows] == 1).any(axis=0).sum())
    where = f"{base.dataset} {base.regime_label} seed {base.seed}"
    if not judged:
        raise UserError(
            f"{where}: none of the {len(rows)} held-out labelled rows has a positive label, so no "
            "trial can be judged; raise --pi or take another --seed"
        )
    return (
        f"{where}: trials are judged on {len(rows)} held-out labelled rows, by the mAP of "
        f"{judged} of {task.label_count} labels"
    )


@dataclass(frozen=True)
class Record:
    """One trial of a study, as it ended."""

    trial: int
    drawn: dict[str, Any]
    map: float  # on the held-out rows; 0 if it diverged
    diverged: str = ""
    hash: str = ""


def close(study: Study, results: Path) -> list[Record] | None:
    """Write the study's file, with every trial in it; None while some are not finished.

    The winner has the best mAP; of equals, the earlier one.
    """
    records = []
    for trial, spec in enumerate(study.specs()):
        folder = RunFolder.of(trials_root(results), spec)
        if not folder.finished:
            return None
        run = read_result(folder.path)
        if isinstance(run, Unreadable):
            raise UserError(f"{run}; move its folder away and tune again")
        score = run.result["metrics"]["threshold"]["default"]["map"]
        drawn = {n: getattr(spec, n) if n in FIELDS else spec.config[n] for n in study.space}
        records.append(Record(trial, drawn, score, run.diverged, spec.hash))
    stored = {
        "base": study.base.as_dict(),
        "space": _space_text(study.space),
        "trials": [dataclasses.asdict(record) for record in records],
    }
    file = study.file(results)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, stored)
    return records


def winner(records: Sequence[Record]) -> Record | None:
    """The best trial, the earlier one of equals; None if all diverged."""
    finite = [record for record in records if not record.diverged]
    return max(finite, key=lambda record: (record.map, -record.trial), default=None)


def _space_text(space: dict[str, Search]) -> dict[str, str]:
    return {name: str(search) for name, search in space.items()}


# ------------------------------------------------------------------------------- using a study


def tuned_specs(
    specs: Sequence[RunSpec], plugins: Plugins, results: Path, typed: Sequence[str] = ()
) -> list[RunSpec]:
    """The specs with the winners of their cells. All cells must have had the same number of trials.

    typed: options that the runs share, as words of a command.
    """
    tuned = [_tuned(spec, plugins, results, typed) for spec in specs]
    counts = Counter(spec.tuned["trials"] for spec in tuned)
    if len(counts) > 1:
        most = max(counts)
        fewer = next(spec for spec in tuned if spec.tuned["trials"] != most)
        raise UserError(
            f"--tuned: budgets are not equal: {fewer.method} on {fewer.dataset} "
            f"{fewer.regime_label} has {fewer.tuned['trials']} trials, others have {most}; type "
            f"`{_command(fewer, plugins, most, results, typed)}`"
        )
    return tuned


def check_studies(spec: RunSpec, plugins: Plugins, results: Path, typed: Sequence[str]) -> None:
    """Raise a UserError if there is no study at all of a spec's cell, whatever its data."""
    if not study_files(studies_folder(results, spec)):
        raise _no_study(spec, plugins, results, typed)


def _no_study(
    spec: RunSpec, plugins: Plugins, results: Path, typed: Sequence[str], why: str = ""
) -> UserError:
    return UserError(
        f"--tuned: no study of {spec.method} on {spec.dataset} {spec.regime_label} with these "
        f"settings in {results}{why}; type `{_command(spec, plugins, 20, results, typed)}`"
    )


def _tuned(spec: RunSpec, plugins: Plugins, results: Path, typed: Sequence[str]) -> RunSpec:
    # The study with most trials; of several seeds the lowest.
    fitting = _fitting_studies(spec, plugins, results, typed)
    base, records = max(fitting, key=lambda study: (len(study[1]), -study[0].seed))
    best = winner(records)
    if best is None:
        raise UserError(
            f"--tuned: all {len(records)} trials of {spec.method} on {spec.dataset} "
            f"{spec.regime_label} diverged; tune again with a smaller --lr"
        )
    centre = centre_of(spec, best.drawn)
    return dataclasses.replace(
        with_drawn(spec, best.drawn),
        tuned={
            "trial": best.trial,
            "trials": len(records),
            "seed": base.seed,
            **({"centre": centre} if centre else {}),
        },
    )


def _fitting_studies(
    spec: RunSpec, plugins: Plugins, results: Path, typed: Sequence[str]
) -> list[tuple[RunSpec, list[Record]]]:
    """The studies with the settings of a spec, as their specs and trials; a UserError if there is none."""
    space = _space_text(Study.of(spec, plugins, 1).space)
    wanted = _cell(spec)
    fitting, others = [], []
    for file in study_files(studies_folder(results, spec)):
        study = _read_study(file, spec, plugins, results)
        if study is None:
            continue
        stored, base, records = study
        different = [k for k, v in _cell(base).items() if v != wanted[k]]
        different += ["search ranges"] if stored["space"] != space else []
        if different:
            others.append(different)
        else:
            fitting.append((base, records))
    if not fitting:
        nearest = min(others, key=len, default=None)
        why = f" (there is one with other {', '.join(nearest)})" if nearest else ""
        raise _no_study(spec, plugins, results, typed, why)
    return fitting


def _read_study(
    file: Path, spec: RunSpec, plugins: Plugins, results: Path
) -> tuple[dict[str, Any], RunSpec, list[Record]] | None:
    """A study's record; a damaged one is rebuilt from its trials, or left out with a warning."""
    try:
        return _parse_study(file)
    except DamagedFile as damaged:
        if _close_again(file, spec, plugins, results):
            warnings.warn(f"{damaged}; rebuilt from its trials", DamageWarning, stacklevel=2)
            return _parse_study(file)
        warnings.warn(f"{damaged}; left out, tune again", DamageWarning, stacklevel=2)
        return None
    except FileNotFoundError:
        return None


def _parse_study(file: Path) -> tuple[dict[str, Any], RunSpec, list[Record]]:
    stored = read_own_json(file)
    try:
        base = parse_spec(stored["base"])
        _ = stored["space"]
        return stored, base, [Record(**trial) for trial in stored["trials"]]
    except SchemaError as error:
        raise UserError(
            f"{file}: this version cannot read the study: {error}; move it away and tune again"
        ) from None
    except (KeyError, TypeError) as error:
        raise DamagedFile(file, f"not a study of ssmlbench ({type(error).__name__})") from None


def _close_again(file: Path, spec: RunSpec, plugins: Plugins, results: Path) -> bool:
    """Write a study's record again, if it is of the spec's cell and all its trials are finished."""
    seed, _, trials = file.stem.replace("-", " ", 1).partition("-")
    numbers = (seed.partition(" ")[0], trials)
    if not all(number.isdecimal() for number in numbers):
        return False
    study = Study.of(dataclasses.replace(spec, seed=int(numbers[0])), plugins, int(numbers[1]))
    return study.file(results) == file and close(study, results) is not None


def _cell(spec: RunSpec) -> dict[str, Any]:
    """The values that a study must share with a run: all but the seed."""
    values = spec.portable()
    del values["seed"]
    return values


def _command(
    spec: RunSpec, plugins: Plugins, trials: int, results: Path, typed: Sequence[str]
) -> str:
    words = ("--method", spec.method, "--trials", str(trials))
    sources = plugins.sources(spec.dataset, typed)
    return command("tune", spec, sources, *words, results=results)
