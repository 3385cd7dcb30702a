"""A method that watches its run's folder for what the judge writes there. A plugin file of the tests."""

import ctypes
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ssmlbench.api import Method, bce, option

STOLEN = Path(os.environ.get("STOLEN", "."))
SECONDS = 8.0


def judged():
    """The files of scores in the results folder, finished or not."""
    return [
        Path(folder) / name
        for folder, _, names in os.walk(STOLEN / "results")
        for name in names
        if "scores" in name
    ]


def content(file):
    """The bytes of a file, read by native code, which Python does not see."""
    libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(1 << 16)
    descriptor = libc.open(os.fsencode(file), 0)
    return buffer.raw[: max(0, libc.read(descriptor, buffer, len(buffer)))]


def watch():
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if found := b"".join(map(content, judged())):
            (STOLEN / "leaked").write_bytes(found)
            return
        time.sleep(0.0005)


def in_a_child():
    if os.fork() == 0:
        watch()
        os._exit(0)


def in_a_grandchild():
    if (child := os.fork()) == 0:
        os.setsid()
        in_a_child()
        os._exit(0)
    os.waitpid(child, 0)


def in_a_thread_of_a_process_that_does_not_end():
    threading.Thread(target=watch, daemon=True).start()
    end = os._exit
    os._exit = lambda code: (time.sleep(SECONDS), end(code))


def by_what_is_there():
    if found := b"".join(map(content, judged())):
        (STOLEN / "leaked").write_bytes(found)


WAYS = {
    way.__name__.replace("_", " "): way
    for way in (
        *(in_a_child, in_a_grandchild, in_a_thread_of_a_process_that_does_not_end),
        by_what_is_there,
    )
}
if os.environ.get("WATCHED_FROM") not in (None, str(os.getpid())):  # a training process imports it
    by_what_is_there()
    (STOLEN / "imported").touch()


class Watcher(Method):
    """Does what its hyper-parameter says."""

    name = "watcher"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def start_epoch(self, pools):
        if (way := WAYS.get(self.config.how)) and pools.epoch == 3:
            way()

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
