"""The Slurm engine: the runs as job arrays through submitit. It submits and exits.

A run that is finished, or that Slurm still has queued or running, is not submitted again. A job that
runs out of time is queued again by submitit, and continues from its checkpoint.
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
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing, Listener
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.grid.engines.base import Engine, EngineOption, GridPlan, Submission
from ssmlbench.grid.payload import RunPayload
from ssmlbench.grid.queue_file import queue_files, queue_folder, remove_queue, sweep, write_queue
from ssmlbench.grid.resources import threads_wanted
from ssmlbench.grid.run_one import unfinished
from ssmlbench.runs.folder import RunFolder

ARRAY_RUNS = 1000
"""Jobs in one array: Slurm's own default limit."""
MINUTES = 240
"""The time limit of a job, in minutes, without --slurm time=…."""
TIMEOUTS = 20
"""The most times that a run is queued again because its job ran out of time."""
RENAMED = {"cpus": "cpus_per_task", "gpus": "gpus_per_node", "name": "job_name"}
ENDED = ("Z", "X")
"""The states of a process that has ended: nobody has waited for it yet, or somebody does just now."""


class Job:
    """The runs of one job. submitit calls `checkpoint` when its time is up."""

    def __init__(self, payload: RunPayload, specs: Sequence[RunSpec]):
        self.payload = payload
        self.specs = [spec.as_dict() for spec in specs]
        self._queued_again = False

    def __call__(self) -> list[Closing]:
        """Make the runs, with their progress as lines of the job's log."""
        from ssmlbench.grid.display import Display

        specs = [RunSpec.from_dict(spec) for spec in self.specs]
        events = []
        self._queued_again = False
        try:
            with Display(_log_console(), len(specs)) as display:
                for spec in specs:
                    event = self.payload.run(spec, partial(display.report, spec))
                    display.report(spec, event)
                    events.append(event)
        finally:
            if self._queued_again:  # the run wrote its progress again when it saved its state
                self._forget_progress()
        return events

    def checkpoint(self) -> Any:
        """Queue the job again; the run continues from its own checkpoint."""
        from submitit.helpers import DelayedSubmission

        self._queued_again = True
        self._forget_progress()
        return DelayedSubmission(self)

    def _forget_progress(self) -> None:
        """Delete the progress files, so that runs that are queued again do not look stopped."""
        for spec in self.specs:
            folder = RunFolder.of(self.payload.context.results, RunSpec.from_dict(spec))
            folder.progress_file.unlink(missing_ok=True)


def _log_console() -> Any:
    from ssmlbench.core.console import Console

    return Console(force_terminal=False, width=160)


class SlurmEngine(Engine):
    """Job arrays of a Slurm cluster: submit and exit."""

    name = "slurm"
    help = "Slurm jobs (submit and exit)"
    options = (
        EngineOption("slurm", "key=value, e.g. partition=gpu; may be repeated.", "partition=gpu"),
    )

    def run(self, plan: GridPlan, listener: Listener) -> Submission:
        """Submit every run that is neither finished nor with Slurm already.

        The jobs outlive this process: of the events, only AlreadyDone reaches the listener.
        """
        submitit = _import_submitit()
        options = dict(self.given.get("slurm") or {})
        cluster = options.pop("cluster", "slurm")
        if cluster not in ("slurm", "local"):
            raise UserError(f"--slurm cluster={cluster}: must be slurm or local")
        results = plan.context.results
        submission = Submission(logs=results / ".slurm")
        not_finished = unfinished(plan.specs, plan.context, listener)
        submission.already = len(plan.specs) - len(not_finished)
        with_slurm = underway(results)
        waiting = [s for s in not_finished if RunFolder.of(results, s).path not in with_slurm]
        submission.underway = len(not_finished) - len(waiting)
        if waiting:
            threads = max(t or 1 for t in threads_wanted(waiting, plan.plugins, plan.context))
            executor = _executor(submitit, cluster, submission.logs, options, threads, plan.jobs)
            self._submit(submitit, executor, cluster, replace(plan, specs=waiting), submission)
        return submission

    def _submit(
        self, submitit: Any, executor: Any, cluster: str, plan: GridPlan, submission: Submission
    ) -> None:
        results = plan.context.results
        payload = RunPayload.of(plan.plugins, plan.context)
        previous = None
        for chunk in _chunks(plan.specs, cluster, plan.jobs):
            # --jobs limits one array: the arrays must not run in parallel
            if previous and plan.jobs:
                executor.update_parameters(dependency=f"afterany:{previous}")
            names = _submit_array(submitit, executor, [Job(payload, runs) for runs in chunk])
            previous = names[0].partition("_")[0]
            of_run = [name for name, runs in zip(names, chunk, strict=True) for _ in runs]
            runs = [spec for runs in chunk for spec in runs]
            file = queue_folder(results) / f"slurm-{previous}-{time.time_ns()}.json"
            write_queue(file, results, runs, self.name, of_run, detached=True, cluster=cluster)
            submission.jobs += of_run


def _chunks(
    specs: Sequence[RunSpec], cluster: str, jobs: int | None
) -> Iterator[list[list[RunSpec]]]:
    """Arrays of jobs, each a list of runs: one run per job; with `cluster=local`, its share of all."""
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
    # Options that submitit does not know go to sbatch as they are.
    more = {k.replace("_", "-"): v for k, v in parameters.items() if k not in known}
    executor.update_parameters(**own, additional_parameters=more)
    return executor


def parse_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The --slurm texts as parameters of submitit: numbers as numbers, time in minutes."""
    parsed: dict[str, Any] = {}
    for key, text in options.items():
        name = key.replace("-", "_")
        name = RENAMED.get(name, name)
        if name == "time":
            parsed[name] = minutes(text)
        elif text == "":
            parsed[name] = True  # a flag, e.g. exclusive=
        else:
            number = None if name == "mem" else whole_number(text)
            parsed[name] = text if number is None else number
    return parsed


def minutes(text: str) -> int:
    """Minutes of a time as sbatch reads it: 90 (minutes), 90:00, 1:30:00, 1-12, 1-12:30, 1-12:30:00."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text)
    if not match:
        raise UserError(f"--slurm time={text}: expected minutes or [days-]hours:minutes:seconds")
    days, *rest = (int(part) if part is not None else None for part in match.groups())
    first, second, third = rest
    if days is not None:
        seconds = days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return max(1, -(-seconds // 60))


def _submit_array(submitit: Any, executor: Any, jobs: Sequence[Job]) -> list[str]:
    """Submit jobs as one array. Returns the names that Slurm gives them."""
    try:
        with redirect_stderr(io.StringIO()), executor.batch():  # submitit prints what it raises
            submitted = [executor.submit(job) for job in jobs]
        return [str(job.job_id) for job in submitted]
    except submitit.core.utils.FailedJobError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise UserError(f"--engine slurm: sbatch refuses: {'; '.join(errors)}") from None


def underway(results: Path) -> set[Path]:
    """The folders of the runs of earlier jobs that are still queued or running.

    Queue files of jobs that have ended are deleted.
    """
    sweep(results)
    slurm_jobs = _SlurmJobs()
    folders: set[Path] = set()
    for file, queue in queue_files(results):
        if queue.engine != SlurmEngine.name:
            continue
        if queue.facts.get("cluster") == "local":
            here = queue.host == socket.gethostname()
            alive = [run for run in queue.entries() if here and _process_exists(int(run.job))]
        else:
            alive = [run for run in queue.entries() if run.job in slurm_jobs.names]
        if not alive:
            remove_queue(file)
        folders |= {results / run.folder for run in alive}
    return folders


class _SlurmJobs:
    """Calls squeue at most once."""

    @cached_property
    def names(self) -> set[str]:
        """The jobs of this user that are queued or running, an array's one by one."""
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
            raise UserError(
                f"--engine slurm: squeue failed, so the queued runs are not known: {''.join(lines)}"
            ) from None
        return set(answer.stdout.split())


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    if not Path("/proc/self/stat").is_file():  # it is Linux that tells more
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ENDED
