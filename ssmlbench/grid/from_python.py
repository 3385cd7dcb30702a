"""`ssmlbench.run()`: the command `ssmlbench run` for Python and notebooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ssmlbench.core.arguments import checked, is_list, no_such_argument, several, shown
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.files import check_folder
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.paths import absolute, folder_of_data, usable
from ssmlbench.core.registry import plugin_name
from ssmlbench.core.run_options import RunOption
from ssmlbench.core.spec import OPTIONS, RunSpec
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Unreadable, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.run_result import RunResult, RunResults

if TYPE_CHECKING:
    from ssmlbench.core.events import Listener
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.request import GridRequest
    from ssmlbench.kit.method import Method

Scalar = str | int | float | bool | Path | None
Files = str | Path | Sequence[str | Path]


@overload
def run(
    method: str | type[Method],
    dataset: str | Path,
    *,
    grid: None = None,
    pi: float | None = None,
    seed: int | None = None,
    seeds: None = None,
    regime: str | None = None,
    settings: Mapping[str, Any] | None = None,
    plugin: Files = (),
    results: str | Path = "results",
    tuned: bool = False,
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    jobs: int = 1,
    threads: int | None = None,
    workers: int | None = None,
    decoded_cache: bool = True,
    keep_model: bool | None = None,
    progress: bool = False,
    log: str | None = None,
    **options: Scalar,
) -> RunResult: ...


@overload
def run(
    method: str | type[Method] | Sequence[str | type[Method]] | None = None,
    dataset: str | Path | Sequence[str | Path] | None = None,
    *,
    grid: str | Path | None = None,
    pi: float | Sequence[float] | None = None,
    seed: int | Sequence[int] | None = None,
    seeds: int | None = None,
    regime: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    plugin: Files = (),
    results: str | Path = "results",
    tuned: bool = False,
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    jobs: int = 1,
    threads: int | None = None,
    workers: int | None = None,
    decoded_cache: bool = True,
    keep_model: bool | None = None,
    progress: bool = False,
    log: str | None = None,
    **options: Any,
) -> RunResults: ...


@checked
def run(
    method: Any = None,
    dataset: Any = None,
    *,
    grid: str | Path | None = None,
    pi: Any = None,
    seed: Any = None,
    seeds: int | None = None,
    regime: Any = None,
    settings: Mapping[str, Any] | None = None,
    plugin: Files = (),
    results: str | Path = "results",
    tuned: bool = False,
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    jobs: int = 1,
    threads: int | None = None,
    workers: int | None = None,
    decoded_cache: bool = True,
    keep_model: bool | None = None,
    progress: bool = False,
    log: str | None = None,
    **options: Any,
) -> RunResult | RunResults:
    """Make a run, or every combination of the lists given. Finished runs are never made twice.

    One method, data set, number and seed give a RunResult; a list, `seeds` or `grid` gives
    RunResults. In a grid a run that fails stops no other: see `RunResults.failed`. A single run that
    fails raises RunFailed, and so does a grid of which every run fails.

    method: a name, or a Method class that is defined in a file.
    dataset: a name, or the path of your own data.
    pi: π, the labelled fraction of the regime `semi`.
    seed: the seed; 0 by default. seeds: this many seeds, 0, 1, …
    regime: `semi` by default.
    grid: a TOML file with the axes and settings; arguments win over it.
    settings: hyper-parameters, `{"loss": "bce"}`, or of one method, `{"cap.loss": "bce"}`.
    plugin: Python files or paths of your own data, one or several.
    results: the folder where finished runs are kept.
    tuned: with the winners of `ssmlbench tune`.
    data_dir: a folder with a folder of raw files for each data set.
    skip_bad: leave bad rows out when a data set is prepared.
    device: `auto`, `cpu`, `cuda` or `mps`.
    jobs: runs made at the same time.
    threads, workers: CPU threads of a run, and those that decode its images.
    decoded_cache: whether large image sets are decoded once, and the pixels kept on disk for all runs.
    keep_model: whether each run's model is stored, for `predict`; by default unless it is large.
    progress: show the progress on the terminal.
    log: copy finished runs to `tensorboard`, `mlflow` or `wandb`, or to several of them, with commas.
    options: every other option of `ssmlbench run`, with underscores: `epochs=20`, `freeze=True`.
    """
    from ssmlbench.grid.loggers import logger_names
    from ssmlbench.grid.request import requested_specs

    loggers = logger_names(log)
    method = _listed(method) if _is_list(method) else method  # a generator is read once
    axes = {"dataset": dataset, "pi": pi, "seed": seed, "regime": regime}
    files = [plugin] if isinstance(plugin, str | Path) else plugin
    request = _request({"method": method, **axes, **options}, seeds, settings, files, grid)
    plugins = Plugins(request.plugins)
    for cls in filter(_is_class, _listed(method)):
        _add_class(plugins, cls, jobs)
    root = absolute(results)
    dispatch = _dispatch(root, device, jobs, threads, workers, decoded_cache, keep_model)
    dispatch = dispatch.typed(request.words)
    prepare_data = _preparer(data_dir, skip_bad)
    specs = requested_specs(request, plugins, dispatch, prepare_data, root if tuned else None)
    failed = _make(specs, plugins, dispatch, progress, loggers)
    failed_hashes = {spec.hash for spec, _ in failed}
    finished = [spec for spec in specs if spec.hash not in failed_hashes]
    if not finished:
        raise RunFailed("; ".join(f"{spec}: {text}" for spec, text in failed))
    for spec, text in failed:
        warnings.warn(f"failed: {spec}: {text}", stacklevel=3)
    runs = RunResults([_read(root, spec) for spec in finished], failed)
    lists = [value for value in (method, *axes.values(), *options.values()) if _is_list(value)]
    return runs if lists or seeds is not None or grid is not None else runs[0]


def _is_list(value: Any) -> bool:
    """Whether an argument is a list: a sequence, or the command line's `a,b`."""
    return "," in value if isinstance(value, str) else is_list(value)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return list(value) if _is_list(value) else [value]


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _add_class(plugins: Plugins, method: type[Any], jobs: int) -> None:
    """Add a class that is defined in this process as a method."""
    from ssmlbench.plugins.digest import code_digest

    instead = "save it in a file and pass plugin=FILE and method=NAME"
    if jobs > 1:
        raise UserError(
            f"jobs={jobs}: worker processes do not have the class {method.__name__}; {instead}"
        )
    try:
        code_digest(method)
    except (OSError, TypeError, UserError):
        raise UserError(
            f"method {method.__name__}: its source is not available, so that an edit would go "
            f"unnoticed; {instead}"
        ) from None
    plugins.add(method)


def _request(
    given: Mapping[str, Any],
    seeds: int | None,
    settings: Mapping[str, Any] | None,
    files: Sequence[str | Path],
    grid: str | Path | None,
) -> GridRequest:
    """The request of the arguments, which override the grid file."""
    from ssmlbench.grid.request import GridRequest, first_seeds
    from ssmlbench.grid.toml_file import read_grid

    by_name = {option.key.replace("-", "_"): option for option in OPTIONS.values()}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in by_name:
            raise no_such_argument(run, name, by_name)
        option = by_name[name]
        if name == "method" and value is not None:
            value = [plugin_name(m, name) if _is_class(m) else m for m in _listed(value)]
        if value is not None:
            values[option.name] = (
                several(value, option.kind, name) if option.axis else _fixed(option, name, value)
            )
    if seeds is not None:
        if "seed" in values:
            raise UserError("seed and seeds are both given; keep one")
        values["seed"] = first_seeds(*several([seeds], int, "seeds"))
    texts = {name: as_typed(value) for name, value in (settings or {}).items()}
    request = GridRequest(values, texts, plugins=tuple(map(str, files)))
    return request.over(read_grid(usable(grid)) if grid is not None else None)


def _fixed(option: RunOption, name: str, value: Any) -> Any:
    """The value of an option that is the same for all runs."""
    if option.kind is not bool:
        if option.choices and not isinstance(value, str):
            option.check(shown(value))  # answers with the choices
        (one,) = several([value], option.kind, name)
        return one
    flags = {"true": True, "false": False}
    is_text = isinstance(value, str | bool) or type(value).__module__ == "numpy"
    flag = flags.get(str(value).lower()) if is_text else None
    if flag is None:
        raise UserError(f"{name}={shown(value)}: must be True or False")
    return flag


def _dispatch(
    root: Path,
    device: str,
    jobs: int,
    threads: int | None,
    workers: int | None,
    decoded_cache: bool,
    keep_model: bool | None,
) -> Dispatch:
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.runs.context import RunContext
    from ssmlbench.runs.execute import quieten

    quieten()
    context = RunContext(root, device, threads, decoded_cache=decoded_cache, keep_model=keep_model)
    dispatch = Dispatch(context, jobs=jobs, workers=workers)
    dispatch.check()
    check_folder(root, "--results")
    return dispatch


def _preparer(
    data_dir: str | Path | None, skip_bad: bool
) -> Callable[[type[DatasetAdapter]], None]:
    """A function that prepares a data set from the raw files in a folder."""
    from ssmlbench.data import check_source, prepare

    folder = folder_of_data(data_dir)

    def prepare_data(cls: type[DatasetAdapter]) -> None:
        adapter = cls(data_dir=folder)
        check_source(adapter, prepare(adapter, skip_bad).card)

    return prepare_data


def _make(
    specs: Sequence[RunSpec],
    plugins: Plugins,
    dispatch: Dispatch,
    progress: bool,
    loggers: Sequence[str],
) -> list[tuple[RunSpec, str]]:
    """Make the unfinished runs. Returns the failed ones with their reasons."""
    from ssmlbench.core.console import Console
    from ssmlbench.grid.dispatch import ignore
    from ssmlbench.grid.display import Display
    from ssmlbench.grid.loggers import LoggingThread

    logger_warnings: list[str] = []  # raised below: not in the thread of a logger
    logs = LoggingThread(loggers, dispatch.context.results, logger_warnings.append)
    display = Display(Console(), len(specs), quiet=not progress)
    with _torch_state_restored(), logs, display:
        listener: Listener = display.report if progress else ignore
        summary = dispatch.run(dispatch.plan(specs, plugins), logs.listening(listener))
    for text in logger_warnings:
        warnings.warn(text, stacklevel=4)
    return list(getattr(summary, "failed", ()))


@contextmanager
def _torch_state_restored() -> Iterator[None]:
    """Restore torch's threads, random state and determinism after the block."""
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)


def _read(root: Path, spec: RunSpec) -> RunResult:
    run = read_result(RunFolder.of(root, spec).path)
    if isinstance(run, Unreadable):
        raise UserError(str(run))
    return RunResult(run)
