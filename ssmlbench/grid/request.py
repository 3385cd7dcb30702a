"""A request for runs, from the command line, a grid file or both, and the specs that it expands to."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssmlbench.core.backbones import absolute_backbone
from ssmlbench.core.errors import LeftOutWarning, Unsupported, UserError
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.names import EVERY_METHOD
from ssmlbench.core.run_options import AUTO, RunOption
from ssmlbench.core.spec import NUMBERS, OPTIONS, REGIME_NUMBERS, Precision, RunSpec
from ssmlbench.core.suggestions import one_of
from ssmlbench.protocol.regimes import REGIMES

if TYPE_CHECKING:
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.resolve import PlannedRun

Axes = Mapping[str, tuple[Any, ...]]
MOST_SEEDS = 100_000


@dataclass(frozen=True)
class GridRequest:
    """The options of a grid by their fields of RunSpec; an axis has a tuple of values."""

    values: Mapping[str, Any]
    settings: Mapping[str, str] = field(default_factory=dict)  # the --set texts
    exclude: tuple[Axes, ...] = ()  # runs that are left out
    plugins: tuple[str, ...] = ()

    @property
    def axes(self) -> Axes:
        """The axes of the grid: options with a tuple of values."""
        return {name: value for name, value in self.values.items() if OPTIONS[name].axis}

    @property
    def fixed(self) -> Mapping[str, Any]:
        """The values that all runs share."""
        return {name: value for name, value in self.values.items() if not OPTIONS[name].axis}

    @property
    def words(self) -> tuple[str, ...]:
        """The values that all runs share, as a command has them."""
        words: list[str] = []
        for name, value in self.fixed.items():
            flag = OPTIONS[name].flag
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            elif value is not None:
                text = as_typed(value)
                words += [flag, absolute_backbone(text) if name == "backbone" else text]
        return tuple(words)

    def over(self, file: GridRequest | None) -> GridRequest:
        """This request, typed, over that of a grid file, if there is one.

        A UserError for a typed setting of a method that is not among those of both.
        """
        request = file.overridden_by(self) if file else self
        methods = request.axes.get("method", ())
        for key, text in self.settings.items():
            owner, dot, _ = key.rpartition(".")
            if dot and methods and owner not in methods and EVERY_METHOD not in methods:
                raise UserError(
                    f"--set {key}={text}: {owner} is not in --method {','.join(methods)}"
                )
        return request

    def overridden_by(self, typed: GridRequest) -> GridRequest:
        """This request, of a file, overridden by the options of the command line."""
        # A setting that is typed for all methods also overrides the file's settings of one method.
        kept = {
            key: text
            for key, text in self.settings.items()
            if key not in typed.settings and key.rpartition(".")[2] not in typed.settings
        }
        unread = {number.name for number in unread_numbers(typed.values.get("regime", REGIMES))}
        values = {name: value for name, value in self.values.items() if name not in unread}
        return GridRequest(
            {**values, **typed.values},
            {**kept, **typed.settings},
            (*self.exclude, *typed.exclude),
            (*self.plugins, *typed.plugins),
        )

    def completed(self, **defaults: Any) -> GridRequest:
        """The request with its defaults filled in; a UserError for a required option that is missing."""
        own = {"regime": (RunSpec.regime,)}
        typed = {
            name: value
            for name, value in self.values.items()
            if not (OPTIONS[name].automatic and value == AUTO)
        }
        request = dataclasses.replace(self, values={**own, **defaults, **typed})
        for name, value in request.values.items():
            for one in value if OPTIONS[name].axis else (value,):
                OPTIONS[name].check(one)
        regimes = request.values["regime"]
        for regime in regimes:
            one_of(regime, REGIMES, OPTIONS["regime"].flag)
        needed = [OPTIONS["method"], OPTIONS["dataset"]]
        needed += [n for regime, n in REGIME_NUMBERS.items() if regime in regimes]
        for option in needed:
            if not request.values.get(option.name):
                raise UserError(f"{option.flag} is missing, e.g. {option.flag} {option.example}")
        for number in unread_numbers(regimes):
            if number.name in request.values:
                raise UserError(
                    f"{number.flag} is for --regime {' or '.join(number.regimes)}, not for --regime "
                    f"{','.join(regimes)}; leave it out"
                )
        return request


def unread_numbers(regimes: Iterable[str]) -> list[RunOption]:
    """The options, such as --pi, that none of the regimes reads."""
    return [number for number in NUMBERS if not {*number.regimes} & {*regimes}]


def requested_specs(
    request: GridRequest,
    plugins: Plugins,
    dispatch: Dispatch,
    prepare_data: Callable[[type[DatasetAdapter]], object],
    tuned_in: Path | None = None,
    check: Callable[[RunSpec], object] = lambda spec: None,
) -> list[RunSpec]:
    """Every run of a request, with its data sets prepared.

    Mistakes that can be found without the data are raised before a data set is prepared.

    prepare_data: prepares a data set, unless it is prepared already.
    tuned_in: the results folder whose studies give the hyper-parameters.
    check: called with each spec before its data set is prepared; it raises a UserError for a wrong one.
    """
    from ssmlbench.grid.resources import check_encoder_options
    from ssmlbench.grid.study import check_studies, tuned_specs
    from ssmlbench.training.device import check_precision, default_precision, pick_device
    from ssmlbench.training.repeatable import check_fast

    device, here = dispatch.context.device, dispatch.runs_here
    request = request.completed()
    precision = request.fixed.get("precision")
    if here:
        check_precision(pick_device(device), precision or RunSpec.precision)
        check_fast(pick_device(device), request.fixed.get("fast", RunSpec.fast))
    planned = PlannedGrid.of(plugins, request)
    plugins.check_data_options(planned.datasets)
    check_encoder_options(planned.specs(), plugins, dispatch.context)
    typed = dispatch.context.typed
    for spec in planned.specs():
        check(spec)
        if tuned_in is not None:
            check_studies(spec, plugins, tuned_in, typed)
    for name in planned.datasets:
        prepare_data(plugins.datasets[name])
    specs = planned.on_data()
    if precision is None:
        specs = with_default_precision(specs, plugins, default_precision(device, here))
    return specs if tuned_in is None else tuned_specs(specs, plugins, tuned_in, typed)


def with_default_precision(
    specs: Iterable[RunSpec], plugins: Plugins, precision: Precision
) -> list[RunSpec]:
    """The specs with this precision where an encoder is trained.

    Heads on fixed features stay in float32: they are too small to gain from another precision.
    """
    from ssmlbench.runs.train import on_fixed_features

    return [
        spec
        if spec.is_estimator or on_fixed_features(spec, plugins)
        else dataclasses.replace(spec, precision=precision)
        for spec in specs
    ]


def first_seeds(count: int) -> tuple[int, ...]:
    """The seeds 0, 1, … of `--seeds COUNT`."""
    if count < 1:
        raise UserError(f"--seeds {count}: must be at least 1; --seed {count} names a single seed")
    if count > MOST_SEEDS:
        raise UserError(f"--seeds {count:,}: at most {MOST_SEEDS:,}; --seed {count} names one seed")
    return tuple(range(count))


def expand(plugins: Plugins, request: GridRequest) -> list[RunSpec]:
    """Every combination of the axes as a full spec, in the order typed, each once."""
    return PlannedGrid.of(plugins, request).on_data()


@dataclass
class PlannedGrid:
    """The cells of a request, with their options checked; no data set has been read yet."""

    request: GridRequest
    # Specs of different seeds differ in the seed only.
    runs: dict[tuple[Any, ...], PlannedRun]  # by the values of a cell without its seed
    cells: list[dict[str, Any]]
    every: bool  # `--method all`: what a method does not support is left out
    refused: dict[str, UserError]  # by method

    @classmethod
    def of(cls, plugins: Plugins, request: GridRequest) -> PlannedGrid:
        """Plan every combination of the axes, in the order typed."""
        from ssmlbench.runs.resolve import planned_run

        request = _by_name(plugins, request.completed())
        every = EVERY_METHOD in request.axes["method"]
        if every:
            request = dataclasses.replace(
                request, values={**request.values, "method": tuple(plugins.methods)}
            )
        grid = cls(request, {}, [], every, {})
        for cell in _cells(request.axes):
            # Without a typed seed, the seeds of a cell are known only after its data set is read.
            tables = [t for t in request.exclude if cell["seed"] is not None or "seed" not in t]
            if any(_matches(cell, table) for table in tables):
                continue
            if _without_seed(cell) not in grid.runs:
                with grid._refusals(cell["method"]):
                    grid.runs[_without_seed(cell)] = planned_run(
                        plugins, request.settings, **request.fixed, **cell
                    )
            grid.cells.append(cell)
        if not grid.runs:
            raise grid._nothing_left()
        return grid

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets, each once."""
        return list(dict.fromkeys(run.spec.dataset for run in self.runs.values()))

    def specs(self) -> list[RunSpec]:
        """A spec for each cell, whatever its seed, without what depends on the data."""
        return [run.spec for run in self.runs.values()]

    def on_data(self) -> list[RunSpec]:
        """The full specs, each once."""
        of_cell: dict[tuple[Any, ...], RunSpec] = {}
        for key, run in self.runs.items():
            with self._refusals(run.spec.method):
                of_cell[key] = run.on_data()
        specs = [
            dataclasses.replace(spec, seed=seed)
            for cell in self.cells
            if (spec := of_cell.get(_without_seed(cell))) is not None
            for seed in _seeds(cell["seed"], spec)
            if not any(_matches({**cell, "seed": seed}, table) for table in self.request.exclude)
        ]
        if not specs:
            raise self._nothing_left()
        if self.refused:
            _warn_of_left_out(self.refused, {spec.method for spec in specs})
        return list({spec.hash: spec for spec in specs}.values())

    @contextmanager
    def _refusals(self, method: str) -> Iterator[None]:
        """Keep an Unsupported of `--method all`, and raise any other."""
        try:
            yield
        except Unsupported as error:
            if not self.every:
                raise
            self.refused[method] = error

    def _nothing_left(self) -> UserError:
        last = next(reversed(self.refused.values()), None)
        return last or UserError("every run is excluded; nothing is left of the grid")


def _without_seed(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(value for name, value in cell.items() if name != "seed")


def _warn_of_left_out(refused: Iterable[str], made: Container[str]) -> None:
    """Name the methods that `--method all` leaves out. made: the methods that have runs."""
    names = ", ".join(name + (" (in part)" if name in made else "") for name in refused)
    warnings.warn(
        f"--method {EVERY_METHOD} leaves out what a method cannot do: {names}; name one of them to see why",
        LeftOutWarning,
        stacklevel=3,
    )


def _by_name(plugins: Plugins, request: GridRequest) -> GridRequest:
    """The request with names instead of paths of data sets; an error for an unknown name."""

    def known(values: Mapping[str, Any]) -> dict[str, Any]:
        named = dict(values)
        for method in values.get("method", ()):
            if method != EVERY_METHOD:
                plugins.methods.find(method, EVERY_METHOD)
        if "dataset" in values:
            named["dataset"] = tuple(plugins.data_set(typed) for typed in values["dataset"])
            for name in named["dataset"]:
                _ = plugins.datasets[name]
        return named

    exclude = tuple(known(table) for table in request.exclude)
    return dataclasses.replace(request, values=known(request.values), exclude=exclude)


def _cells(axes: Axes) -> Iterable[dict[str, Any]]:
    """One dictionary for each run, by field; the first axes below vary slowest."""
    numbers = {option.name: option.regimes for option in NUMBERS}
    others = [
        name for name in axes if name not in ("regime", "dataset", "method", "seed", *numbers)
    ]
    names = ("dataset", *numbers, "method", *others, "seed")
    axes = {"seed": (None,), **axes}  # None: no seed was named
    for regime in axes["regime"]:
        values = [
            axes[name] if regime in numbers.get(name, (regime,)) else (None,) for name in names
        ]
        for cell in itertools.product(*values):
            yield {"regime": regime, **dict(zip(names, cell, strict=True))}


def _seeds(named: int | None, spec: RunSpec) -> Iterable[int]:
    """The seeds of a cell: the one that was named; else the first, or one for each fold."""
    return range(spec.folds or 1) if named is None else (named,)


def _matches(cell: Mapping[str, Any], table: Axes) -> bool:
    return all(cell.get(name) in values for name, values in table.items())
