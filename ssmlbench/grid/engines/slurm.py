"""The Slurm engine: the runs as job arrays through submitit. Submit and exit; `status` tells the rest.

A run that is made, or that Slurm still has queued or running, is not submitted again. A job that
runs out of time is queued again by submitit, and goes on from its checkpoint.
"""

from __future__ import annotations

import getpass
import io
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing
from ssmlbench.core.files import read_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.payload import RunPayload
from ssmlbench.grid.queue_file import queue_folder, remove_queue, sweep, write_queue
from ssmlbench.grid.resources import threads_wanted
from ssmlbench.grid.run_one import not_made
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

ARRAY_RUNS = 1000
"""Jobs in one array: Slurm's own default limit."""
MINUTES = 240
"""The time a job asks for unless --slurm time=… says otherwise."""
TIMEOUTS = 20
"""How often a run that takes longer than its job's time is queued again."""
RENAMED = {"cpus": "cpus_per_task", "gpus": "gpus_per_node", "name": "job_name"}


@dataclass
class Submission:
    """What was handed to Slurm, and what was not."""

    jobs: list[str] = field(default_factory=list)
    already: int = 0
    underway: int = 0
    logs: Path = Path()

    def lines(self) -> Iterator[str]:
        arrays = sorted({job.partition("_")[0] for job in self.jobs})
        skipped = f"{self.already} already there, {self.underway} queued or running already"
        if self.jobs:
            yield f"submitted {len(self.jobs)} runs as job {', '.join(arrays)}; {skipped}"
            yield f"their logs are in {self.logs}"
        else:
            yield f"nothing to submit: {skipped}"


class Job:
    """What a job calls. A class of its own, since submitit asks it what to do when time is up."""

    def __init__(self, carried: RunPayload, specs: Sequence[RunSpec]):
        self.carried = carried
        self.specs = [spec.as_dict() for spec in specs]

    def __call__(self) -> list[Closing]:
        from ssmlbench.grid.display import Display

        specs = [RunSpec.from_dict(spec) for spec in self.specs]
        events = []
        with Display(_log_console(), len(specs)) as display:
            for spec in specs:
                event = self.carried.run(spec, partial(display.report, spec))
                display.report(spec, event)
                events.append(event)
        return events

    def checkpoint(self) -> Any:
        """Time is up: back into the queue, and on from the run's own checkpoint."""
        from submitit.helpers import DelayedSubmission

        for spec in self.specs:
            folder = RunFolder.of(self.carried.place.results, RunSpec.from_dict(spec))
            folder.progress_file.unlink(missing_ok=True)
        return DelayedSubmission(self)


def _log_console() -> Any:
    from rich.console import Console

    return Console(force_terminal=False, width=160)


def submit(
    specs: Sequence[RunSpec],
    plugins: Plugins,
    place: RunContext,
    jobs: int | None,
    options: Mapping[str, str],
) -> Submission:
    """Submit every run that is neither made nor with Slurm already.

    jobs: how many are made at a time; None: as many as Slurm lets. options: the --slurm texts.
    """
    submitit = _import_submitit()
    options = dict(options)
    cluster = options.pop("cluster", "slurm")
    if cluster not in ("slurm", "local"):
        raise UserError(f"--slurm cluster={cluster}: must be slurm or local")
    logs = place.results / ".slurm"
    made = Submission(logs=logs)
    waiting = not_made(specs, place, lambda spec, event: None)
    made.already = len(specs) - len(waiting)
    with_slurm = underway(place.results)
    waiting = [s for s in waiting if RunFolder.of(place.results, s).path not in with_slurm]
    made.underway = len(specs) - made.already - len(waiting)
    if not waiting:
        return made
    wanted = threads_wanted(waiting, plugins, place)
    executor = _executor(submitit, cluster, logs, options, max(t or 1 for t in wanted), jobs)
    carried = RunPayload.of(plugins, place)
    previous = None
    for chunk in _chunks(waiting, cluster, jobs):
        if previous and jobs:  # or each array would make so many at a time
            executor.update_parameters(dependency=f"afterany:{previous}")
        names = _submit_array(submitit, executor, [Job(carried, runs) for runs in chunk])
        previous = names[0].partition("_")[0]
        of_run = [name for name, runs in zip(names, chunk, strict=True) for _ in runs]
        runs = [spec for runs in chunk for spec in runs]
        file = queue_folder(place.results) / f"slurm-{previous}-{time.time_ns()}.json"
        write_queue(file, place.results, runs, "slurm", of_run, cluster=cluster)
        made.jobs += of_run
    return made


def _chunks(
    specs: Sequence[RunSpec], cluster: str, jobs: int | None
) -> Iterator[list[list[RunSpec]]]:
    """Arrays of jobs of runs. A job makes one run; without Slurm's queue, its share of them all."""
    if cluster == "local":
        count = min(jobs or 1, len(specs))
        yield [list(specs[i::count]) for i in range(count)]
        return
    for start in range(0, len(specs), ARRAY_RUNS):
        yield [[spec] for spec in specs[start : start + ARRAY_RUNS]]


def _import_submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError("--engine slurm needs submitit: pip install 'ssmlbench[slurm]'") from None
    return submitit


def _executor(
    submitit: Any,
    cluster: str,
    logs: Path,
    options: Mapping[str, str],
    threads: int,
    jobs: int | None,
) -> Any:
    parameters = parse_options(options)
    if cluster == "local":
        executor = submitit.LocalExecutor(logs, max_num_timeout=TIMEOUTS)
        executor.update_parameters(timeout_min=parameters.get("time", MINUTES))
        return executor
    try:
        executor = submitit.SlurmExecutor(logs, max_num_timeout=TIMEOUTS)
    except RuntimeError:
        raise UserError(
            "--engine slurm: there is no srun here; type it where jobs are submitted, or add "
            "--slurm cluster=local to try it without Slurm"
        ) from None
    known = set(executor._valid_parameters())
    own = {"job_name": "ssmlbench", "time": MINUTES, "cpus_per_task": threads}
    own |= {"array_parallelism": jobs} if jobs else {}
    own |= {key: value for key, value in parameters.items() if key in known}
    # What submitit has no name for goes to sbatch as it is.
    more = {k.replace("_", "-"): v for k, v in parameters.items() if k not in known}
    executor.update_parameters(**own, additional_parameters=more)
    return executor


def parse_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The --slurm texts as submitit takes them: numbers as numbers, time in minutes."""
    parsed: dict[str, Any] = {}
    for key, text in options.items():
        name = key.replace("-", "_")
        name = RENAMED.get(name, name)
        if name == "time":
            parsed[name] = minutes(text)
        elif text == "":
            parsed[name] = True  # a flag, e.g. exclusive=
        else:
            parsed[name] = int(text) if text.isdecimal() and name != "mem" else text
    return parsed


def minutes(text: str) -> int:
    """sbatch's times: 90 (minutes), 90:00, 1:30:00, 1-12, 1-12:30, 1-12:30:00."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not found:
        raise UserError(f"--slurm time={text}: expected minutes or [days-]hours:minutes:seconds")
    days, *rest = (int(part) if part is not None else None for part in found.groups())
    first, second, third = rest
    if days is not None:
        seconds = days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return max(1, -(-seconds // 60))


def _submit_array(submitit: Any, executor: Any, jobs: Sequence[Job]) -> list[str]:
    """The names Slurm gives them."""
    try:
        with redirect_stderr(io.StringIO()), executor.batch():  # submitit prints what it raises
            submitted = [executor.submit(job) for job in jobs]
        return [str(job.job_id) for job in submitted]
    except submitit.core.utils.FailedJobError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise UserError(f"--engine slurm: sbatch refuses: {'; '.join(told)}") from None


def underway(results: Path) -> set[Path]:
    """The folders of the runs that jobs submitted earlier still have before them.

    What is told of jobs that are gone is taken away.
    """
    sweep(results)
    found: set[Path] = set()
    for file in sorted(queue_folder(results).glob("slurm-*.json")):
        told = read_json(file)
        if told is None:
            continue
        alive = {run["folder"] for run in told["runs"] if _alive(run["job"], told)}
        if not alive:
            remove_queue(file)
        found |= {results / folder for folder in alive}
    _ASKED.clear()
    return found


_ASKED: dict[str, set[str]] = {}
"""What squeue said, for the length of one question."""


def _alive(job: str, told: Mapping[str, Any]) -> bool:
    if told["cluster"] == "local":
        return told["host"] == socket.gethostname() and _process_exists(int(job))
    if "squeue" not in _ASKED:
        _ASKED["squeue"] = _squeue()
    return job in _ASKED["squeue"]


def _squeue() -> set[str]:
    """The jobs of this user that are queued or running, an array's one by one."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        told = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise UserError(
            f"--engine slurm: squeue does not say what is queued already: {''.join(told)}"
        ) from None
    return set(asked.stdout.split())


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # where there is one: a process nobody waited for is over too
    return not (stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
