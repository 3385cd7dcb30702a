"""Makes one run, in the same way on every engine, and counts how the runs of a grid ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from ssmlbench.core.checksums import verified_files
from ssmlbench.core.errors import RunFailed, disk_error
from ssmlbench.core.events import (
    AlreadyDone,
    Closing,
    Done,
    Event,
    Failed,
    Listener,
    Notify,
    Retried,
)
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

JUDGE = "ssmlbench.runs.sealed_run:judge_process"
TRAINING = "ssmlbench.runs.sealed_run:training_process"
MAX_DEATHS = 2
"""A run has failed when its processes were killed from outside this often."""


@dataclass
class Summary:
    """The numbers of runs that were done, had been done before, or failed."""

    done: int = 0
    already: int = 0
    failed: list[tuple[RunSpec, str]] = field(default_factory=list)

    def count(self, spec: RunSpec, event: Event) -> None:
        """Count the event if it is a run's last one."""
        match event:
            case Done():
                self.done += 1
            case AlreadyDone():
                self.already += 1
            case Failed(text):
                self.failed.append((spec, text))

    def counting(self, listener: Listener) -> Listener:
        """A listener that counts closing events here and calls `listener`."""

        def count(spec: RunSpec, event: Event) -> None:
            self.count(spec, event)
            listener(spec, event)

        return count


def unfinished(specs: Sequence[RunSpec], context: RunContext, listener: Listener) -> list[RunSpec]:
    """The unfinished runs; the listener gets AlreadyDone for the others."""
    waiting = []
    for spec in specs:
        if RunFolder.of(context.results, spec).finished:
            listener(spec, AlreadyDone())
        else:
            waiting.append(spec)
    return waiting


def run_one(spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify) -> Closing:
    """Make a run in fresh processes and return its last event.

    The folder of a failed run keeps the reason. A run whose processes are killed starts once more.
    """
    if not can_be_sealed(plugins):
        return run_here(spec, plugins, context, notify)
    sealed = SealedRun(spec, plugins, context)
    try:
        while True:
            event = sealed.next_event()
            if isinstance(event, Closing):
                return event
            notify(event)
    finally:
        sealed.stop()


def start_fork_server() -> None:
    """Start the process from which runs are forked, so that its imports are done in time."""
    from ssmlbench.runs.fork_server import fork_server

    fork_server()


def can_be_sealed(plugins: Plugins) -> bool:
    """Whether other processes can load the plugins: not if one is defined in this process."""
    return not plugins.in_memory


def run_here(spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify) -> Closing:
    """Make a run in this process, without a seal, and return its last event."""
    from ssmlbench.runs.execute import execute

    try:
        return execute(spec, plugins, context, notify)
    except Exception as error:
        return RunFolder.of(context.results, spec).record_error(spec, error)


class SealedRun:
    """A run in its own processes, and the pipe to them."""

    def __init__(
        self, spec: RunSpec, plugins: Plugins, context: RunContext, gpu: str | None = None
    ):
        """gpu: the CUDA_VISIBLE_DEVICES of the training process; None: as here."""
        self.spec = spec
        self.context = context
        self._plugins = plugins
        self._gpu = gpu
        self._folder = RunFolder.of(context.results, spec)
        self._before: tuple[int, int] | None = None  # the result's stamp when the run was started
        self._deaths = 0
        self._failed: Failed | None = None
        self.pipe: Connection | None = None  # None: it could not be started
        self._asked_to_stop = False
        self._start()

    def next_event(self) -> Event:
        """Wait for the next event; after a death from outside, start again."""
        if self.pipe is None:
            assert self._failed is not None
            return self._failed
        from ssmlbench.runs.sealed_run import Died

        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            message = Died("its judge process died: is there too little memory?")
        if not isinstance(message, Died):
            event: Event = message
            return event
        self._folder.drop_result_since(self._before)  # a plugin that kills the judge may forge one
        self._deaths += 1
        if self._deaths < MAX_DEATHS:
            self.stop()
            self._start()
            return Retried(f"{message.text}; tried once more")
        text = f"{message.text} (twice)"
        self._folder.record_failure(self.spec, text)
        return Failed(text)

    def ask_to_stop(self) -> None:
        """Have the processes save and end, if they are still running. `stop` waits for them."""
        if self.pipe is not None and not self._asked_to_stop:
            self._asked_to_stop = True
            with suppress(OSError):
                self.pipe.send_bytes(b"stop")

    def stop(self) -> None:
        """End the processes if they are still running, and wait until they have ended."""
        if self.pipe is None:
            return
        self.ask_to_stop()
        with suppress(EOFError, OSError):
            while True:
                self.pipe.recv_bytes()
        self.pipe.close()
        self.pipe = None

    def _start(self) -> None:
        from ssmlbench.data.label_folders import LabelFolders
        from ssmlbench.inputs.cache_folders import decoded_root, features_root
        from ssmlbench.plugins.watch import attempts_of
        from ssmlbench.runs.execute import open_task
        from ssmlbench.runs.fork_server import fork_server
        from ssmlbench.runs.sealed_run import SealedRequest

        try:
            # Files are compared here, once: every run has new processes.
            task = open_task(self.spec, self._plugins)
            for file in self._plugins.files:
                if tried := attempts_of(file):
                    raise RunFailed(f"{file}: its code {tried[0]}")
        except Exception as error:
            self._failed = self._folder.record_error(self.spec, error)
            return
        self._before = self._folder.result_stamp()
        published = self._plugins.datasets[self.spec.dataset].published
        request = SealedRequest(
            spec=self.spec,
            task_folder=task.folder,
            plugin_files=self._plugins.training_files(self.spec.method, self.spec.backbone),
            encoder_files=self._plugins.encoder_files(self.spec.backbone),
            all_plugin_files=self._plugins.python_files,
            context=self.context,
            source=task.card.source,
            published=published and published.as_plain(),
            gpu=self._gpu,
            label_folders=issubclass(self._plugins.datasets[self.spec.dataset], LabelFolders),
            verified=verified_files([*task.input_files, features_root(), decoded_root()]),
        )
        try:
            self.pipe = fork_server().fork(JUDGE, TRAINING, request)
            self._asked_to_stop = False
        except (OSError, UnpicklingError) as error:
            why = error if isinstance(error, UnpicklingError) else disk_error(error) or error
            reason = RunFailed(f"no process could be started for it: {why}")
            self._failed = self._folder.record_error(self.spec, reason)
