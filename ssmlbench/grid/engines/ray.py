"""The Ray engine: every run is a task of a cluster, retried from its checkpoint if its worker dies.

The progress of a run is read from its folder, which all machines must see.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import EpochEnded, Event, Failed, Listener, Resumed, Waiting, Warned
from ssmlbench.core.files import read_record
from ssmlbench.core.plain_text import line_of
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.stopping import keeping_sigterm_handler
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.grid.engines.base import EngineOption, GridPlan, WaitingEngine
from ssmlbench.grid.payload import RunPayload
from ssmlbench.grid.resources import threads_wanted
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import RunProgress

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

RETRIES = 3
"""Workers that a run may lose before it counts as failed: machines of a cluster come and go."""
POLL_SECONDS = 0.5
"""The time between two readings of the folders of running runs."""
CONNECT_SECONDS = 10.0
STORE_BYTES = 100 * 2**20
"""Ray's shared memory on a cluster started here: tasks pass nothing but specs."""


class RayEngine(WaitingEngine):
    """Tasks on a Ray cluster, or on one started on this machine."""

    name = "ray"
    help = "a Ray cluster"
    options = (EngineOption("address", "the cluster's; without it, one is started here."),)

    def make(self, plan: GridPlan, listener: Listener) -> None:
        """Hand the runs to Ray; without --jobs all at once, and Ray uses the cores there are."""
        ray = _import_ray()
        _connect(ray, self.given.get("address"))
        try:
            _Tasks(ray, plan.plugins, plan.context, listener).make(
                plan.specs, plan.jobs or len(plan.specs)
            )
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--engine ray needs Ray: pip install 'ssmlbench[ray]'") from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    from ssmlbench.core.cpu import core_count

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # turn Ray's usage telemetry off
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        options |= {
            "num_cpus": core_count(),
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }
    try:
        if address is not None:
            _check_port(address)
        with keeping_sigterm_handler():
            ray.init(address=address or "local", **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers ({line_of(error)})") from None


def _check_port(address: str) -> None:
    """Fail at once where no port answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if (number := whole_number(port)) is not None:
        socket.create_connection((host, number), timeout=CONNECT_SECONDS).close()


def make_run(payload: RunPayload, spec: Mapping[str, Any]) -> list[Event]:
    """Make a run as a Ray task: the warnings and the resumption, and the closing event last."""
    events: list[Event] = []

    def keep(event: Event) -> None:
        if isinstance(event, Warned | Resumed):
            events.append(event)

    last = payload.run(RunSpec.from_dict(spec), keep)
    return [*events, last]


def with_share(context: RunContext, resources: Mapping[str, float]) -> RunContext:
    """The context with the number of decoding threads: the cluster's cores per GPU.

    Without GPUs, or if the user gave a number, it stays as it is.
    """
    gpus = resources.get("GPU", 0)
    if context.workers is not None or not gpus or context.device == "cpu":
        return context
    share = context.gpus * int(resources.get("CPU", 1)) // int(gpus)
    return replace(context, workers=max(1, share))


class _Tasks:
    """The tasks of one grid."""

    def __init__(self, ray: Any, plugins: Plugins, context: RunContext, listener: Listener):
        self.ray = ray
        self.plugins = plugins
        self.context = context
        self.listener = listener
        self.payload = ray.put(RunPayload.of(plugins, with_share(context, ray.cluster_resources())))
        self.spec_of: dict[Any, RunSpec] = {}  # by the task's reference
        self.progress: dict[str, RunProgress] = {}  # by the run's hash, as last read

    def make(self, specs: Sequence[RunSpec], at_once: int) -> None:
        waiting = list(specs)[::-1]
        try:
            while waiting or self.spec_of:
                while waiting and len(self.spec_of) < at_once:
                    self._hand_out(waiting.pop())
                ready, _ = self.ray.wait(list(self.spec_of), timeout=POLL_SECONDS)
                for task in ready:
                    self._close(task)
                for spec in self.spec_of.values():
                    self._poll(spec)
        finally:
            for task in self.spec_of:  # Ctrl-C: the checkpoints stay
                self.ray.cancel(task, force=True)

    def _hand_out(self, spec: RunSpec) -> None:
        (threads,) = threads_wanted([spec], self.plugins, self.context)
        gpus = self.context.device in ("auto", "cuda") and self.ray.cluster_resources().get(
            "GPU", 0
        )
        task = self.ray.remote(make_run).options(
            num_cpus=threads or 1,
            num_gpus=self.context.gpus if gpus else 0,
            max_retries=RETRIES,
            name=str(spec),
        )
        self.spec_of[task.remote(self.payload, spec.as_dict())] = spec

    def _close(self, task: Any) -> None:
        spec = self.spec_of.pop(task)
        try:
            events = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            died = f"its Ray worker died {RETRIES + 1} times, or Ray could not run it"
            text = f"{died}: {line_of(error)}"
            RunFolder.of(self.context.results, spec).record_failure(spec, text, str(error))
            events = [Failed(text)]
        seen = self._last_progress(spec).resumed is not None
        for event in events:
            if not (seen and isinstance(event, Resumed)):
                self.listener(spec, event)

    def _poll(self, spec: RunSpec) -> None:
        """Report the changes in a run's folder as the events of a local run."""
        progress = read_record(RunFolder.of(self.context.results, spec).progress_file, RunProgress)
        if progress is None:
            return
        before = self._last_progress(spec)
        self.progress[spec.hash] = progress
        for event in events_between(before, progress):
            self.listener(spec, event)

    def _last_progress(self, spec: RunSpec) -> RunProgress:
        return self.progress.get(spec.hash, RunProgress())


def events_between(before: RunProgress, now: RunProgress) -> list[Event]:
    """The events of a run between two readings of its progress.json."""
    events: list[Event] = []
    if before.began != now.began:  # started again, maybe on another machine
        before = RunProgress()
    if now.resumed is not None and before.resumed is None:
        events.append(Resumed(now.resumed))
    if now.doing not in ("starting", "training", before.doing):
        events.append(Waiting(now.doing))
    if now.epoch > max(before.epoch, now.resumed or 0):
        events.append(EpochEnded(now.epoch, now.epochs, now.losses, now.seconds_per_epoch))
    return events
