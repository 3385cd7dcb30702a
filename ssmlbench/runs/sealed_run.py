"""One run in two fresh processes: one trains and never holds a hidden label, the other judges.

The training process is forked from the judge's process before that one opens the labels. The judge loads
no plugin, receives scores through a pipe, and stores the result. Whatever a plugin does to its own process,
the judge sees it end and reports why.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from threadpoolctl import threadpool_limits

from ssmlbench.core.checksums import take_over
from ssmlbench.core.errors import PluginWarning, RunStopped
from ssmlbench.core.events import Closing, Event, Notify
from ssmlbench.core.files import remove_folder
from ssmlbench.core.plain_warnings import show_plainly
from ssmlbench.core.protected_files import code_folders
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.stopping import EXIT_CODE, EndsWithParent, Stopped, stop_on_sigterm
from ssmlbench.data import Task
from ssmlbench.data.adapter import PublishedStatistics
from ssmlbench.data.published import differences_to_published
from ssmlbench.data.task import read_card
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import check_data, judge_run, quieten
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.kernel_lock import has_threads, kernel_can_lock, lock_labels
from ssmlbench.runs.known_results import remember_results
from ssmlbench.runs.messages import JudgePipe
from ssmlbench.runs.seal import SealedPlaces, code_in, places_to_read, set_tripwire
from ssmlbench.runs.seal_reports import SealReports
from ssmlbench.runs.several import train_together
from ssmlbench.runs.train import fill_caches
from ssmlbench.runs.training_process import (
    KILLED,
    STOP_SECONDS,
    TrainingProcess,
    adopt_orphans,
)

NOT_DUMPABLE = 4


@dataclass(frozen=True)
class SealedRequest:
    """The request for a sealed run. The training process has it too: nothing in it depends on labels.

    (The fingerprint of the data does, in the spec.)
    """

    spec: RunSpec
    task_folder: Path
    plugin_files: tuple[str, ...]  # those of the training process: methods and encoders
    context: RunContext
    source: str  # of the data set, from its card
    # from the plugin of the data set, which the judge does not load
    published: PublishedStatistics | None = None
    encoder_files: tuple[str, ...] = ()  # of the plugin files, the one with the encoder
    all_plugin_files: tuple[str, ...] = ()  # of the command: this run may not change them
    gpu: str | None = None  # the CUDA_VISIBLE_DEVICES of the training process
    label_folders: bool = False  # the raw files lie in folders that are named after their labels
    verified: frozenset[tuple[object, ...]] = frozenset()  # files whose checksums were compared

    @property
    def scratch(self) -> Path:
        """The folder for temporary files of the training process."""
        return RunFolder.of(self.context.results, self.spec).scratch


@dataclass(frozen=True)
class Died:
    """The training process was killed from outside: the run may be tried once more."""

    text: str


# --------------------------------------------------------------------------------- the judge


def judge_process(
    request: SealedRequest,
    pipe: Connection,
    child: int,
    training_pipe: Connection,
    reports: Connection,
) -> None:
    """Make a run, and send its events, the closing event last. Runs in a fresh process.

    child: the training process, which was forked from this one before any label was read.
    """
    take_over(request.verified)
    show_plainly()
    # One thread: more would wait for one another, spinning, for a core that training has.
    threadpool_limits(1)
    _close_to_other_processes()
    adopt_orphans()
    training = TrainingProcess(child, training_pipe, reports, request.context.time_limit)
    signal.signal(signal.SIGTERM, lambda *_: training.ask_to_stop())
    threading.Thread(target=_end_with_owner, args=(pipe, training), daemon=True).start()

    def send(message: Event | Died) -> None:
        with suppress(OSError):  # nobody listens any more: _end_with_owner ends this process
            pipe.send(message)

    last = _judged(request, training, send)
    training.end()
    remove_folder(request.scratch)
    if last is not None:
        send(last)


def _judged(
    request: SealedRequest, training: TrainingProcess, notify: Notify
) -> Closing | Died | None:
    """The run's last message; None if it was stopped."""
    spec, context = request.spec, request.context
    remember_results(context.results, spec.dataset)

    def open_data() -> Task:
        training.allow_plugins()
        card = read_card(request.task_folder)
        published = request.published
        unlike = differences_to_published(card, published) if published else []
        return check_data(spec, Task(request.task_folder, card, unlike))

    try:
        return judge_run(spec, open_data, context, training, notify)
    except Stopped:
        return None
    except Exception as error:
        killed = training.code == KILLED and not training.ended_by_judge
        if isinstance(error, RunStopped) and killed:
            return Died(str(error))
        return RunFolder.of(context.results, spec).record_error(spec, error)


def _close_to_other_processes() -> None:
    """Forbid other processes of this user to read this one's memory (Linux; root still can)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(NOT_DUMPABLE, 0, 0, 0, 0)


def _end_with_owner(pipe: Connection, training: TrainingProcess) -> None:
    """End both processes when the process that asked for the run ends, or asks for the end.

    Training saves its state first, unless the owner asks twice.
    """
    try:
        pipe.recv_bytes()
        training.ask_to_stop()
        pipe.poll(STOP_SECONDS)
    except (EOFError, OSError):
        training.ask_to_stop()
        time.sleep(STOP_SECONDS)
    training.end_at_once()


# ------------------------------------------------------------------------------ the training


def training_process(request: SealedRequest, pipe: Connection, reports: Connection) -> None:
    """Train, in a process that never holds a hidden label. It does not return."""
    stop_on_sigterm()
    judge, parent = JudgePipe(pipe), os.getppid()
    code = 1
    try:
        if request.gpu is not None:  # CUDA reads it when it is first used
            os.environ["CUDA_VISIBLE_DEVICES"] = request.gpu
        take_over(request.verified)
        sys.dont_write_bytecode = True  # a plugin may lie beside its data, in a sealed folder
        _seal(request, SealReports(reports))
        EndsWithParent(parent)  # so that the lock is free when the run is tried again
        quieten()
        warnings.simplefilter("ignore", PluginWarning)  # the process that asked has shown them
        pipe.recv_bytes()  # until `allow_plugins`
        plugins = Plugins(request.encoder_files)
        assignment = pipe.recv()
        if request.plugin_files != request.encoder_files:
            fill_caches(assignment, plugins, judge.notify)
        plugins.add_files(request.plugin_files)
        report = train_together(assignment, plugins, judge, judge.notify, judge.fail)
        _flush_output()
        judge.report(report)
        code = 0
    except Stopped:
        code = EXIT_CODE
    except BaseException as error:  # a plugin may call sys.exit, or raise what is no Exception
        _flush_output()
        with suppress(OSError):
            judge.fail(error, traceback.format_exc())
    finally:
        _flush_output()
        os._exit(code)


def _flush_output() -> None:
    """Write what plugins have printed, before the last message: after it, the judge kills this process."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a plugin may have closed or replaced it
            stream.flush()


def _seal(request: SealedRequest, reports: SealReports) -> None:
    run_folder = RunFolder.of(request.context.results, request.spec).path
    with suppress(OSError):  # the judge reports it if the folder cannot be made
        # Now, though the judge makes it too: folders made after the lock cannot be read.
        run_folder.mkdir(parents=True, exist_ok=True)
    spec, results = request.spec, request.context.results
    places = SealedPlaces.of(request.source, results, request.task_folder, run_folder, spec.dataset)
    needed = [run_folder, request.task_folder, *map(Path, request.plugin_files)]
    needed += [Path(sys.prefix), *map(Path, code_folders()), *places_to_read()]
    needed += [Path(spec.backbone)] if os.sep in spec.backbone else []
    for folder in map(Path, filter(None, sys.path)):
        if not any(folder.is_relative_to(whole) for whole in needed):
            needed += code_in(folder) if places.holds(folder) else [folder]
    if kernel_can_lock() and has_threads():  # of a library: this tool starts none before
        reports.note("trained beside a thread that the kernel's lock does not hold")
    if not lock_labels(places, needed, request.scratch) and kernel_can_lock():
        reports.note("trained without the kernel's lock: too many files lie beside sealed ones")
    if request.label_folders and request.plugin_files:
        reports.note(
            "could ask for files by the names of their folders, the labels: names are not sealed"
        )
    why = " (--compile starts a compiler)" if spec.compile else ""
    code = {*request.plugin_files, *request.all_plugin_files}
    set_tripwire(places, needed, reports.alarm(), lambda text: reports.note(f"{text}{why}"), code)
